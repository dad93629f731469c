"""Bugs in subscriptions and in their native clients; the sweep over subscribed topics looks for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio
from broker_scenario import GROWING, KEY_SHARED, KILLED_QUOTAS_SCENARIO, OWNERS, SUBSCRIBED
from native_scenario import CANCELLED, SEEKING, SEEKING_CLUSTER

from gnomon.bookie.ledgers import followed_ledger
from gnomon.broker.subscriptions import hosted_partition
from gnomon.broker.subscriptions.cursor import Cursor
from gnomon.broker.subscriptions.dispatcher import Dispatcher
from gnomon.broker.subscriptions.key_slots import KeySlots
from gnomon.broker.subscriptions.positions import metadata_store
from gnomon.broker.subscriptions.positions.hold import Holder
from gnomon.broker.subscriptions.positions.metadata_store import MetadataSubscriptionsStore
from gnomon.broker.subscriptions.positions.record import SubscriberRecord
from gnomon.broker.subscriptions.positions.record_changes import Conflict
from gnomon.broker.subscriptions.rounds import Rounds
from gnomon.broker.subscriptions.subscription import Subscription
from gnomon.broker.topics import topic_admin
from gnomon.client.attachments import Attachments
from gnomon.client.client import NativeClient
from gnomon.client.consumer import Consumer
from gnomon.client.part import Part
from gnomon.log.entry import Offset
from gnomon.log.topic import topic_key
from gnomon.metadata.client import Compare, KeyField

from planted.planted_bug import ScenarioBugs

SUBSCRIPTION_BUGS = ScenarioBugs(SUBSCRIBED)
planted = SUBSCRIPTION_BUGS.planted


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
    "a position is one too far",
    breaks="broker.subscriptions.positions.store, Position",
    quick=True,
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
