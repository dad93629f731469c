"""Bugs in shadows; the sweep over clusters with shadows looks for them."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from broker_scenario import (
    GROWING,
    GROWING_UNHEARD,
    KEPT_LESS,
    ROLLING,
    SHADOWED_SCENARIO,
)

from gnomon.bookie.errors import LedgerError
from gnomon.bookie.ledgers.catalog import claim_ledger
from gnomon.bookie.record import LEDGERS, ledger_key
from gnomon.broker.replication.cursors import ReplicatorCursors
from gnomon.broker.shadow.image import SourceImage
from gnomon.broker.shadow.partition import ShadowPartition
from gnomon.broker.subscriptions.dispatcher import Dispatcher
from gnomon.broker.subscriptions.hosted_partition import HostedPartition
from gnomon.broker.subscriptions.positions import hold
from gnomon.broker.topics import cast, topic_admin, topic_creation
from gnomon.broker.topics.topic_image import TopicImage
from gnomon.log.chains import ledgers_prefix
from gnomon.log.entry import Offset
from gnomon.log.topic import shadows_key
from gnomon.metadata.client import Compare, DeletePrefix, KeyField, MetadataError, Revision
from gnomon.metadata.follower import Follower
from gnomon.runtime.world import WorldError

from planted.planted_bug import ScenarioBugs

MISSED_REVISIONS = 20
SHADOW_BUGS = ScenarioBugs(SHADOWED_SCENARIO)
planted = SHADOW_BUGS.planted


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
