from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest
import trio

from gnomon.broker.errors import KafkaError
from gnomon.broker.topics import Topic, topic_key
from gnomon.metadata.client import Compare, Delete, Metadata, Operation, Put, TxnResult
from gnomon.testing.embedded_broker import EmbeddedBroker, simulate_broker
from gnomon.wire.kafka.errors import ErrorCode


class Rival:
    """Metadata in which somebody creates a topic just before this broker does, and perhaps deletes it just after."""

    def __init__(self, broker: EmbeddedBroker, deletes: bool) -> None:
        self._node = broker.serving.broker
        self._inner: Metadata = self._node.metadata
        self._deletes = deletes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def txn(
        self, compare: Sequence[Compare], then: Sequence[Operation], otherwise: Sequence[Operation] = ()
    ) -> TxnResult:
        key = topic_key("t")
        await self._inner.txn([], [Put(key, Topic("t", UUID(int=7), 3, {}).encode())])
        result = await self._inner.txn(compare, then, otherwise)
        if self._deletes:
            await self._node.topics.reached((await self._inner.txn([], [Delete(key)])).revision)
        return result


def test_who_comes_second_in_creating_a_topic_gets_the_first_ones() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        node = broker.serving.broker
        node.metadata = Rival(broker, deletes=False)
        assert (await node.topic_admin.auto_create("t", True)).partitions == 3

    simulate_broker(scenario)


def test_who_comes_second_in_creating_a_topic_that_is_gone_again_does_not_wait_for_it() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        node = broker.serving.broker
        node.metadata = Rival(broker, deletes=True)
        with trio.fail_after(60), pytest.raises(KafkaError) as refused:
            await node.topic_admin.auto_create("t", True)
        assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    simulate_broker(scenario)
