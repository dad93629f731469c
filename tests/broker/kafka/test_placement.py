"""The placement of partitions, as Kafka's cluster tools request and change it."""

from __future__ import annotations

from gnomon.testing.storms.kafka.embedded_broker import EmbeddedBroker, simulate_broker
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.messages.placement import (
    AlterPartitionReassignmentsRequest,
    Cursor,
    DescribeTopicPartitionsRequest,
    ElectLeadersRequest,
    ElectLeadersTopic,
    ListPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
    TopicRequest,
)

UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_topics_are_described_in_order_page_by_page() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        topic_id = await client.create_topic("b", partitions=3)
        await client.create_topic("a", partitions=2)
        await client.create_topic("c")

        pages: list[list[tuple[str, list[int]]]] = []
        cursor: Cursor | None = None
        while True:
            request = DescribeTopicPartitionsRequest(response_partition_limit=2, cursor=cursor)
            page = await client.ask(request, 0)
            pages.append([(topic.name, [part.partition_index for part in topic.partitions]) for topic in page.topics])
            cursor = page.next_cursor
            if cursor is None:
                break
        assert pages == [[("a", [0, 1])], [("b", [0, 1])], [("b", [2]), ("c", [0])]]

        (topic,) = (await client.ask(DescribeTopicPartitionsRequest(topics=[TopicRequest(name="b")]), 0)).topics
        assert (topic.error_code, topic.topic_id, topic.is_internal) == (0, topic_id, False)
        first = topic.partitions[0]
        assert (first.leader_id, first.replica_nodes, first.isr_nodes) == (1, [1], [1])
        assert (first.eligible_leader_replicas, first.last_known_elr, first.offline_replicas) == ([], [], [])

    simulate_broker(scenario)


def test_an_unknown_topic_and_an_invalid_name_have_different_errors() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        topics = [TopicRequest(name="none"), TopicRequest(name="no name")]
        answer = await client.ask(DescribeTopicPartitionsRequest(topics=topics, response_partition_limit=-1), 0)
        answered = {topic.name: topic.error_code for topic in answer.topics}
        assert answered == {"none": UNKNOWN, "no name": ErrorCode.INVALID_TOPIC_EXCEPTION}
        assert answer.next_cursor is None

    simulate_broker(scenario)


def test_an_election_is_not_needed_if_one_broker_leads_all_partitions() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        await client.create_topic("t", partitions=2)
        for version in range(3):
            topics = [
                ElectLeadersTopic(topic="t", partitions=[0, 1, 2]),
                ElectLeadersTopic(topic="none", partitions=[0]),
            ]
            answer = await client.ask(ElectLeadersRequest(topic_partitions=topics), version)
            answered = {
                (result.topic, part.partition_id): part.error_code
                for result in answer.replica_election_results
                for part in result.partition_result
            }
            needless = ErrorCode.ELECTION_NOT_NEEDED
            assert answered == {("t", 0): needless, ("t", 1): needless, ("t", 2): UNKNOWN, ("none", 0): UNKNOWN}
            everything = await client.ask(ElectLeadersRequest(topic_partitions=None), version)
            assert everything.replica_election_results == []
        wrong = await client.ask(ElectLeadersRequest(election_type=7, topic_partitions=None), 2)
        assert wrong.error_code == ErrorCode.INVALID_REQUEST

    simulate_broker(scenario)


def test_a_reassignment_is_refused_unless_the_partition_stays_on_the_only_broker() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        await client.create_topic("t")
        for replicas, expected in (
            ([1], 0),
            ([2], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
            ([1, 2], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
            ([], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
            (None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
        ):
            moves = [ReassignablePartition(partition_index=index, replicas=replicas) for index in (0, 1)]
            request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name="t", partitions=moves)])
            answer = await client.ask(request, 1)
            assert answer.error_code == 0
            assert [part.error_code for part in answer.responses[0].partitions] == [expected, UNKNOWN]
        assert (await client.ask(ListPartitionReassignmentsRequest(topics=None), 0)).topics == []

    simulate_broker(scenario)
