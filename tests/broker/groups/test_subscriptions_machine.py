"""Members with subscriptions of every form, tools that delete offsets, and days that pass, against a small model."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.messages.consumer_protocol import ConsumerProtocolSubscription, TopicPartition
from gnomon.wire.kafka.messages.offsets import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from gnomon.wire.kafka.schema import encode_prefixed

TOPICS = ("orders", "bills", "parcels")
CLIENTS = 3
SESSION_MS = 1_800_000
RETENTION_MINUTES = 20
CHECK_SECONDS = 600
SUBSCRIBED = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC

clients = st.integers(0, CLIENTS - 1)
topics = st.sampled_from(TOPICS)
wanted = st.lists(topics, unique=True, max_size=2)
versions = st.integers(0, 4)
UNREADABLE = (b"", b"\0", b"\0\1", b"\0\1\0\0\0\1", b"\0\3\0\0\0\0\0\0\0")
"""Empty, half a version, a version alone, a truncated list, truncated user_data."""


def whole(version: int, names: list[str]) -> bytes:
    """A subscription with all fields of its version; version 4 has a field more than the versions known."""
    subscription = ConsumerProtocolSubscription(
        topics=names, user_data=b"own", owned_partitions=[TopicPartition(topic="parcels", partitions=[0])]
    )
    encoded = encode_prefixed(subscription, min(version, 3))
    return encoded if version <= 3 else b"\0\4" + encoded[2:] + b"more"


def short(version: int, names: list[str]) -> bytes:
    """A subscription that names a version and ends after user_data."""
    return version.to_bytes(2, "big") + encode_prefixed(ConsumerProtocolSubscription(topics=names), 0)[2:]


class SubscriptionsMachine(RuleBasedStateMachine):
    """A group that is stable or empty after each step; the model remembers the subscriptions of its members."""

    def __init__(self, new_bench):
        super().__init__()
        self.bench = new_bench(
            initial_rebalance_delay_ms=0,
            offsets_retention_minutes=RETENTION_MINUTES,
            offsets_retention_check_interval_ms=CHECK_SECONDS * 1000,
        )
        self.clients = [self.bench.client(f"c{number}", session_ms=SESSION_MS) for number in range(CLIENTS)]
        self.reads = {}  # by member: its topics, or None if its subscription cannot be read
        self.committed = {}
        self.same_since = self.empty_since = self.bench.now
        self.had_members = False  # and was not forgotten since
        self.offset = 0

    # Actions of consumers

    @rule(who=clients, names=wanted, version=versions, form=st.sampled_from([whole, short]))
    def subscribe(self, who, names, version, form):
        self.join(who, form(version, names), names)

    @rule(who=clients, metadata=st.sampled_from(UNREADABLE))
    def subscribe_unreadably(self, who, metadata):
        self.join(who, metadata, None)

    @rule(who=clients)
    def leave(self, who):
        if who in self.reads:
            assert self.clients[who].leave().error is ErrorCode.NONE
            self.clients[who].member_id = ""
            del self.reads[who]
            self.settle()

    @rule(topic=topics)
    def commit(self, topic):
        self.offset += 1
        member = next(iter(self.reads), None)
        if member is None:
            answer = self.bench.commit("g", self.offset, topic=topic)
        else:
            answer = self.clients[member].commit(self.offset, topic=topic)
        assert answer.error is ErrorCode.NONE
        self.committed[topic] = (self.offset, self.bench.now)

    # Actions of tools, and events of the world

    @rule(topic=topics)
    def delete(self, topic):
        partitions = [OffsetDeleteRequestPartition(partition_index=0)]
        request = OffsetDeleteRequest(
            group_id="g", topics=[OffsetDeleteRequestTopic(name=topic, partitions=partitions)]
        )
        known = bool(self.committed) or self.bench.state() is not None
        error = self.bench.call("tool", f"deletes {topic}", request, 0).error
        if self.is_read(topic):
            assert error is SUBSCRIBED
        else:
            assert error is (ErrorCode.NONE if known else ErrorCode.GROUP_ID_NOT_FOUND)
            self.committed.pop(topic, None)

    @rule(seconds=st.sampled_from([10, 300, 700, 1500]))
    def time_goes_by(self, seconds):
        self.bench.advance(seconds)
        for who in self.reads:
            assert self.clients[who].heartbeat().error is ErrorCode.NONE

    @rule()
    def the_node_crashes(self):
        self.bench.crash()
        self.same_since = self.bench.now

    # The model

    def join(self, who, metadata, names):
        self.clients[who].metadata = lambda: metadata
        if who not in self.reads:
            assert self.clients[who].join().error is ErrorCode.MEMBER_ID_REQUIRED
            self.clients[who].learn()
        self.reads[who] = names
        self.settle()

    def settle(self):
        """All members agree on a new generation."""
        for who in self.reads:
            self.clients[who].join()
        for who in self.reads:
            self.clients[who].learn()
        for who in self.reads:
            assert self.clients[who].sync({}).error is ErrorCode.NONE
        self.same_since = self.bench.now
        if not self.reads:
            self.empty_since = self.bench.now

    def is_read(self, topic):
        """Whether a member reads the topic, or may read it because its subscription is unreadable."""
        return any(names is None or topic in names for names in self.reads.values())

    @invariant()
    def offsets_are_kept_for_whoever_reads_the_topic_and_expire_for_nobody(self):
        for topic, (offset, at) in list(self.committed.items()):
            seen = self.bench.offset(topic=topic)
            due = (at if self.reads or not self.had_members else self.empty_since) + RETENTION_MINUTES * 60
            if seen == -1:
                assert not self.is_read(topic), f"{topic} is read, and its offset is gone"
                assert due <= self.bench.now, f"the offset of {topic} was due in {due - self.bench.now} s"
                del self.committed[topic]
            else:
                assert seen == offset
                late = self.bench.now - max(due, self.same_since) - CHECK_SECONDS
                assert self.is_read(topic) or late <= 0, f"nobody reads {topic}, and its offset is {late} s late"
        self.had_members = self.bench.state() is not None

    @invariant()
    def keep_the_transcript_short(self):
        del self.bench.transcript[:-50]


def test_offsets_are_deleted_by_the_subscriptions_of_members_in_every_form(new_bench):
    bounds = settings(max_examples=100, stateful_step_count=30, deadline=None)
    run_state_machine_as_test(lambda: SubscriptionsMachine(new_bench), settings=bounds)
