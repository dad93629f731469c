"""The addresses of bookies, for readers that have no connection to the metadata service."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

from gnomon.bookie.ids import BookieId
from gnomon.bookie.registration import BOOKIES, BookieRegistration
from gnomon.metadata.client import Metadata, Revision, read_many


class BookieAddress(NamedTuple):
    """A live bookie."""

    name: BookieId
    host: str
    port: int
    disk: Revision
    """The create revision of its cookie."""


async def live_addresses(metadata: Metadata, names: Iterable[BookieId]) -> list[BookieAddress]:
    """The addresses of those of the named bookies that are registered, in the order of the names.

    Raises:
        MetadataError: the registrations cannot be read.
    """
    keys = {name: f"{BOOKIES}{name}" for name in names}
    found = await read_many(metadata, keys.values())
    addresses = []
    for name, key in keys.items():
        if key in found:
            with suppress(ValueError):  # a registration of a newer gnomon
                at = BookieRegistration.decode(found[key].value)
                addresses.append(BookieAddress(name, at.host, at.port, at.disk))
    return addresses
