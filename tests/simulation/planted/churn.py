"""Bugs in permits, growth and deletions of subscriptions; the sweeps over churned subscriptions look for them."""

from __future__ import annotations

from typing import Any

import pytest
from native_scenario import CHURNING

from gnomon.broker.native.subscription_admin import SubscriptionAdmin
from gnomon.broker.subscriptions.dispatcher import Dispatcher
from gnomon.client.ack_sender import AckSender
from gnomon.client.consumer import Consumer

from planted.planted_bug import ScenarioBugs

CHURN_BUGS = ScenarioBugs(CHURNING)
planted = CHURN_BUGS.planted


@planted("permits are sent once three of them are owed", breaks="client.consumer 4", quick=True)
def few_permits_kept(patch: pytest.MonkeyPatch) -> None:
    permits_due = AckSender.permits_due

    def late(acks: Any, part: Any) -> None:
        if part.owed >= 3:
            permits_due(acks, part)

    patch.setattr(AckSender, "permits_due", late)


@planted("permits granted before the earlier ones are used up are lost", breaks="broker.subscriptions.dispatcher, flow")
def early_permits_lost(patch: pytest.MonkeyPatch) -> None:
    flow = Dispatcher.flow

    def forgetful(dispatcher: Any, consumer: Any, permits: int) -> None:
        flow(dispatcher, consumer, permits if consumer.permits <= 0 else 0)

    patch.setattr(Dispatcher, "flow", forgetful)


@planted("a consumer never reads the partitions that its topic has grown by", breaks="client.client, REFRESH_SECONDS")
def growth_ignored(patch: pytest.MonkeyPatch) -> None:
    grow = Consumer.grow

    def once(consumer: Any, partitions: int, initial_position: str) -> None:
        grow(consumer, len(consumer.parts) or partitions, initial_position)

    patch.setattr(Consumer, "grow", once)


@planted("a deleted subscription keeps its position", quick=True, breaks="broker.native.subscription_admin, delete")
def position_kept(patch: pytest.MonkeyPatch) -> None:
    delete = SubscriptionAdmin.delete

    async def checked_only(admin: Any, name: str, index: int, subscriber: str, client: str, really: bool) -> None:
        await delete(admin, name, index, subscriber, client, False)

    patch.setattr(SubscriptionAdmin, "delete", checked_only)
