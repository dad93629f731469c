"""Writes with terms to one partition, for the tests of conditions and fences."""

from __future__ import annotations

from typing import Any

import pytest

from gnomon.bookie.errors import LedgerFailed
from gnomon.broker.partition.appends import Produced
from gnomon.broker.partition.conditions.terms import Terms
from gnomon.broker.partition.partition import Partition
from gnomon.log.last_record import last_sn
from gnomon.log.sn import SN
from gnomon.wire.kafka.errors import ErrorCode


def send(act: Any, partition: Partition, value: str, expected: SN | None, **producer: int) -> tuple[Any, Terms]:
    terms = Terms(expected)
    return act.send_batch(partition, act.batch(value, **producer), terms), terms


async def write(act: Any, partition: Partition, value: str, expected: SN | None = None) -> SN:
    answer, terms = send(act, partition, value, expected)
    produced = await answer.wait()
    assert produced.error == ErrorCode.NONE, produced
    assert terms.sn is not None
    assert terms.sn.sequence_id == produced.base_offset
    return terms.sn


async def refusal(act: Any, partition: Partition, expected: SN) -> SN | Produced:
    answer, terms = send(act, partition, "refused", expected)
    produced = await answer.wait()
    return produced if terms.refused is None else terms.refused.current


async def sn_now(partition: Partition) -> SN:
    log = await partition.opened()
    assert log is not None
    found = log.sn
    assert (await last_sn(partition.segments, log.high_watermark))[::2] == found[::2]
    return found


class HeldUp:
    """Holds up the confirmations of a ledger's entries, and lets them fail on demand."""

    def __init__(self, partition: Partition, monkeypatch: pytest.MonkeyPatch) -> None:
        self._partition = partition
        self._stored = partition._stored
        self._held: list[tuple[int, Any]] = []
        self._monkeypatch = monkeypatch
        monkeypatch.setattr(partition, "_stored", lambda entry, error: self._held.append((entry, error)))

    def go_on(self, error: LedgerFailed | None = None) -> None:
        self._monkeypatch.setattr(self._partition, "_stored", self._stored)
        held, self._held = self._held, []
        for entry, outcome in held:
            self._stored(entry, error or outcome)


async def untouched(act: Any, partition: Partition) -> None:
    """The record stays."""


async def trimmed(act: Any, partition: Partition) -> None:
    """DeleteRecords up to the end."""
    assert partition.log is not None
    assert await partition.delete_before(partition.log.high_watermark) == partition.log.next_offset


async def expired(act: Any, partition: Partition) -> None:
    """Retention of everything, after a roll with nothing behind it."""
    await act.clock.sleep(10)
    await partition.enforce_retention()
    assert partition.log is not None
    assert partition.log.start_offset == partition.log.next_offset


ENDS = [
    pytest.param(untouched, {}, id="untouched"),
    pytest.param(trimmed, {}, id="trimmed"),
    pytest.param(trimmed, {"segment_bytes": 100}, id="trimmed after rolls"),
    pytest.param(expired, {"retention_ms": 5000}, id="expired"),
]
