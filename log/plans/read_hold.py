"""The metadata record of a read hold: the lowest offset of a partition that a reader without a subscription needs.

The key is `reads/<source topic id>/<partition>/<name>`, under a lease that no broker keeps alive. Pure.

1. A name has 1 to NAME_CHARACTERS_MAX letters, digits and `_.-`, so it needs no quoting in a key.
2. A record that cannot be read holds all records of its partition, until its lease ends.
"""

from __future__ import annotations

import re
import uuid
from typing import Final, NamedTuple

import msgpack

from gnomon.log.entry import Offset

READS: Final = "reads/"
"""Prefix of the keys of all read holds."""
NAME_CHARACTERS_MAX: Final = 100
SECONDS: Final = 600
"""The time after which a hold ends that is not renewed, unless its reader asks for another one."""
SECONDS_MAX: Final = 3_600
HOLDS_MAX: Final = 1_000
"""Holds of one topic with different names."""

_NAME = re.compile(rf"[A-Za-z0-9_.-]{{1,{NAME_CHARACTERS_MAX}}}")


class ReadHold(NamedTuple):
    """The value of the key."""

    offset: Offset
    """Retention keeps the records from here on."""
    seconds: int
    """The time of the key's lease."""

    def encode(self) -> bytes:
        """The value."""
        encoded: bytes = msgpack.packb(list(self))
        return encoded

    @classmethod
    def decode(cls, value: bytes) -> ReadHold:
        """Undoes `encode`; a value that cannot be read holds everything (invariant 2)."""
        try:
            offset, seconds = msgpack.unpackb(value)
        except (ValueError, TypeError):
            return cls(Offset(0), 0)
        if type(offset) is not int or type(seconds) is not int:
            return cls(Offset(0), 0)
        return cls(Offset(offset), seconds)


class HoldPlace(NamedTuple):
    """The parts of a key."""

    source_id: uuid.UUID
    """The topic whose ledgers have the records: the source of a shadow."""
    partition: int
    name: str

    @property
    def key(self) -> str:
        """The metadata key."""
        return f"{reads_prefix(self.source_id)}{self.partition}/{self.name}"

    @classmethod
    def of_key(cls, key: str) -> HoldPlace:
        """Undoes `key`."""
        _, topic, partition, name = key.split("/")
        return cls(uuid.UUID(topic), int(partition), name)


def reads_prefix(source_id: uuid.UUID) -> str:
    """The prefix of the keys of a topic's read holds."""
    return f"{READS}{source_id.hex}/"


def is_hold_name(name: str) -> bool:
    """Whether a read hold can have this name (invariant 1)."""
    return _NAME.fullmatch(name) is not None
