"""Checks inside the brokers of a storm that at every moment a shadow is a prefix of its source.

    with shadow_checker(simulation):
        ...

`source_truth` has the rules; this module wraps functions of the product, which has no hooks for it. A finding ends the
simulation.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from typing import Any

from gnomon.bookie.ids import EntryId, LedgerId, SessionId
from gnomon.bookie.ledgers import catalog as ledgers
from gnomon.bookie.ledgers.entry_cache import CachedView
from gnomon.bookie.ledgers.ledger import Ledger
from gnomon.bookie.ledgers.local_view import LocalView
from gnomon.broker.partition.chain import Chain
from gnomon.broker.shadow.image import SourceImage
from gnomon.broker.shadow.partition import ShadowPartition
from gnomon.broker.shadow.source import SourceLedgers
from gnomon.metadata.client import KeyValue, Operation, TxnOutcome
from gnomon.metadata.state import State
from gnomon.testing.simulation.simulation import Simulation
from gnomon.testing.storms.patches import Patches, follow_transactions
from gnomon.testing.storms.shadows.source_truth import TOPIC_LEDGERS, SourceTruth, standing

_by_shadow: ContextVar[bool] = ContextVar("by_shadow", default=False)
_recovered: ContextVar[EntryId] = ContextVar("recovered")


@contextmanager
def shadow_checker(simulation: Simulation) -> Iterator[None]:
    """Checks during the block."""
    with ExitStack() as stack:
        patch, truth = Patches(stack), SourceTruth(simulation)
        _follow_writers(patch, truth)
        _follow_claims(patch, truth)
        _follow_readers(patch, truth)
        _follow_shadows(patch, truth)
        _follow_changes(patch, truth)
        yield


def _follow_writers(patch: Patches, truth: SourceTruth) -> None:
    def append(before: Callable[..., EntryId]) -> Any:
        def followed(ledger: Ledger, payload: Any, done: Any) -> EntryId:
            entry = before(ledger, payload, done)
            truth.appended(ledger, entry, b"".join(payload))
            return entry

        return followed

    def confirmed_to(before: Callable[..., None]) -> Any:
        def followed(ledger: Ledger, entry: EntryId) -> None:
            truth.confirmed(ledger.id, entry)
            before(ledger, entry)

        return followed

    patch(Ledger, "append", append)
    patch(Ledger, "confirmed_to", confirmed_to)


def _follow_claims(patch: Patches, truth: SourceTruth) -> None:
    def recover(before: Callable[..., Awaitable[Any]]) -> Any:
        async def followed(bookies: Any, ledger_id: LedgerId, name: str, record: Any, session: SessionId) -> Any:
            if name.startswith(TOPIC_LEDGERS):
                _change(truth, "claims", name)
            found = await before(bookies, ledger_id, name, record, session)
            truth.claiming(ledger_id, found.last_entry)
            _recovered.set(found.last_entry)
            return found

        return followed

    def replace_record(before: Callable[..., Awaitable[Any]]) -> Any:
        async def followed(metadata: Any, stored: KeyValue, *others: Any) -> Any:
            ledger, end = LedgerId(stored.create_revision), _recovered.get()
            written = await before(metadata, stored, *others)
            if written is None:
                truth.not_claimed(ledger, end)
            else:
                truth.confirmed(ledger, end)
            return written

        return followed

    patch(ledgers, "recover", recover)
    patch(ledgers, "replace_record", replace_record)


def _follow_readers(patch: Patches, truth: SourceTruth) -> None:
    def payload(before: Callable[..., memoryview]) -> Any:
        def followed(view: Any, entry: EntryId) -> memoryview:
            found = before(view, entry)
            truth.read(view._ledger, entry, found)
            return found

        return followed

    patch(CachedView, "payload", payload)
    patch(LocalView, "payload", payload)


def _follow_shadows(patch: Patches, truth: SourceTruth) -> None:
    def assigned(before: Callable[..., None]) -> Any:
        def followed(image: SourceImage, name: str, value: Any) -> None:
            known = image.__dict__.get(name)
            before(image, name, value)
            shadow = image.__dict__.get("shadow")
            if name == "high_watermark" and shadow is not None and value != known:
                truth.high_watermark_moved(image, shadow, known or 0, value)

        return followed

    def init(before: Callable[..., None]) -> Any:
        def followed(shadow: ShadowPartition, *args: Any) -> None:
            before(shadow, *args)
            shadow._image.__dict__["shadow"] = shadow

        return followed

    def notify_change(before: Callable[..., None]) -> Any:
        def followed(shadow: ShadowPartition) -> None:
            truth.shown(shadow)
            before(shadow)

        return followed

    def join(before: Callable[..., Awaitable[None]]) -> Any:
        async def followed(source: SourceLedgers, partition: int, shadow: Any) -> None:
            _by_shadow.set(True)  # in the task that opens and follows the partition
            truth.opened(shadow)
            await before(source, partition, shadow)

        return followed

    def taken(before: Callable[..., None]) -> Any:
        def followed(image: SourceImage, changes: Any) -> None:
            known = standing(image)
            before(image, changes)
            truth.records_taken(image, known)

        return followed

    patch(SourceImage, "__setattr__", assigned)
    patch(ShadowPartition, "__init__", init)
    patch(ShadowPartition, "notify_change", notify_change)
    patch(SourceLedgers, "join", join)
    patch(SourceImage, "apply", taken)
    patch(SourceImage, "replace", taken)


def _change(truth: SourceTruth, what: str, ledger: str) -> None:
    if _by_shadow.get():
        truth.changed_by_shadow(what, ledger)


def _follow_changes(patch: Patches, truth: SourceTruth) -> None:
    def by_its_owner(before: Callable[..., Awaitable[Any]]) -> Any:
        async def followed(*args: Any, **options: Any) -> Any:
            token = _by_shadow.set(False)  # a shadow may have caused the opening
            try:
                return await before(*args, **options)
            finally:
                _by_shadow.reset(token)

        return followed

    def shrink(before: Callable[..., Awaitable[Any]]) -> Any:
        async def followed(ledger: Ledger, *args: Any, **options: Any) -> Any:
            _change(truth, "shrinks", ledger.name)
            return await before(ledger, *args, **options)

        return followed

    def transaction(then: Sequence[Operation], _: TxnOutcome, state: State) -> None:
        truth.transaction(then, lambda key: state.get(key) is not None)

    patch(Chain, "open", by_its_owner)
    patch(Ledger, "shrink", shrink)
    follow_transactions(patch, transaction)
