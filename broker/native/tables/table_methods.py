"""Methods of the native service on tables: transactions, reads and watches.

1. A transaction is decided in its turn in the log (`broker/tables`), and answered once what it wrote, or what it was
   decided by, is durable.
2. A read is answered with a state that is as new as the call, unless the caller takes an older one.
3. A transaction that was done before, whose answer the leader has no more, is answered from its batch in the log. Only
   the answers of its reads are lost then.
4. Where nothing changes while the broker's lease may be over, a watch ends: another broker may lead, and have changes.
   Its client begins again, here if nobody else leads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import Any, Final

import msgpack
import trio

from gnomon.bookie.errors import LedgerError
from gnomon.broker.authorization.native_access import NativeAccess
from gnomon.broker.authorization.native_table import NativeMethod
from gnomon.broker.authorization.operation import Operation, topic
from gnomon.broker.native.tables.hosted import hosted_table
from gnomon.broker.native.tables.shadow_reads import ShadowReads
from gnomon.broker.native.tables.table_arguments import (
    KeyRange,
    TablePlace,
    count_args,
    get_args,
    scan_args,
    watch_args,
    write_args,
)
from gnomon.broker.native.translated import in_translated_task
from gnomon.broker.native.writes.write_targets import WriteTargets, append_failure
from gnomon.broker.partition.appends import Produced
from gnomon.broker.partition.conditions.terms import Terms
from gnomon.broker.partition.unpacking.batch_client import BrokerItself
from gnomon.broker.tables.hosted_table import HostedTable
from gnomon.broker.tables.table_log import LogUnreadable
from gnomon.broker.tables.table_reads import NOT_CONFIRMED
from gnomon.broker.tables.table_state import TableState
from gnomon.broker.tables.transaction import Transaction
from gnomon.broker.tables.watches.table_watches import KeyWatch
from gnomon.broker.tables.watches.watched_batch import BatchSpan
from gnomon.client.errors import Compacted, InvalidCall, NotLeader, NotTaken, OutcomeUnknown, Unavailable
from gnomon.client.protocol import SCAN_BYTES_MAX
from gnomon.log.entry import Offset
from gnomon.log.tables.changes import KeyChange
from gnomon.log.tables.key_entry import NO_REVISION
from gnomon.log.tables.operations import GetKey, IncrementKey
from gnomon.runtime.loop.paced import PacedTasks
from gnomon.runtime.rpc.call import Call, Method
from gnomon.runtime.tasks import Tasks
from gnomon.runtime.world import Clock
from gnomon.wire.kafka.errors import ErrorCode

WATCHES_PER_TURN: Final = 10
"""Watches that begin in one turn of the event loop."""
PROGRESS_SECONDS: Final = 5.0
"""A client learns its position this often, so that retention does not overtake one whose keys seldom change."""
ITEM_BYTES_MAX: Final = 128 << 10
"""The changes of one batch are sent in parts of this size, each in a turn."""
CHANGE_BYTES: Final = 100
"""A change counts as this many bytes besides its key and its value."""
PARTS_AT_ONCE: Final = 50
"""A connection with a transaction of more operations and comparisons is read again once that is decided."""
SENT_AT_ONCE: Final = 100
"""If those of a watch are among more changes of a batch, one watch at a time is sent them."""
SCANNED_AT_ONCE: Final = 50
"""Entries of a page between two looks at the clock."""
SCAN_SECONDS: Final = 0.005
"""The time of one page."""
ANSWER_BYTES_MAX: Final = 8 << 20
"""The answers of one transaction are no larger."""


class TableMethods:
    """The methods on tables."""

    def __init__(
        self,
        access: NativeAccess,
        targets: WriteTargets,
        shadows: ShadowReads,
        lease_lives: Callable[[], bool],
        clock: Clock,
        tasks: Tasks,
    ) -> None:
        self._access = access
        self._targets = targets
        self._shadows = shadows
        self._lease_lives = lease_lives
        self._clock = clock
        self._tasks = tasks
        self._paced_tasks = PacedTasks(tasks, WATCHES_PER_TURN, clock)
        self._watch_in_task = in_translated_task(self._paced_tasks, self._watch)

    def methods(self) -> Mapping[str, Method]:
        """The methods by name."""
        return {
            "table_write": self._write,
            "table_get": self._get,
            "table_scan": self._scan,
            "table_count": self._count,
            "table_watch": self._begin_watch,
        }

    def _write(self, call: Call) -> None:
        """Does a transaction; answered with whether its comparisons held, and the answers of its operations."""
        place, transaction = write_args(call.args)
        question = self._access.question(NativeMethod.TABLE_WRITE, call.peer)
        question.check(Operation.WRITE, topic(place.topic))
        question.check(Operation.READ, topic(place.topic))
        partition, table = hosted_table(self._targets, place)
        is_wide = transaction.parts > PARTS_AT_ONCE

        def ready(reason: str | None) -> None:
            if reason is None:
                callback = _TableCall(call, transaction, table, self._tasks)
                partition.append(memoryview(b""), callback, None, Terms(operation=transaction), by_all=True)
            else:
                call.fail(NotTaken(reason))
            if is_wide:  # the calls after this one are handled from here on
                call.hold_up(False)

        async def look_up_first() -> None:
            await table.look_up(transaction.keys)
            table.reads.when_live(ready)

        if is_wide:
            call.hold_up(True)
            self._tasks.start_soon(look_up_first)
        else:
            table.reads.when_live(ready)

    def _get(self, call: Call) -> None:
        """Answers with the end and the age of what is applied, and with the stored entry of a key, if it has one."""
        place, key, stale = get_args(call.args)
        self._check_read(NativeMethod.TABLE_GET, call, place)

        def look(state: TableState) -> None:
            call.reply([state.applied, _age_ms(state, self._clock)], state.engine.get(key) or b"")

        self._read(call, place, look, stale=stale)

    def _scan(self, call: Call) -> None:
        """Answers with the end and the age of what is applied, whether more keys follow, and keys and entries."""
        place, keys, limit, keys_only, stale = scan_args(call.args)
        self._check_read(NativeMethod.TABLE_SCAN, call, place)
        look = partial(_page, call, keys, limit, keys_only, self._clock)
        self._read(call, place, look, stale=stale)

    def _count(self, call: Call) -> None:
        """Answers with the number of keys."""
        place, keys, stale = count_args(call.args)
        self._check_read(NativeMethod.TABLE_COUNT, call, place)
        self._count_on(call, place, keys, 0, stale=stale)

    def _count_on(self, call: Call, place: TablePlace, keys: KeyRange, counted: int, *, stale: bool) -> None:
        """Counts more keys, after `counted` of them, a part in each turn."""

        def look(state: TableState) -> None:  # a later part shows at least what the first one has shown
            if call.over:  # the client is gone
                return
            number, rest = state.engine.count(*keys)
            if rest is None:
                call.answer(counted + number)
            else:
                self._count_on(call, place, KeyRange(rest, keys.end), counted + number, stale=True)

        self._read(call, place, look, stale=stale)

    def _begin_watch(self, call: Call) -> None:
        """Begins a watch; a few of those of a lost connection end in each turn."""
        self._watch_in_task(call)
        cancel = call.cancelled
        assert cancel is not None, "a call in a task can be cancelled"

        async def end() -> None:
            cancel()

        call.cancelled = lambda: self._paced_tasks.start_soon(end)

    async def _watch(self, call: Call) -> None:
        """Streams the changes of a prefix from a revision on: their end, and of each revision, key, value and expiry.

        The changes of a batch arrive together: an item whose end is None is continued by the next one.
        """
        place, prefix, revision = watch_args(call.args)
        self._check_read(NativeMethod.TABLE_WATCH, call, place)
        _, table = hosted_table(self._targets, place)
        await _confirm_reach(table, revision)
        watch = KeyWatch(prefix, revision)
        table.watches.add(watch)
        try:
            await self._follow(call, table, watch)
        finally:
            table.watches.remove(watch)

    async def _follow(self, call: Call, table: HostedTable, watch: KeyWatch) -> None:
        call.item([watch.position, []])
        sent = watch.position
        while True:
            await call.room()
            watch.reads()
            kept = table.watches.kept_for(watch)
            if kept is not None and kept.end - kept.first <= SENT_AT_ONCE:
                sent = await _send(call, watch, [kept]) or sent
                continue
            async with table.watches.reading:
                if not call.has_room:
                    continue
                spans = await _read(table, watch) if kept is None else [kept]
                sent = await _send(call, watch, spans) or sent
            if spans:
                continue
            if watch.is_over or not table.has_log:
                raise NotLeader("another broker leads the partition from now on")
            if await table.watches.wait(watch, PROGRESS_SECONDS) and not self._lease_lives():
                raise NotLeader(NOT_CONFIRMED)
            if watch.position > sent:
                sent = watch.position
                call.item([sent, []])

    def _check_read(self, method: NativeMethod, call: Call, place: TablePlace) -> None:
        self._access.question(method, call.peer).check(Operation.READ, topic(place.topic))

    def _read(self, call: Call, place: TablePlace, look: Any, *, stale: bool) -> None:
        def refuse(reason: str) -> None:
            call.fail(Unavailable(reason))

        self._targets.check_topic(place.topic, place.topic_id)
        if self._shadows.is_shadow(place.topic):
            self._shadows.read(place, look, refuse, stale=stale)
            return
        _, table = hosted_table(self._targets, place)
        table.reads.read(look, refuse, stale=stale)


async def _confirm_reach(table: HostedTable, revision: int) -> None:
    """Checks that a watch does not begin beyond the next revision.

    Raises:
        InvalidCall: it does.
        Unavailable: the table is not loaded, or this broker knows of no such revision and may not lead any more.
    """
    try:
        following = await _next_revision(table, stale=False)
    except Unavailable:
        if revision > await _next_revision(table, stale=True):
            raise
    else:
        if revision > following:
            raise InvalidCall(f"revision {revision} is in the future: the next one is {following}")


async def _next_revision(table: HostedTable, *, stale: bool) -> Offset:
    answered = trio.Event()
    found: list[Offset] = []
    reasons: list[str] = []

    def look(state: TableState) -> None:
        found.append(state.applied)
        answered.set()

    def refuse(reason: str) -> None:
        reasons.append(reason)
        answered.set()

    table.reads.read(look, refuse, stale=stale)
    await answered.wait()
    if reasons:
        raise Unavailable(reasons[0])
    return found[0]


async def _read(table: HostedTable, watch: KeyWatch) -> Sequence[BatchSpan]:
    try:
        batches = await table.log.changes_from(watch.position)
        return [BatchSpan(batch, 0, len(batch.changes)) for batch in batches]
    except (LedgerError, LogUnreadable) as error:
        raise Unavailable(str(error)) from error


async def _send(call: Call, watch: KeyWatch, spans: Sequence[BatchSpan]) -> Offset | None:
    """Sends the changes that a watch wants; returns the end of the last batch with some.

    It stops where the client takes no more, also within a batch, which is read again then: a client that is sent more
    ends its connection.
    """
    sent = None
    for span in spans:
        for number, item in enumerate(items_of(span, watch)):
            if number < watch.items_sent:
                continue
            if not call.has_room:
                return sent
            call.item(item)
            watch.items_sent = number + 1
            sent = span.batch.next_offset
            await trio.lowlevel.checkpoint()
        watch.position = span.batch.next_offset
        watch.items_sent = 0
    await trio.lowlevel.checkpoint()
    return sent


def items_of(span: BatchSpan, watch: KeyWatch) -> Iterator[list[Any]]:
    """The items of a stream with the changes of one batch that a watch wants; none if it wants none of them."""
    batch, first, end = span
    wanted: list[list[Any]] = []
    size_bytes, is_any = 0, False
    for revision, (key, value, _, _, is_expiry) in enumerate(batch.changes[first:end], batch.base_offset + first):
        if revision >= watch.first and key.startswith(watch.prefix):
            wanted.append([revision, key, value, is_expiry])
            is_any = True
            size_bytes += CHANGE_BYTES + len(key) + len(value or b"")
            if size_bytes >= ITEM_BYTES_MAX:
                yield [None, wanted]
                wanted, size_bytes = [], 0
    if is_any:
        yield [batch.next_offset, wanted]


def _page(call: Call, keys: KeyRange, limit: int, keys_only: bool, clock: Clock, state: TableState) -> None:
    """Answers with a page, which ends early if it takes long, as it does where entries are not in memory."""
    found: list[bytes] = []
    size_bytes, more, until = 0, False, clock.monotonic() + SCAN_SECONDS
    with closing(state.engine.scan(*keys)) as entries:
        for number, (key, packed) in enumerate(entries):
            if number == limit or size_bytes >= SCAN_BYTES_MAX or _is_over(number, until, clock):
                more = True
                break
            found.append(key)
            size_bytes += len(key)
            if not keys_only:
                found.append(packed)
                size_bytes += len(packed)
    call.reply([state.applied, _age_ms(state, clock), more], msgpack.packb(found))


def _age_ms(state: TableState, clock: Clock) -> int:
    """The milliseconds since this broker's last news of the log."""
    return int((clock.monotonic() - state.news_at) * 1_000)


def _is_over(number: int, until: float, clock: Clock) -> bool:
    """Whether the time of a page is over, after `number` entries."""
    return number > 0 and not number % SCANNED_AT_ONCE and clock.monotonic() >= until


class _TableCall(BrokerItself):
    """One `table_write` until it is answered: the callback of its append."""

    def __init__(self, call: Call, transaction: Transaction, table: HostedTable, tasks: Tasks) -> None:
        self._call = call
        self._transaction = transaction
        self._table = table
        self._tasks = tasks

    def client_of(self, slot: object) -> BrokerItself:
        """See `AppendCallback.client_of`: the batch of a transaction is never unpacked."""
        return self

    def appended(self, slot: object, outcome: Produced) -> None:
        """See `AppendCallback.appended`."""
        transaction = self._transaction
        if outcome.error != ErrorCode.NONE:
            self._call.fail(append_failure(outcome.error, outcome.text or outcome.error.name))
        elif transaction.failure is not None:
            self._call.fail(InvalidCall(transaction.failure))
        elif transaction.answers is None:
            self._tasks.start_soon(self._answer_from_log, outcome.base_offset)
        else:
            self._answer(transaction.answers)

    def _answer(self, answers: list[Any]) -> None:
        encoded: bytes = msgpack.packb(answers)
        if len(encoded) > ANSWER_BYTES_MAX:
            self._call.fail(
                OutcomeUnknown(
                    f"the answers have {len(encoded)} bytes, more than {ANSWER_BYTES_MAX}: what was to be"
                    " written is written; read fewer keys at a time"
                )
            )
            return
        self._call.reply(self._transaction.succeeded, encoded)

    async def _answer_from_log(self, base_offset: int) -> None:
        try:
            changes = await self._table.log.changes_at(base_offset)
        except (LedgerError, LogUnreadable) as error:
            self._call.fail(Unavailable(f"it was done, and its answer cannot be read now: {error}"))
            return
        except Compacted:
            self._call.fail(OutcomeUnknown(f"it was done at revision {base_offset}, and its record is trimmed"))
            return
        if any(isinstance(operation, GetKey) for operation in self._transaction.operations):
            self._call.fail(
                OutcomeUnknown(
                    f"the transaction was done at revision {base_offset}; what it read is not known any more"
                )
            )
            return
        self._answer(answers_of(self._transaction, changes, base_offset))


def answers_of(transaction: Transaction, changes: list[KeyChange], base_offset: int) -> list[Any]:
    """The answers of a transaction without reads, from the changes that its batch has made."""
    written = {change.key: (base_offset + number, change) for number, change in enumerate(changes)}
    answers: list[Any] = []
    for operation in transaction.operations:
        revision, change = written.get(operation.key, (NO_REVISION, None))
        if isinstance(operation, IncrementKey) and change is not None:
            answers.append([revision, int(change.value or b"")])
        else:
            answers.append(revision)
    return answers
