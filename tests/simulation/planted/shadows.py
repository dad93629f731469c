"""Bugs in shadows and in subscriptions; the sweep over clusters with shadows looks for them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from broker_scenario import KEPT_LESS, KEY_SHARED, OWNERS, ROLLING, SHADOWED_SCENARIO, SUBSCRIBED, Scenario

from gnomon.bookie.errors import LedgerError
from gnomon.bookie.ledger import claim_ledger
from gnomon.bookie.record import LEDGERS, ledger_key
from gnomon.broker.partition.chain import ledgers_prefix
from gnomon.broker.partition.entry import Offset
from gnomon.broker.shadow.cursors import ReplicatorCursors
from gnomon.broker.shadow.image import SourceImage
from gnomon.broker.shadow.partition import ShadowPartition
from gnomon.broker.subscriptions import hold, metadata_store
from gnomon.broker.subscriptions.dispatcher import Dispatcher
from gnomon.broker.subscriptions.hosted_partition import HostedPartition
from gnomon.broker.subscriptions.key_slots import KeySlots
from gnomon.broker.subscriptions.metadata_store import MetadataSubscriptionsStore
from gnomon.broker.subscriptions.reading import LogPositions
from gnomon.broker.subscriptions.record import SubscriberRecord
from gnomon.broker.subscriptions.record_changes import Conflict
from gnomon.broker.subscriptions.store import deletion_of_subscriptions
from gnomon.broker.subscriptions.subscription import Subscription
from gnomon.broker.topic_admin import TopicAdmin
from gnomon.metadata.client import DeletePrefix, MetadataError, Revision
from gnomon.metadata.follower import Follower
from gnomon.runtime.world import WorldError

from planted.clusters import ClusterBug
from planted.planted_bug import Plant

SHADOW_BUGS: list[ClusterBug] = []
MISSED_REVISIONS = 20


def planted(
    name: str, *, breaks: str, quick: bool = False, scenario: Scenario = SHADOWED_SCENARIO
) -> Callable[[Plant], Plant]:
    """Lists a bug; the function decorated patches the product."""

    def decorate(plant: Plant) -> Plant:
        SHADOW_BUGS.append(ClusterBug(name, breaks, plant, quick, None, "", scenario))
        return plant

    return decorate


# --- shadows ---


@planted("a shadow that opens claims its source's last ledger", breaks="broker.shadow.partition 1", quick=True)
def opens_by_claiming(patch: pytest.MonkeyPatch) -> None:
    show_and_follow = ShadowPartition._show_and_follow

    async def claiming(shadow: Any) -> None:
        last = shadow._image.last
        if last is not None and not last.record.sealed:
            with suppress(LedgerError, MetadataError, WorldError):
                await claim_ledger(shadow._metadata, shadow._bookies, last.stored)
        await show_and_follow(shadow)

    patch.setattr(ShadowPartition, "_show_and_follow", claiming)


@planted("a shadow takes what is stored for confirmed", breaks="broker.shadow.image 2")
def stored_is_confirmed(patch: pytest.MonkeyPatch) -> None:
    hear = ShadowPartition._hear

    async def believing(shadow: Any) -> None:
        await hear(shadow)
        if shadow.segments and not shadow.segments[-1].ledger.record.sealed:
            ledger = shadow.segments[-1].ledger
            with suppress(LedgerError, MetadataError, WorldError):
                end = await ledger.last_stored()
                if end is not None:
                    ledger.take_confirmed(end)

    patch.setattr(ShadowPartition, "_hear", believing)


@planted("a shadow's high watermark is ahead of what can be read", breaks="broker.shadow.image 2", quick=True)
def high_watermark_ahead(patch: pytest.MonkeyPatch) -> None:
    confirmed = SourceImage.confirmed

    def ahead(image: Any, segment: Any, header: Any) -> bool:
        batch = header.next_offset - header.base_offset
        return confirmed(image, segment, header._replace(next_offset=Offset(header.next_offset + batch)))

    patch.setattr(SourceImage, "confirmed", ahead)


@planted("an id is taken of a segment that is not known yet", breaks="broker.shadow.image 5", scenario=ROLLING)
def unknown_segment_taken(patch: pytest.MonkeyPatch) -> None:
    take = ShadowPartition._take

    def believing(shadow: Any, told: Any) -> None:
        last = shadow._image.last
        take(shadow, told)
        if (last is None or told.segment > last.base_offset) and told.next_offset is not None:
            shadow._image.high_watermark = max(shadow._image.high_watermark, told.next_offset)
            shadow._changed()

    patch.setattr(ShadowPartition, "_take", believing)


@planted("the source's ledgers are deleted with its shadow", breaks="broker.shadow.cast 4")
def deleted_with_shadow(patch: pytest.MonkeyPatch) -> None:
    def kept_of(admin: Any, topic: Any) -> Any:
        owner = topic.id if topic.source is None else topic.source.id
        return [DeletePrefix(ledger_key(ledgers_prefix(owner))), *deletion_of_subscriptions(topic.id)]

    patch.setattr(TopicAdmin, "_kept_of", kept_of)


@planted("changes of a source are missed while a shadow opens", breaks="broker.shadow.source 2", scenario=ROLLING)
def changes_missed(patch: pytest.MonkeyPatch) -> None:
    load = Follower.load

    async def late(follower: Any) -> None:
        await load(follower)
        if follower._prefix.startswith(LEDGERS):
            follower.revision = Revision(follower.revision + MISSED_REVISIONS)

    patch.setattr(Follower, "load", late)


@planted("how far a shadow was told is not stored", breaks="broker.shadow.replicator 4")
def cursor_not_stored(patch: pytest.MonkeyPatch) -> None:
    async def lying(cursors: Any, group: Any) -> None:
        for told in group:
            cursors._stored[told.shadow.id, told.index] = told.outbox.cursor

    patch.setattr(ReplicatorCursors, "_flush_one", lying)


@planted("a trim ignores what subscriptions of shadows have not read", breaks="broker.retention", scenario=KEPT_LESS)
def shadows_do_not_hold(patch: pytest.MonkeyPatch) -> None:
    async def none_of_them(metadata: Any, source: Any, names: Any) -> list[Any]:
        return []

    patch.setattr(hold, "living_shadows", none_of_them)


@planted(
    "a cursor of a shadow skips records that a truncate left there",
    breaks="broker.subscriptions.hosted_partition 4",
    scenario=KEPT_LESS,
)
def skips_on_truncate(patch: pytest.MonkeyPatch) -> None:
    pump, trimmed = HostedPartition.pump, Dispatcher.trimmed
    shadows: list[Any] = []

    def of_whom(hosted: Any) -> None:
        if isinstance(hosted.partition, ShadowPartition):
            shadows.append(hosted.dispatcher)
        pump(hosted)
        shadows.clear()

    def to_the_end(dispatcher: Any, start: Offset) -> Any:
        left_behind = any(each.cursor.mark_delete < start for each in dispatcher.subscriptions.values())
        return trimmed(dispatcher, dispatcher.end if left_behind and dispatcher in shadows else start)

    patch.setattr(HostedPartition, "pump", of_whom)
    patch.setattr(Dispatcher, "trimmed", to_the_end)


# --- subscriptions ---


@planted("a position is one too far", breaks="broker.subscriptions.reading, offset_of", quick=True, scenario=SUBSCRIBED)
def position_too_far(patch: pytest.MonkeyPatch) -> None:
    offset_of = LogPositions.offset_of

    async def too_far(positions: Any, dlsn: Any) -> Offset:
        return Offset(min(await offset_of(positions, dlsn) + 1, positions.bounds.high_watermark))

    patch.setattr(LogPositions, "offset_of", too_far)


@planted(
    "positions are said to be stored before they are",
    breaks="broker.subscriptions.store",
    scenario=SUBSCRIBED,
)
def stored_later(patch: pytest.MonkeyPatch) -> None:
    advance_many = MetadataSubscriptionsStore.advance_many
    late: dict[Any, Any] = {}

    async def with_the_next(store: Any, positions: Any) -> tuple[str, ...]:
        before, late[store] = late.get(store), positions
        return await advance_many(store, before) if before else ()

    patch.setattr(MetadataSubscriptionsStore, "advance_many", with_the_next)


@planted(
    "an old owner's position overwrites a newer one",
    breaks="broker.subscriptions.record_changes 1",
    scenario=OWNERS,
)
def overwritten(patch: pytest.MonkeyPatch) -> None:
    def whatever_stands_there(positions: Any) -> Any:
        def put(name: str, held: Any) -> SubscriberRecord:
            segment, resets = (None, 0) if held is None else (held.segment_id, held.resets)
            return SubscriberRecord(name, positions[name], segment, resets)

        return put

    patch.setattr(metadata_store, "advance", whatever_stands_there)
    patch.setattr(metadata_store, "meet_advance", lambda wanted, before, after: Conflict.JUDGE_AGAIN)


@planted(
    "what a consumer had is forgotten when it goes",
    breaks="broker.subscriptions.dispatcher, detach",
    scenario=SUBSCRIBED,
)
def not_given_again(patch: pytest.MonkeyPatch) -> None:
    detach, give_again = Dispatcher.detach, Subscription.give_again
    going: list[Any] = []

    def forgetting(dispatcher: Any, consumer: Any) -> None:
        going.append(consumer)
        detach(dispatcher, consumer)
        going.clear()

    def unless_it_goes(subscription: Any, runs: Any) -> None:
        if not going:
            give_again(subscription, runs)

    patch.setattr(Subscription, "give_again", unless_it_goes)
    patch.setattr(Dispatcher, "detach", forgetting)


@planted(
    "a slot of keys moves while records of it are not acknowledged",
    breaks="broker.subscriptions.key_slots 2",
    scenario=KEY_SHARED,
)
def keys_overtake(patch: pytest.MonkeyPatch) -> None:
    def whoever_owns_it(slots: Any, slot: int) -> Any:
        owner = slots._owners[slot]
        return owner if owner.takes else None

    patch.setattr(KeySlots, "_taker", whoever_owns_it)
