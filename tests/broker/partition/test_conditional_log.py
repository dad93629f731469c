"""A conditional log against a list: writes, fences, trims, rolls, claims and restarts in any order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from writes import sn_now

from gnomon.broker.partition.conditions.terms import PositionRefused, Terms, TokenRefused, TransactionRefused
from gnomon.broker.partition.partition import Partition
from gnomon.log.dlsn import Dlsn
from gnomon.log.sn import EMPTY, SN, Match, match
from gnomon.log.term_headers import TRANSACTION_ID
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.records import Record, build_batch

SETTINGS = {"conditional": True, "segment_bytes": 400, "retention_ms": 60_000}
TOKENS = st.sampled_from([None, b"a", b"b"])


@dataclass
class Model:
    """What the partition should be."""

    values: list[str] = field(default_factory=list)
    last: SN = EMPTY
    token: bytes = b""
    seen: list[SN] = field(default_factory=lambda: [EMPTY])
    """All ends that there were."""
    sequences: dict[int, tuple[int, int]] = field(default_factory=dict)
    """The epoch and the next sequence of each producer; a refusal begins a new epoch."""
    start: int = 0

    def refusal(self, expected: SN | None, transaction_id: int | None, token: bytes | None) -> type[Exception] | None:
        """Why a write is refused; None if it is not."""
        if token is not None and token != self.token:
            return TokenRefused
        if expected is not None and match(expected, self.last) is not Match.HOLDS:
            return PositionRefused
        if transaction_id is not None and transaction_id < (self.last.transaction_id or 0):
            return TransactionRefused
        return None

    def expectation(self, kind: str, back: int) -> SN | None:
        """The SN that a writer expects."""
        known = self.seen[-1 - back % len(self.seen)]
        return {
            "none": None,
            "whole": known,
            "sequence": SN(sequence_id=known.sequence_id),
            "place": SN(known.dlsn),
            "transaction": SN(transaction_id=known.transaction_id),
            "ahead": SN(sequence_id=(self.last.sequence_id or 0) + 1),
        }[kind]


Step = Callable[[Any, Partition, Model], Any]


def write(kind: str, back: int, count: int, transaction: int | None, token: bytes | None, producer: int) -> Step:
    async def step(act: Any, partition: Partition, model: Model) -> None:
        given = None if transaction is None else max(0, (model.last.transaction_id or 0) + transaction)
        expected = model.expectation(kind, back)
        batch = _batch(act, model, count, given, producer)
        terms = Terms(expected, token)
        outcome = await act.send_batch(partition, batch, terms).wait()
        why = model.refusal(expected, given, token)
        if why is not None:
            assert outcome.error == ErrorCode.INVALID_RECORD
            assert type(terms.refused) is why
            assert terms.refused.current == model.last
            model.sequences[producer] = model.sequences.get(producer, (0, 0))[0] + 1, 0
            return
        assert outcome.error == ErrorCode.NONE, outcome
        assert terms.sn is not None
        assert terms.sn.sequence_id == len(model.values) + count - 1
        assert terms.sn.transaction_id == (model.last.transaction_id if given is None else given)
        assert terms.sn.dlsn is not None
        assert model.last.dlsn is not None
        assert terms.sn.dlsn > model.last.dlsn
        assert terms.sn.dlsn.slot == count - 1
        model.values += [f"{len(model.values) + number}" for number in range(count)]
        model.last = terms.sn
        model.seen.append(terms.sn)
        if producer:
            epoch, sequence = model.sequences.get(producer, (0, 0))
            model.sequences[producer] = epoch, sequence + count

    return step


def _batch(act: Any, model: Model, count: int, transaction_id: int | None, producer: int) -> bytes:
    headers = () if transaction_id is None else ((TRANSACTION_ID, b"%d" % transaction_id),)
    records = [Record(n, 0, None, b"%d" % (len(model.values) + n), headers) for n in range(count)]
    numbered = {}
    if producer:
        epoch, sequence = model.sequences.get(producer, (0, 0))
        numbered = {"producer_id": producer, "producer_epoch": epoch, "base_sequence": sequence}
    return build_batch(records, base_timestamp=act.clock.wall_ms(), **numbered)


def fence(kind: str, back: int, new_token: bytes, token: bytes | None) -> Step:
    async def step(act: Any, partition: Partition, model: Model) -> None:
        expected = model.expectation(kind, back)
        terms = Terms(expected, token, new_token)
        outcome = await act.send_batch(partition, b"", terms).wait()
        why = None if new_token == model.token else model.refusal(expected, None, token)
        if why is None:
            assert outcome.error == ErrorCode.NONE
            model.token = new_token
        else:
            assert type(terms.refused) is why

    return step


async def trim(act: Any, partition: Partition, model: Model) -> None:
    """DeleteRecords up to the end."""
    model.start = int(await partition.delete_before(partition.log.high_watermark))
    assert model.start == len(model.values)


async def expire(act: Any, partition: Partition, model: Model) -> None:
    """Retention of everything."""
    await act.clock.sleep(120)
    await partition.enforce_retention()
    assert partition.log is not None
    model.start = int(partition.log.start_offset)


CLAIM, RESTART = "claim", "restart"
KINDS = st.sampled_from(["none", "whole", "whole", "sequence", "place", "transaction", "ahead"])
STEPS = st.one_of(
    st.builds(
        write,
        KINDS,
        st.sampled_from([0, 0, 0, 1, 5]),
        st.integers(1, 3),
        st.sampled_from([None, None, 0, 1, -1]),
        st.sampled_from([None, None, b"a", b"b"]),
        st.sampled_from([0, 0, 7]),
    ),
    st.builds(fence, KINDS, st.sampled_from([0, 1]), st.sampled_from([b"a", b"b", b""]), TOKENS),
    st.sampled_from([trim, expire, CLAIM, RESTART]),
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(STEPS, max_size=25), power_lost=st.booleans())
def test_a_conditional_log_is_a_list_whatever_happens_to_it(
    play: Callable[..., None], steps: list[Any], power_lost: bool
) -> None:
    model = Model()
    acts: list[list[Any]] = [[]]
    for step in steps:
        if step == RESTART:
            acts.append([])
        else:
            acts[-1].append(step)

    def life(own: list[Any]) -> Callable[[Any], Any]:
        async def body(act: Any) -> None:
            partition = await act.partition(**SETTINGS)
            await partition.opened_to_write()
            for step in own:
                if step == CLAIM:
                    partition = await act.partition(**SETTINGS)
                    await partition.opened_to_write()
                else:
                    await step(act, partition, model)
                await act.clock.sleep(0.1)
                assert await sn_now(partition) == model.last
                assert partition.log.token == model.token
            found = await act.read(partition)
            assert found == [(offset, model.values[offset]) for offset in range(model.start, len(model.values))]

        return body

    play(*map(life, acts), power_lost=power_lost)


def test_the_model_knows_a_place_before_every_record() -> None:
    assert EMPTY.dlsn is not None
    assert EMPTY.dlsn < Dlsn(0, 0, 0)
