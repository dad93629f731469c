"""The metrics of read holds (numbers: invariants of `read_hold_watch`)."""

from __future__ import annotations

from native_calls import native
from prometheus_client.parser import text_string_to_metric_families

from gnomon.broker.retention.read_hold_watch import LOOK_SECONDS
from gnomon.client.read_plans import END
from gnomon.testing.storms.kafka.embedded_broker import EmbeddedBroker, simulate_broker
from gnomon.wire.kafka.records import Record, build_batch


def shown(broker: EmbeddedBroker) -> tuple[float, dict[tuple[str, str], float]]:
    """The number of holds, and the lowest offset by topic and partition."""
    page = broker.serving.metrics.render()[0].decode()
    samples = [sample for family in text_string_to_metric_families(page) for sample in family.samples]
    (count,) = [sample.value for sample in samples if sample.name == "gnomon_read_holds"]
    lowest = {
        (sample.labels["topic"], sample.labels["partition"]): sample.value
        for sample in samples
        if sample.name == "gnomon_read_holds_lowest_offset"
    }
    return count, lowest


async def hold(broker: EmbeddedBroker) -> None:
    """Two holds in partition 0 and one in partition 1 of `orders`, for 90 seconds; partition 0 has five records."""
    client = await broker.connect()
    await client.create_topic("orders", partitions=2)
    for number in range(5):
        await client.produce("orders", build_batch([Record(value=b"v")], base_timestamp=number))
    async with native(broker) as reader:
        await reader.read_plans.plan("orders", {0: (3, END), 1: (0, END)}, hold="one", hold_seconds=90)
        await reader.read_plans.plan("orders", {0: (2, END)}, hold="two", hold_seconds=90)


def test_the_number_of_holds_and_their_lowest_offsets_are_shown_until_they_end() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        await hold(broker)
        assert shown(broker) == (0, {})
        await broker.simulation.clock.sleep(LOOK_SECONDS + 1)
        assert shown(broker) == (3, {("orders", "0"): 2, ("orders", "1"): 0})
        await broker.simulation.clock.sleep(LOOK_SECONDS)
        assert shown(broker) == (0, {})

    simulate_broker(scenario, label_sets_max=10)


def test_only_so_many_partitions_have_labels() -> None:  # 2
    async def scenario(broker: EmbeddedBroker) -> None:
        await hold(broker)
        await broker.simulation.clock.sleep(LOOK_SECONDS + 1)
        count, lowest = shown(broker)
        assert (count, len(lowest)) == (3, broker.settings.metrics.label_sets_max)

    for label_sets_max in (0, 1):
        simulate_broker(scenario, label_sets_max=label_sets_max)
