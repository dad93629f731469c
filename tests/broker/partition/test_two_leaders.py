"""Two brokers lead the same log at once: one claims it, the other drops records at its front."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from gnomon.bookie.record import ledger_key
from gnomon.broker.errors import KafkaError
from gnomon.broker.partition.chain import Chain
from gnomon.broker.partition.partition import Partition
from gnomon.broker.partition.readable import REOPEN_SECONDS
from gnomon.log.entry import Offset
from gnomon.metadata.client import Put
from gnomon.wire.kafka.errors import ErrorCode

Play = Callable[..., None]
Drops = Callable[[Partition], Awaitable[object]]
WAYS = [
    pytest.param(lambda partition: partition.delete_before(Offset(1)), 1, id="an offset"),
    pytest.param(lambda partition: partition.delete_before(Offset(2)), 2, id="a segment"),
    pytest.param(lambda partition: partition.delete_before(Offset(3)), 3, id="another offset"),
    pytest.param(Partition.enforce_retention, 4, id="retention"),
]
"""Ways to drop records at the front, with the resulting start of a log of three segments with two records each."""
SETTINGS = {"segment_bytes": 120, "retention_bytes": 0}


async def _written(act: Any) -> Partition:
    partition: Partition = await act.partition(**SETTINGS)
    for number in range(3):
        await act.append(partition, f"{number}", "more", at=act.clock.wall_ms())
    assert [segment.base_offset for segment in partition.segments] == [0, 2, 4]
    return partition


async def _outcome(gives_up: Drops, partition: Partition) -> object:
    try:
        return await gives_up(partition)
    except KafkaError as refused:
        return refused.code


@pytest.mark.parametrize(("gives_up", "start"), WAYS)
def test_a_claim_knows_what_the_previous_leader_dropped_meanwhile(
    play: Play, monkeypatch: pytest.MonkeyPatch, gives_up: Drops, start: int
) -> None:
    """The records are dropped after the new leader has read the chain, before it claims the last ledger."""

    async def body(act: Any) -> None:
        before = await _written(act)
        claim = Chain._claim

        async def late(chain: Chain, *what: Any) -> Any:
            monkeypatch.setattr(Chain, "_claim", claim)
            await gives_up(before)
            return await claim(chain, *what)

        monkeypatch.setattr(Chain, "_claim", late)
        after = await act.partition(**SETTINGS)
        log = await after.opened()
        while log is None:
            await act.clock.sleep(0.5)
            log = await after.opened()
        assert before.log.start_offset == log.start_offset == start
        assert [offset for offset, _ in await act.read(after)] == list(range(start, 6))

    play(body)


@pytest.mark.parametrize(("gives_up", "start"), WAYS)
def test_a_replaced_leader_drops_nothing(play: Play, gives_up: Drops, start: int) -> None:
    async def body(act: Any) -> None:
        before = await _written(act)
        after = await act.partition(**SETTINGS)
        assert await after.opened() is not None
        stored = await act.stores.metadata.range("")
        assert await _outcome(gives_up, before) in (False, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        assert await act.stores.metadata.range("") == stored
        assert [offset for offset, _ in await act.read(after)] == list(range(6))
        await gives_up(after)
        assert [offset for offset, _ in await act.read(after)] == list(range(start, 6))

    play(body)


@pytest.mark.parametrize(("gives_up", "start"), WAYS)
def test_a_drop_at_the_front_finds_a_claim_that_no_append_has_met(play: Play, gives_up: Drops, start: int) -> None:
    """An auditor that moves the copies of an idle log claims its last ledger, and the broker still leads the log."""

    async def body(act: Any) -> None:
        partition = await _written(act)
        other = await act.partition(**SETTINGS)
        assert await other.opened() is not None
        other.release()
        assert await _outcome(gives_up, partition) in (False, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        await act.clock.sleep(REOPEN_SECONDS)
        assert await partition.opened() is not None
        await gives_up(partition)
        assert [offset for offset, _ in await act.read(partition)] == list(range(start, 6))

    play(body)


def test_a_deletion_of_records_does_not_count_as_done_if_a_segment_is_changed_meanwhile(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body(act: Any) -> None:
        partition = await _written(act)
        delete = Chain.delete

        async def overtaken(chain: Chain, segments: Any, *how: Any) -> bool:
            monkeypatch.setattr(Chain, "delete", delete)
            found = await act.stores.metadata.get(ledger_key(segments[0].ledger.name))
            claim_unchanged = chain.claim_unchanged

            async def late(last: Any) -> Any:
                await act.stores.metadata.txn([], [Put(found.key, found.value)])
                return await claim_unchanged(last)

            monkeypatch.setattr(chain, "claim_unchanged", late)
            deleted = await delete(chain, segments, *how)
            monkeypatch.undo()
            return deleted

        monkeypatch.setattr(Chain, "delete", overtaken)
        with pytest.raises(KafkaError, match="can be repeated") as refused:
            await partition.delete_before(Offset(3))
        assert refused.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert partition.log is not None
        assert partition.log.start_offset == 0
        assert await partition.delete_before(Offset(3)) == 3

    play(body)
