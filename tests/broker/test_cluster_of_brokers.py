"""Several brokers over one metadata service and one set of bookies, on simulated machines."""

from __future__ import annotations

from functools import partial

import trio

from gnomon.testing.broker_cluster import BrokerCluster
from gnomon.testing.log_checker import LogHistory, check_log
from gnomon.testing.log_clients import SimulatedConsumer, SimulatedProducer
from gnomon.testing.simulation import Simulation, simulate
from gnomon.testing.wire_client import KafkaCluster

LEASE_SECONDS = 3.0


async def produce(client: KafkaCluster, history: LogHistory, name: str, partition: int, count: int) -> None:
    producer = SimulatedProducer(client, "orders", {partition: history}, name=name)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(producer.run)
        for number in range(count):
            producer.send(f"{name}/{number}".encode(), partition)
            await client.world.clock.sleep(0.01)
        await producer.flush()
        nursery.cancel_scope.cancel()


async def read_all(client: KafkaCluster, history: LogHistory, partition: int) -> None:
    history.final = await SimulatedConsumer(client, "orders", partition, history, name="final").read_all()


def test_a_killed_broker_s_partitions_are_served_by_another_within_the_lease_and_a_second() -> None:
    async def scenario(simulation: Simulation) -> None:
        cluster = BrokerCluster(simulation, 2, lease_seconds=LEASE_SECONDS)
        await cluster.start()
        history = LogHistory()
        await cluster.run_client("first", lambda client: produce(client, history, "first", 0, 20))
        victim = cluster.leader("orders", 0)
        cluster.brokers[victim].kill()
        killed_at = simulation.clock.monotonic()
        await cluster.run_client("second", lambda client: produce(client, history, "second", 0, 1))
        taken = simulation.clock.monotonic() - killed_at
        print(f"served elsewhere after {taken:.2f} s")
        assert taken <= LEASE_SECONDS + 1
        await cluster.run_client("reader", lambda client: read_all(client, history, 0))
        assert check_log(history) == []
        assert len(history.final) == 21

    simulate(1, scenario)


def test_idempotent_producers_go_on_while_brokers_are_killed_and_nothing_is_lost_or_doubled() -> None:
    async def scenario(simulation: Simulation) -> None:
        cluster = BrokerCluster(simulation, 3, lease_seconds=LEASE_SECONDS)
        await cluster.start()
        history = LogHistory()
        producer = cluster.start_client("producer", lambda client: produce(client, history, "producer", 0, 2000))

        async def consume(client: KafkaCluster) -> None:
            await SimulatedConsumer(client, "orders", 0, history, name="consumer").run()

        cluster.start_client("consumer", consume)
        await simulation.clock.sleep(3)
        for _ in range(2):
            victim = cluster.leader("orders", 0)
            cluster.brokers[victim].kill()
            await simulation.clock.sleep(LEASE_SECONDS + 2)
            cluster.start_broker(victim)
            await simulation.clock.sleep(2)
        assert producer.process is not None
        await producer.process.ended.wait()
        await cluster.run_client("reader", lambda client: read_all(client, history, 0))
        assert check_log(history) == []
        assert len(history.final) == 2000

    simulate(2, scenario)


def test_a_rolling_restart_is_seen_by_no_client_as_more_than_a_new_leader() -> None:
    async def scenario(simulation: Simulation) -> None:
        cluster = BrokerCluster(simulation, 3, lease_seconds=LEASE_SECONDS, kafka={"num.partitions": "4"})
        await cluster.start()
        histories = [LogHistory() for _ in range(4)]
        producers = [
            cluster.start_client(
                f"producer-{index}", partial(produce, history=history, name="p", partition=index, count=1500)
            )
            for index, history in enumerate(histories)
        ]
        await simulation.clock.sleep(1)
        for number, machine in cluster.brokers.items():
            process = machine.process
            assert process is not None
            machine.terminate()
            await process.ended.wait()
            assert not any(partition.log for partition in cluster.serving[number].broker.partitions_open())
            cluster.start_broker(number)
            await cluster.settled(*cluster.brokers)
        for producer in producers:
            if producer.process is not None:
                await producer.process.ended.wait()
        for index, history in enumerate(histories):
            await cluster.run_client(f"reader-{index}", partial(read_all, history=history, partition=index))
            assert check_log(history) == []
            assert len(history.final) == 1500

    simulate(3, scenario)
