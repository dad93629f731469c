"""Bugs in shadows and in subscriptions; the sweep over clusters with shadows looks for them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
import trio
from broker_scenario import (
    GROWING,
    GROWING_UNHEARD,
    KEPT_LESS,
    KEY_SHARED,
    KILLED_QUOTAS_SCENARIO,
    OWNERS,
    ROLLING,
    SHADOWED_SCENARIO,
    SUBSCRIBED,
)
from native_scenario import CANCELLED, SEEKING, SEEKING_CLUSTER

from gnomon.bookie.errors import LedgerError
from gnomon.bookie.ledgers import followed_ledger
from gnomon.bookie.ledgers.catalog import claim_ledger
from gnomon.bookie.record import LEDGERS, ledger_key
from gnomon.broker.replication.cursors import ReplicatorCursors
from gnomon.broker.shadow.image import SourceImage
from gnomon.broker.shadow.partition import ShadowPartition
from gnomon.broker.subscriptions import hosted_partition
from gnomon.broker.subscriptions.cursor import Cursor
from gnomon.broker.subscriptions.dispatcher import Dispatcher
from gnomon.broker.subscriptions.hosted_partition import HostedPartition
from gnomon.broker.subscriptions.key_slots import KeySlots
from gnomon.broker.subscriptions.positions import hold, metadata_store
from gnomon.broker.subscriptions.positions.hold import Holder
from gnomon.broker.subscriptions.positions.metadata_store import MetadataSubscriptionsStore
from gnomon.broker.subscriptions.positions.record import SubscriberRecord
from gnomon.broker.subscriptions.positions.record_changes import Conflict
from gnomon.broker.subscriptions.rounds import Rounds
from gnomon.broker.subscriptions.subscription import Subscription
from gnomon.broker.topics import cast, topic_admin, topic_creation
from gnomon.broker.topics.topic_image import TopicImage
from gnomon.client.attachments import Attachments
from gnomon.client.client import NativeClient
from gnomon.client.consumer import Consumer
from gnomon.client.part import Part
from gnomon.log.chains import ledgers_prefix
from gnomon.log.entry import Offset
from gnomon.log.topic import shadows_key, topic_key
from gnomon.metadata.client import Compare, DeletePrefix, KeyField, MetadataError, Revision
from gnomon.metadata.follower import Follower
from gnomon.runtime.world import WorldError

from planted.planted_bug import ScenarioBugs

MISSED_REVISIONS = 20
SHADOW_BUGS = ScenarioBugs(SHADOWED_SCENARIO)
planted = SHADOW_BUGS.planted


# --- shadows ---


@planted("a shadow that opens claims its source's last ledger", breaks="broker.shadow.partition 1", quick=True)
def opens_by_claiming(patch: pytest.MonkeyPatch) -> None:
    refresh_tail = ShadowPartition.refresh_tail

    async def claiming(shadow: Any) -> None:
        last = shadow._image.last
        if last is not None and not last.record.sealed:
            with suppress(LedgerError, MetadataError, WorldError):
                await claim_ledger(shadow._metadata, shadow._bookies, last.stored)
        await refresh_tail(shadow)

    patch.setattr(ShadowPartition, "refresh_tail", claiming)


@planted("a shadow takes stored entries for confirmed", breaks="log.chain_image 2")
def stored_is_confirmed(patch: pytest.MonkeyPatch) -> None:
    refresh_tail = ShadowPartition.refresh_tail

    async def believing(shadow: Any) -> None:
        await refresh_tail(shadow)
        if shadow.segments and not shadow.segments[-1].ledger.record.sealed:
            ledger = shadow.segments[-1].ledger
            with suppress(LedgerError, MetadataError, WorldError):
                end = await ledger.last_stored()
                if end is not None:
                    ledger.take_confirmed(end)

    patch.setattr(ShadowPartition, "refresh_tail", believing)


@planted("a shadow's high watermark is ahead of the readable entries", breaks="log.chain_image 2", quick=True)
def high_watermark_ahead(patch: pytest.MonkeyPatch) -> None:
    confirmed = SourceImage.confirmed

    def ahead(image: Any, segment: Any, header: Any) -> bool:
        batch = header.next_offset - header.base_offset
        return confirmed(image, segment, header._replace(next_offset=Offset(header.next_offset + batch)))

    patch.setattr(SourceImage, "confirmed", ahead)


@planted("an id is taken of a segment that is not known yet", breaks="broker.shadow.image 1", scenario=ROLLING)
def unknown_segment_taken(patch: pytest.MonkeyPatch) -> None:
    replicated = ShadowPartition.replicated

    def believing(shadow: Any, entry: Any) -> None:
        image = shadow.log
        unknown = image is not None and (image.last is None or entry.segment > image.last.base_offset)
        replicated(shadow, entry)
        if unknown and entry.next_offset is not None:
            image.high_watermark = max(image.high_watermark, entry.next_offset)
            shadow.notify_change()

    patch.setattr(ShadowPartition, "replicated", believing)


@planted("the source's ledgers are deleted with its shadow", breaks="broker.topics.cast 4")
def deleted_with_shadow(patch: pytest.MonkeyPatch) -> None:
    delete = cast.deletion

    async def with_its_source(metadata: Any, topics: Any, image: Any, topic: Any) -> Any:
        change = await delete(metadata, topics, image, topic)
        if topic.source is None:
            return change
        ledgers = DeletePrefix(ledger_key(ledgers_prefix(topic.source.id)))
        return change._replace(operations=[*change.operations, ledgers])

    patch.setattr(topic_admin, "deletion", with_its_source)


@planted("a shadow keeps the partitions that it was cast with", breaks="broker.topics 5", scenario=GROWING)
def does_not_grow(patch: pytest.MonkeyPatch) -> None:
    completed = TopicImage.completed

    def once(image: Any, topic: Any) -> Any:
        return topic if topic.source is not None and topic.partitions else completed(image, topic)

    patch.setattr(TopicImage, "completed", once)


@planted("a shadow is cast of a source that was deleted", breaks="broker.topics.cast 1", scenario=GROWING_UNHEARD)
def cast_of_the_dead(patch: pytest.MonkeyPatch) -> None:
    create = cast.creation

    async def by_the_image(metadata: Any, topics: Any, image: Any, shadow: Any) -> Any:
        shadow, change = await create(metadata, topics, image, shadow)
        return shadow, change._replace(compares=())

    patch.setattr(topic_creation, "creation", by_the_image)


@planted("a source is deleted while a shadow is cast", breaks="broker.topics.cast 3", scenario=GROWING_UNHEARD)
def deleted_under_a_cast(patch: pytest.MonkeyPatch) -> None:
    delete = cast.deletion

    async def alone(*args: Any) -> Any:
        return (await delete(*args))._replace(compares=())

    patch.setattr(topic_admin, "deletion", alone)


@planted("the shadows of a source are read from an image that lags", breaks="broker.topics 6", scenario=GROWING_UNHEARD)
def known_by_old_news(patch: pytest.MonkeyPatch) -> None:
    async def at_once(metadata: Any, topics: Any, source: Any) -> Compare:
        changed = await metadata.get(shadows_key(source.id))
        return Compare(shadows_key(source.id), KeyField.MOD_REVISION, 0 if changed is None else changed.mod_revision)

    patch.setattr(cast, "shadows_known", at_once)


@planted(
    "a growth misses a subscription that is created meanwhile",
    breaks="broker.subscriptions.positions.growth 2",
    scenario=GROWING,
)
def growth_compares_nothing(patch: pytest.MonkeyPatch) -> None:
    begin = topic_admin.begin_in_new_partitions

    async def whatever_comes(metadata: Any, source: Any, partitions: int) -> Any:
        _, told = await begin(metadata, source, partitions)
        return Compare(topic_key(source.name), KeyField.CREATE_REVISION, source.create_revision), told

    patch.setattr(topic_admin, "begin_in_new_partitions", whatever_comes)


@planted("changes of a source are missed while a shadow opens", breaks="broker.shadow.source 2", scenario=ROLLING)
def changes_missed(patch: pytest.MonkeyPatch) -> None:
    load = Follower.load

    async def late(follower: Any) -> None:
        await load(follower)
        if follower._prefix.startswith(LEDGERS):
            follower.revision = Revision(follower.revision + MISSED_REVISIONS)

    patch.setattr(Follower, "load", late)


@planted("the cursor of a replicator is not stored", breaks="broker.replication.shadow_replication 4")
def cursor_not_stored(patch: pytest.MonkeyPatch) -> None:
    async def lying(cursors: Any, group: Any) -> None:
        for each in group:
            cursors._stored[each.shadow.id, each.index] = each.outbox.cursor

    patch.setattr(ReplicatorCursors, "flush_shadow", lying)


@planted(
    "a trim ignores the unread records of subscriptions of shadows",
    breaks="broker.retention.retention",
    scenario=KEPT_LESS,
)
def shadows_do_not_hold(patch: pytest.MonkeyPatch) -> None:
    read_readers = hold.read_readers

    async def none_of_them(metadata: Any, source_id: Any) -> Any:
        readers = await read_readers(metadata, source_id)
        return {topic_id: name for topic_id, name in readers.items() if topic_id == source_id}

    patch.setattr(hold, "read_readers", none_of_them)


@planted(
    "quotas and retention read the record that lags behind the segment",
    breaks="broker.subscriptions.positions.hold 4",
    quick=True,
    scenario=KILLED_QUOTAS_SCENARIO,
)
def record_alone(patch: pytest.MonkeyPatch) -> None:
    of = Holder.of
    patch.setattr(Holder, "of", classmethod(lambda _, topic, item: of(topic, item)._replace(unread=False)))


@planted(
    "the last position of a segment is not read before another one follows",
    breaks="bookie.followed_ledger, read_last",
    scenario=KILLED_QUOTAS_SCENARIO,
)
def confirmed_alone(patch: pytest.MonkeyPatch) -> None:
    async def no_tail(bookies: Any, ledger: Any, record: Any, first: Any) -> list[Any]:
        return []

    patch.setattr(followed_ledger, "read_durable_tail", no_tail)


@planted(
    "a cursor of a shadow skips records that a truncate has kept",
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


@planted(
    "a position is one too far",
    breaks="broker.subscriptions.positions.store, Position",
    quick=True,
    scenario=SUBSCRIBED,
)
def position_too_far(patch: pytest.MonkeyPatch) -> None:
    add = Dispatcher.add

    def too_far(dispatcher: Any, name: str, cursor: Any) -> Any:
        end = max(cursor.mark_delete, dispatcher.end)
        return add(dispatcher, name, Cursor(min(Offset(cursor.mark_delete + 1), end), cursor.ranges))

    patch.setattr(Dispatcher, "add", too_far)


@planted(
    "positions are reported as stored before they are",
    breaks="broker.subscriptions.positions.store",
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
    breaks="broker.subscriptions.positions.record_changes 1",
    scenario=OWNERS,
)
def overwritten(patch: pytest.MonkeyPatch) -> None:
    def whatever_stands_there(positions: Any) -> Any:
        def put(name: str, held: Any) -> SubscriberRecord:
            segment, resets = (None, 0) if held is None else (held.segment_id, held.resets)
            return SubscriberRecord(name, positions[name], segment, resets)

        return put

    patch.setattr(metadata_store, "advance", whatever_stands_there)
    patch.setattr(metadata_store, "resolve_advance", lambda wanted, before, after: Conflict.JUDGE_AGAIN)


@planted(
    "the records of a consumer are forgotten when it ends",
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
    patch.setattr(KeySlots, "gone", lambda slots, consumer, start: 0)


@planted(
    "a slot of keys moves while records of it are not acknowledged",
    breaks="broker.subscriptions.key_slots 2",
    scenario=KEY_SHARED,
)
def keys_overtake(patch: pytest.MonkeyPatch) -> None:
    def whoever_owns_it(slots: Any, slot: int) -> Any:
        if not slots._shared_out:
            slots._own()
        owner = slots._owners[slot]
        return owner if owner.takes else None

    patch.setattr(KeySlots, "taker", whoever_owns_it)


@planted(
    "a batch that is searched in slices forgets its place",
    breaks="broker.subscriptions.subscription 2",
    scenario=KEY_SHARED,
    quick=True,
)
def place_in_batch_forgotten(patch: pytest.MonkeyPatch) -> None:
    read_slice = Dispatcher.read_slice

    def forgetting(dispatcher: Any, subscription: Any, keys: Any, end: Any, look: Any) -> bool:
        whole = read_slice(dispatcher, subscription, keys, end, look)
        subscription.position = Offset(max(subscription.position, keys.looks_to))
        return whole

    patch.setattr(Dispatcher, "read_slice", forgetting)


@planted(
    "a stretch is given to a consumer that has ended meanwhile",
    breaks="broker.subscriptions.key_slots 1",
    scenario=KEY_SHARED,
    quick=True,
)
def given_to_gone(patch: pytest.MonkeyPatch) -> None:
    share_out = KeySlots.share_out

    def once(slots: Any, consumers: Any) -> None:
        if not slots._owners or len(consumers) > len(slots._consumers):
            share_out(slots, consumers)

    patch.setattr(KeySlots, "share_out", once)


@planted(
    "only the first of the postponed work continues",
    breaks="broker.subscriptions.rounds 2",
    scenario=KEY_SHARED,
)
def put_off_and_lost(patch: pytest.MonkeyPatch) -> None:
    put_off = Rounds.put_off

    def one(rounds: Any, work: Any) -> None:
        if len(rounds._waiting) < 2:
            put_off(rounds, work)

    patch.setattr(Rounds, "put_off", one)


# --- seeks of native clients, and cancelled calls ---


@planted("an attachment has the number of the previous one", breaks="client.attachments 3", scenario=SEEKING)
def attached_under_the_same_number(patch: pytest.MonkeyPatch) -> None:
    def begin(part: Any, connection: Any) -> None:
        part.drop()
        part.asked, part.number = connection, part.id
        connection.receivers[part.number] = part

    patch.setattr(Part, "begin", begin)


@planted("a seek leaves the records that wait in the client", breaks="client.consumer 2", scenario=SEEKING_CLUSTER)
def queue_survives_a_seek(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Consumer, "forget", lambda consumer, part: None)


@planted(
    "a cancelled change is stored and not remembered",
    breaks="broker.subscriptions.hosted_partition 3",
    scenario=CANCELLED,
)
def change_is_cut(patch: pytest.MonkeyPatch) -> None:
    async def cut(tasks: Any, lock: trio.Lock, change: Callable[[], Any], refusals: Any) -> Any:
        async with lock:
            return await change()

    patch.setattr(hosted_partition, "finished", cut)


@planted("a close in a cancelled task is not sent", breaks="client.attachments 4", quick=True, scenario=CANCELLED)
def close_is_cut(patch: pytest.MonkeyPatch) -> None:
    close_consumers = NativeClient.close_consumers

    async def cut(client: Any, consumers: Any) -> None:
        await trio.lowlevel.checkpoint()
        await close_consumers(client, consumers)

    patch.setattr(NativeClient, "close_consumers", cut)


@planted("a subscribe that was cancelled stays attached", breaks="client.attachments 4", scenario=CANCELLED)
def cancelled_subscribe_stays(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Attachments, "end", lambda attachments, parts: [])
