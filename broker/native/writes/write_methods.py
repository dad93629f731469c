"""Methods of the native service that write: `producer_id`, `write` and `end`.

1. A batch that is refused before it reaches the log is noted, so that no later batch of its producer overtakes it
   (`producers` invariant 5).
2. `end` is answered once all that was given out before is durable, and the metadata service has confirmed that this
   broker leads the partition. So the answer was the end of the log at some instant of the call.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gnomon.bookie.errors import LedgerError
from gnomon.broker.authorization.native_access import NativeAccess
from gnomon.broker.authorization.native_table import NativeMethod
from gnomon.broker.authorization.operation import Operation, topic
from gnomon.broker.configs.topic_configs import CONDITIONAL
from gnomon.broker.native.arguments import checked, fence_args, write_args
from gnomon.broker.native.translated import in_translated_task
from gnomon.broker.native.writes.write_targets import WriteTargets, append_failure
from gnomon.broker.partition.appends import Produced
from gnomon.broker.partition.conditions.terms import Terms, TokenRefused, TransactionRefused
from gnomon.broker.partition.partition import Partition
from gnomon.broker.partition.refused_batches import RefusedBatches
from gnomon.broker.partition.unpacking.batch_client import BatchClient
from gnomon.broker.producer_ids import ProducerIds
from gnomon.client.errors import (
    CasWriteException,
    InvalidCall,
    InvalidRecords,
    NativeError,
    TokenMismatch,
    TransactionOutOfOrder,
    Unavailable,
)
from gnomon.log.last_record import sn_of
from gnomon.runtime.metrics import Metrics
from gnomon.runtime.rpc.call import Call, Method
from gnomon.runtime.tasks import Tasks
from gnomon.runtime.world import Clock
from gnomon.wire.kafka.batch import ATTRIBUTES_LOW_AT, HEADER_BYTES, RECORDS_COUNT_AT, TRANSACTIONAL
from gnomon.wire.kafka.errors import ErrorCode


class WriteMethods:
    """The methods that write."""

    def __init__(
        self,
        access: NativeAccess,
        targets: WriteTargets,
        refused: RefusedBatches,
        producer_ids: ProducerIds,
        metrics: Metrics,
        clock: Clock,
        tasks: Tasks,
    ) -> None:
        self._access = access
        self._targets = targets
        self._refused = refused
        self._producer_ids = producer_ids
        self._metrics = metrics
        self._clock = clock
        self._tasks = tasks

    def methods(self) -> Mapping[str, Method]:
        """The methods by name."""
        return {
            "producer_id": in_translated_task(self._tasks, self._producer_id),
            "write": self._write,
            "fence": self._fence,
            "end": self._end,
        }

    async def _producer_id(self, call: Call) -> int:
        """A producer id for the batches of one writer, which nobody else has."""
        (name,) = checked(call.args, str)
        self._access.question(NativeMethod.PRODUCER_ID, call.peer).check(Operation.WRITE, topic(name))
        return await self._producer_ids.next()

    def _write(self, call: Call) -> None:
        """Appends the batch in the attachment; answered with the SN of its last record."""
        name, topic_id, index, terms, has_transaction = write_args(call.args)
        records = call.attachment if isinstance(call.attachment, memoryview) else memoryview(call.attachment)
        self._access.question(NativeMethod.WRITE, call.peer).check(Operation.WRITE, topic(name))
        count = _records_count(records)
        try:
            found = self._targets.check_topic(name, topic_id)
            if has_transaction and found is not None and found.configs.get(CONDITIONAL) != "true":
                raise InvalidCall(f"topic '{name}' takes no transaction ids: set {CONDITIONAL}=true on it")
            partition = self._targets.partition(name, index)
        except NativeError:
            self._refused.of(name, index).refused_batch(records, self._clock.wall_ms())
            raise
        metrics = self._metrics
        metrics.produce_bytes += len(records)
        metrics.produce_batches += 1
        if metrics.traffic is not None:
            metrics.traffic.received(name, records)
        partition.append(records, _WriteCall(call, partition, terms, count, self._tasks), None, terms, by_all=True)

    def _fence(self, call: Call) -> None:
        """Gives the partition a fencing token; answered once that is durable."""
        name, index, terms = fence_args(call.args)
        self._access.question(NativeMethod.FENCE, call.peer).check(Operation.WRITE, topic(name))
        partition = self._targets.partition(name, index)
        fence = _WriteCall(call, partition, terms, 0, self._tasks)
        partition.append(memoryview(b""), fence, None, terms, by_all=True)

    def _end(self, call: Call) -> None:
        """Answers with the SN of the last record and the fencing token, in the turn of the call among writes."""
        name, index = checked(call.args, str, int)
        self._access.question(NativeMethod.END, call.peer).check(Operation.DESCRIBE, topic(name))
        partition = self._targets.partition(name, index)
        terms = Terms(looks=True)
        partition.append(memoryview(b""), _WriteCall(call, partition, terms, 0, self._tasks), None, terms)


def _records_count(records: memoryview) -> int:
    """The number of records that a batch declares; the log checks it, and the rest (`batch.check_produced`).

    Raises:
        InvalidRecords: the batch is one of a transaction, or too short.
    """
    if len(records) < HEADER_BYTES:
        raise InvalidRecords(f"the attachment of `write` is one record batch, not {len(records)} bytes")
    if records[ATTRIBUTES_LOW_AT] & TRANSACTIONAL:
        raise InvalidRecords("transactions are not built yet: write without a transactional id")
    return int.from_bytes(records[RECORDS_COUNT_AT:HEADER_BYTES])


class _WriteCall:
    """One `write` until it is answered: the callback of its append, and the client that its batch is from."""

    def __init__(self, call: Call, partition: Partition, terms: Terms, records_count: int, tasks: Tasks) -> None:
        self._call = call
        self._partition = partition
        self._terms = terms
        self._records_count = records_count
        self._tasks = tasks

    # --- the client of the batch --------------------------------------------------------------------------------

    @property
    def turn_key(self) -> object:
        """See `BatchClient`."""
        return self._call.connection

    @property
    def gone(self) -> bool:
        """See `BatchClient`."""
        return self._call.over

    def charge(self, count: int) -> None:
        """See `BatchClient`."""
        self._call.charge(count)

    def refund(self, count: int) -> None:
        """See `BatchClient`."""
        self._call.charge(-count)

    def client_of(self, slot: Any) -> BatchClient:
        """See `AppendCallback.client_of`."""
        return self

    # --- the outcome --------------------------------------------------------------------------------------------

    def appended(self, slot: Any, outcome: Produced) -> None:
        """See `AppendCallback.appended`."""
        if outcome.error != ErrorCode.NONE:
            self._call.fail(self._failure(outcome))
            return
        sn, end = self._terms.sn, self._terms.end
        if end is not None:
            self._call.reply([end.sn.encode(), end.token])
        elif self._terms.new_token is not None:
            self._call.reply()
        elif sn is None:  # a repeat
            self._tasks.start_soon(self._answer_repeat, outcome.base_offset + self._records_count - 1)
        else:
            self._call.reply(sn.encode())

    async def _answer_repeat(self, last: int) -> None:
        try:
            self._call.reply((await sn_of(self._partition.segments, last)).encode())
        except LedgerError as error:
            self._call.fail(Unavailable(f"the records are written, and their place cannot be read now: {error}"))

    def _failure(self, outcome: Produced) -> NativeError:
        code, text = outcome.error, outcome.text or outcome.error.name
        refused = self._terms.refused
        if isinstance(refused, TokenRefused):
            return TokenMismatch(refused.token, text)
        if isinstance(refused, TransactionRefused):
            return TransactionOutOfOrder(refused.current.encode(), text)
        if refused is not None:
            return CasWriteException(refused.current.encode(), text)
        return append_failure(code, text)
