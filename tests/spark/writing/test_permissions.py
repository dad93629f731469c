"""The requests and the permissions of a sink, in the whole life of a writer; docs/spark.md lists both."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest
from sent_requests import SentRequests
from sink_client import SinkClient, rows_of

from gnomon.broker.authorization.operation import Operation, Resource, ResourceType
from gnomon.broker.authorization.session import Session
from gnomon.client.kafka.brokers import KafkaBrokers
from gnomon.client.kafka.errors import RequestRefused
from gnomon.client.kafka.topic_partition import TopicPartition
from gnomon.spark.decisions import BatchVerdict
from gnomon.spark.writing import staging
from gnomon.spark.writing.delivery import DeliveryFailed
from gnomon.spark.writing.writer_topic import WriterTopic
from gnomon.spark.writing.writers import Writers
from gnomon.testing.storms.kafka.embedded_broker import HOST, PORT, EmbeddedBroker, simulate_broker
from gnomon.wire.kafka.api import ApiKey

PAGE = (Path(__file__).parents[3] / "docs" / "spark.md").read_text()
WRITER, TARGET = "__gnomon_sink_w", TopicPartition("others", 0)
NAMES = {"topic `__gnomon_sink_<writer>`": WRITER, "target topics": TARGET.topic, "cluster": "kafka-cluster"}
EXPIRES = {"producer.id.expiration.ms": "60000"}
ROWS = [f"row {number:04}" for number in range(60)]
Permission = tuple[Operation, str]


def documented() -> list[Permission]:
    """The operations of the page, each with the name of its resource."""
    found = []
    for resource, name in NAMES.items():
        (operations,) = re.findall(rf"^\| {re.escape(resource)} \| (.+) \|$", PAGE, re.MULTILINE)
        names = [re.sub(r"(?<!^)(?=[A-Z])", "_", each).upper() for each in operations.split(", ")]
        found += [(Operation[each], name) for each in names]
    return found


class Permitting:
    """An authorizer that allows a set of operations, and notes those that it was asked for and has allowed."""

    revision = 0

    def __init__(self, permitted: list[Permission]) -> None:
        self._permitted = permitted
        self.used: set[Permission] = set()

    def allows(self, session: Session, operation: Operation, resource: Resource) -> bool:
        """See `Authorizer.allows`."""
        allowed = (operation, resource.name) in self._permitted
        if allowed:
            self.used.add((operation, resource.name))
        return allowed

    def allows_any(self, session: Session, operation: Operation, type: ResourceType) -> bool:
        """See `Authorizer.allows_any`."""
        return operation in {each for each, _ in self._permitted} and type is ResourceType.TOPIC


async def life(sink: SinkClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer is made, writes, loses a driver before it has cleaned up, is finished long after, and is removed."""

    async def dies(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(staging, "MESSAGE_BYTES_MAX", 0)
    task = await sink.task(rows_of(ROWS))
    assert await (await sink.driver()).commit("q", 0, [task]) is BatchVerdict.OK
    with monkeypatch.context() as patch:
        patch.setattr(WriterTopic, "delete_before", dies)
        with pytest.raises(KeyboardInterrupt):
            await (await sink.driver()).commit("q", 1, [await sink.task(rows_of(ROWS))])
    await sink.cluster.clock.sleep(700)  # the leaders have forgotten the producer
    writers = Writers(sink.cluster)
    assert [state.is_applied for state in await writers.states()] == [False]
    await writers.finish("w")
    assert await sink.bounds(TARGET) == (0, 2 * len(ROWS))
    await (await sink.topic()).delete()


def with_authorizer(work: Callable[[SinkClient], Awaitable[None]], authorizer: Permitting) -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        await (await broker.connect()).create_topic(TARGET.topic)
        broker.authorizer = authorizer
        await broker.restart()
        async with KafkaBrokers(broker.client_world, [(HOST, PORT)], patience_seconds=20) as cluster:
            await work(SinkClient(cluster))

    simulate_broker(scenario, kafka=EXPIRES)


def test_a_sink_needs_the_permissions_of_the_page_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    authorizer = Permitting(documented())
    with_authorizer(partial(life, monkeypatch=monkeypatch), authorizer)
    assert authorizer.used == set(documented())


@pytest.mark.parametrize("missing", documented(), ids=lambda each: f"{each[0].name} on {each[1]}")
def test_a_sink_fails_without_one_of_the_permissions_of_the_page(
    monkeypatch: pytest.MonkeyPatch, missing: Permission
) -> None:
    async def work(sink: SinkClient) -> None:
        with pytest.raises((RequestRefused, DeliveryFailed)):
            await life(sink, monkeypatch)

    with_authorizer(work, Permitting([each for each in documented() if each != missing]))


def test_a_sink_sends_the_requests_of_the_page_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = SentRequests(monkeypatch)

    async def work(sink: SinkClient) -> None:
        sent.keys.clear()
        await life(sink, monkeypatch)

    with_authorizer(work, Permitting(documented()))
    (listed,) = re.findall(r"sends no other requests than ([\w, \n]+)\.", PAGE)
    names = {re.sub(r"(?<!^)(?=[A-Z])", "_", each).upper() for each in re.split(r",\s|\sand\s", listed)}
    assert sent.keys == {ApiKey[each] for each in names}
