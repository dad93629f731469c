"""Judges the state that a storm leaves: brings brokers and bookies to rest, and looks at what they keep.

    with judged_at_rest(simulation) as rest:
        await scenario(simulation)
        await rest.judge()

1. The clients stop, and each partition is opened: a claim reports the copies that a dead writer has left missing.
   Within COPIES_SECONDS each confirmed entry is on its write quorum (`copies`).
2. Latencies are measured in the calm (`latency`).
3. All topics and groups of clients are deleted over the protocol. Within REST_SECONDS, in which the bookies collect,
   there is no finding about the metadata, the stores or the memory of the brokers (`metadata_audit`, `store_audit`,
   `broker_audit`).
4. A finding counts only if every look of that time repeats it: work that runs without clients comes and goes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial

import trio

from gnomon.runtime.world import Unreachable
from gnomon.testing.simulation.simulation import Simulation
from gnomon.testing.storms.kafka.log_clients import LIST_OFFSETS_VERSION, RETRY_SECONDS
from gnomon.testing.storms.kafka.storm_clients import DELETE_TOPICS_VERSION, ask_until
from gnomon.testing.storms.kafka.wire_client import METADATA_VERSION, WireCluster, WireConnection
from gnomon.testing.storms.latency.drill import Drill
from gnomon.testing.storms.ledgers.ledger_cluster import OPERATOR
from gnomon.testing.storms.rest.broker_audit import audit_broker
from gnomon.testing.storms.rest.copies import audit_copies
from gnomon.testing.storms.rest.finding import StateFinding
from gnomon.testing.storms.rest.metadata_audit import audit_metadata
from gnomon.testing.storms.rest.roll import Roll, roll_call
from gnomon.testing.storms.rest.store_audit import audit_store
from gnomon.wire.kafka.messages.cluster import MetadataRequest, MetadataResponse
from gnomon.wire.kafka.messages.group_admin import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)
from gnomon.wire.kafka.messages.positions import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from gnomon.wire.kafka.messages.topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState

KAFKA_PORT = 9092
COPIES_SECONDS = 90.0
"""Bookies come back, leases and the grace of the auditor pass, a drained bookie is emptied, reports are settled."""
REST_SECONDS = 60.0
"""Sessions of group members and of brokers end, deletions are finished, each bookie collects (every 10 s)."""
LOOK_SECONDS = 2.0
LIST_GROUPS_VERSION, DELETE_GROUPS_VERSION = 4, 2
FINDINGS_MAX = 10
JANITOR = "janitor"


@contextmanager
def judged_at_rest(simulation: Simulation) -> Iterator[Rest]:
    """Follows the nodes of a storm during the block; call `Rest.judge` at its end."""
    with roll_call(simulation) as roll:
        yield Rest(simulation, roll)


class Rest:
    """Made by `judged_at_rest`."""

    def __init__(self, simulation: Simulation, roll: Roll) -> None:
        self._simulation = simulation
        self._roll = roll

    async def judge(self) -> None:
        """Brings the nodes to rest, and judges them.

        Raises:
            AssertionError: with all findings.
        """
        for name, machine in self._simulation.machines.items():
            if name.startswith(OPERATOR) and machine.process is not None:
                await machine.process.ended.wait()  # what an operator asks for is done before the state is judged
        for name, machine in self._simulation.machines.items():
            if name not in self._roll.machines:
                machine.kill()
        await self._janitor(_open_partitions, "partitions were not opened")
        await none_within(self._simulation, COPIES_SECONDS, self._copies, "copies")
        await Drill(self._simulation, self._roll).judge()
        await self._janitor(_delete_topics_and_groups, "topics and groups were not deleted")
        await none_within(self._simulation, REST_SECONDS, self._findings, "state at rest")

    def _copies(self) -> Iterator[StateFinding]:
        return audit_copies(self._roll.stores(), self._roll.facts())

    def _findings(self) -> Iterator[StateFinding]:
        roll, facts = self._roll, self._roll.facts()
        brokers, stores = roll.brokers(), roll.stores()
        if len(brokers) < facts.brokers or len(stores) < facts.bookies:
            yield StateFinding("nodes", f"{len(brokers)} of {facts.brokers} brokers and {len(stores)} bookies serve")
        yield from audit_metadata(roll.state(), facts)
        for store in stores:
            yield from audit_store(store, facts)
        for broker in brokers:
            yield from audit_broker(broker, facts)

    async def _janitor(self, work: Callable[[WireCluster], Awaitable[None]], trouble: str) -> None:
        """Lets a client of all brokers work; `trouble` is the finding if it does not end."""
        bootstrap = [(name, KAFKA_PORT) for name in self._roll.brokers_known]
        machine = self._simulation.machine(JANITOR)
        machine.start(lambda world: work(WireCluster(world, bootstrap, JANITOR, auto_create=False)))
        process = machine.process
        assert process is not None
        with trio.move_on_after(REST_SECONDS):
            await process.ended.wait()
            return
        raise AssertionError(f"{trouble} within {REST_SECONDS} s")


async def none_within(
    simulation: Simulation, seconds: float, look: Callable[[], Iterator[StateFinding]], what: str
) -> None:
    """Looks until no finding is left that every look had.

    Raises:
        AssertionError: findings are left after `seconds`.
    """
    end = simulation.clock.monotonic() + seconds
    findings = dict(look())
    while findings and simulation.clock.monotonic() < end:
        await simulation.sleep(LOOK_SECONDS)
        now = dict(look())
        findings = {place: now[place] for place in findings if place in now}
    assert not findings, f"{what}, after {seconds} s: " + "; ".join(list(findings.values())[:FINDINGS_MAX])


async def _open_partitions(cluster: WireCluster) -> None:
    """Asks the leader of each partition for the end of its log."""
    asked = MetadataRequest(topics=None, allow_auto_topic_creation=False)
    metadata, _ = await ask_until(cluster, lambda each: each.request(asked, METADATA_VERSION, MetadataResponse))
    for topic in metadata.topics:
        for partition in topic.partitions:
            name, index = topic.name or "", partition.partition_index
            request = ListOffsetsRequest(
                replica_id=-1,
                topics=[
                    ListOffsetsTopic(name=name, partitions=[ListOffsetsPartition(partition_index=index, timestamp=-1)])
                ],
            )

            async def ask(connection: WireConnection, request: ListOffsetsRequest = request) -> None:
                answer = await connection.request(request, LIST_OFFSETS_VERSION, ListOffsetsResponse)
                if answer.topics[0].partitions[0].error_code:
                    raise Unreachable("the partition is not open yet")

            await ask_until(cluster, ask, partial(cluster.leader, name, index))


async def _delete_topics_and_groups(cluster: WireCluster) -> None:
    """Deletes all topics, then the groups of each broker; the brokers are asked in turn."""
    while (await ask_until(cluster, _delete_all))[0]:
        await cluster.world.clock.sleep(RETRY_SECONDS)
    without_groups = 0
    while without_groups < len(cluster.hosts):
        if (await ask_until(cluster, _delete_groups))[0]:
            without_groups = 0
            await cluster.world.clock.sleep(RETRY_SECONDS)
        else:
            without_groups += 1


async def _delete_all(connection: WireConnection) -> bool:
    """Deletes all topics of clients that a broker shows; returns whether there were any."""
    asked = MetadataRequest(topics=None, allow_auto_topic_creation=False)
    metadata = await connection.request(asked, METADATA_VERSION, MetadataResponse)
    topics = [DeleteTopicState(name=topic.name) for topic in metadata.topics if not topic.is_internal]
    if topics:
        request = DeleteTopicsRequest(topics=topics, timeout_ms=5000)
        await connection.request(request, DELETE_TOPICS_VERSION, DeleteTopicsResponse)
    return bool(topics)


async def _delete_groups(connection: WireConnection) -> bool:
    """Deletes all groups that a broker coordinates, unless they have members; returns whether there may be more."""
    listed = await connection.request(ListGroupsRequest(), LIST_GROUPS_VERSION, ListGroupsResponse)
    names = [group.group_id for group in listed.groups]
    if names:
        request = DeleteGroupsRequest(groups_names=names)
        await connection.request(request, DELETE_GROUPS_VERSION, DeleteGroupsResponse)
    return bool(names or listed.error_code)
