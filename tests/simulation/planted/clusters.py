"""Bugs in leadership and coordination among brokers, and in the auditor; the sweep over clusters looks for them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from broker_scenario import CLUSTER, CLUSTER_SCENARIO, CUTS, MEMBERS, UNHEARD, cluster_with, heard_late
from counter_scenario import COUNTERS, COUNTERS_UNHEARD

from gnomon.bookie.errors import LedgerFenced
from gnomon.bookie.ledgers.catalog import claim_ledger
from gnomon.bookie.record import LEDGERS
from gnomon.bookie.repair import repair
from gnomon.bookie.repair.auditor import Auditor
from gnomon.broker.coordination import hosted_machine
from gnomon.broker.coordination.hosted_machine import HostedMachine
from gnomon.broker.coordination.state_machine import Append
from gnomon.broker.groups import group
from gnomon.broker.groups.coordinator import GroupCoordinator
from gnomon.broker.partition import chain as chain_module
from gnomon.broker.partition.chain import Chain
from gnomon.broker.partition.partition import Partition
from gnomon.broker.partition.producers import AwaitedBatches, Producers
from gnomon.broker.partition.read_index import ReadIndex
from gnomon.broker.partition.state import ROLLING_STATES, PartitionState
from gnomon.broker.placement.registration import BrokerRegistration
from gnomon.broker.producer_ids import BLOCK_SIZE, PRODUCER_IDS_KEY, ProducerIds
from gnomon.broker.topics import deleted_topics
from gnomon.broker.topics.topic_records import TopicRecords
from gnomon.log.segment import Segment
from gnomon.metadata.client import Compare, KeyField, MetadataError, MetadataUnavailable, Put
from gnomon.metadata.draft import Draft
from gnomon.testing.simulation.disk.simulated_disk import DiskConditions
from gnomon.testing.simulation.faults import Fault, FaultMix
from gnomon.testing.simulation.network.simulated_network import NetworkConditions
from gnomon.testing.storms.kafka.storm_clients import commit_offsets
from gnomon.wire.kafka.messages.consumer_protocol import ConsumerProtocolSubscription
from gnomon.wire.kafka.schema import decode

from planted.planted_bug import ScenarioBugs

FEW_RECORDS = replace(CLUSTER.clients, partitions=1, producers=1, sends=20, deletions=False)
GROUPS = cluster_with(
    replace(
        FEW_RECORDS,
        beside={name: CLUSTER.clients.beside[name] for name in ("offsets", "visits")},
        storm_seconds=40.0,
        mix=CUTS,
    )
)
"""Groups whose coordinators are cut off from the metadata, from clients, and from each other."""

SIX_GROUPS = {f"group {n}": partial(commit_offsets, group=f"group-{n}", commits_a_second=0.5) for n in range(6)}
RETURNING = replace(FEW_RECORDS, beside=SIX_GROUPS, mix=replace(CUTS, seconds_between={Fault.KILL: 2.0}))
GROUPS_UNHEARD = partial(heard_late, scenario=cluster_with(RETURNING), seconds=RETURNING.storm_seconds, rate=0.9)
"""Groups whose coordinators are killed and come back, while other brokers learn of that late."""

UNANSWERED = cluster_with(
    replace(
        CLUSTER.clients,
        deletions=False,
        beside={},
        mix=FaultMix(
            {Fault.ONE_WAY_PARTITION: 1.0, Fault.RESET: 0.3},
            NetworkConditions(latency_seconds_mean=0.02),
            DiskConditions(sync_seconds_mean=0.002),
        ),
    )
)
"""A cluster in which calls arrive, and their answers often do not."""
CLUSTER_BUGS = ScenarioBugs(CLUSTER_SCENARIO)
planted = CLUSTER_BUGS.planted


# --- groups ---


@planted(
    "a subscription that ends early is taken for one that reads everything",
    breaks="wire.kafka.messages.consumer_protocol, subscribed_topics",
    quick=True,
    scenario=MEMBERS,
)
def short_subscription_reads_everything(patch: pytest.MonkeyPatch) -> None:
    def strict(metadata: Any) -> list[str]:
        version = min(int.from_bytes(metadata[:2], "big"), ConsumerProtocolSubscription.VERSIONS[1])
        return decode(ConsumerProtocolSubscription, version, metadata, 2)[0].topics

    patch.setattr(group, "subscribed_topics", strict)


# --- state machines on their logs ---


@planted(
    "a machine's reply leaves before its record is durable",
    breaks="broker.coordination.hosted_machine 4",
    quick=True,
    scenario=COUNTERS,
)
def replies_early(patch: pytest.MonkeyPatch) -> None:
    append = HostedMachine.append

    def early(hosted: Any, machine: Any, asked: Append[Any, Any]) -> None:
        append(hosted, machine, replace(asked, replies=()))
        for reply in asked.replies:
            reply.send()

    patch.setattr(HostedMachine, "append", early)


@planted(
    "a machine's effect is executed before its record is durable",
    breaks="broker.coordination.hosted_machine 4",
    quick=True,
    scenario=COUNTERS,
)
def effects_early(patch: pytest.MonkeyPatch) -> None:
    append = HostedMachine.append

    def early(hosted: Any, machine: Any, asked: Append[Any, Any]) -> None:
        append(hosted, machine, replace(asked, effects=()))
        for effect in asked.effects:
            hosted._execute(effect)

    patch.setattr(HostedMachine, "append", early)


@planted(
    "a machine's snapshot omits the records in flight",
    breaks="broker.coordination.state_machine 5",
    quick=True,
    scenario=COUNTERS,
)
def snapshot_without_pending(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(hosted_machine, "pending_records", lambda appends: [])


@planted(
    "a machine answers without a check that its log was not claimed",
    breaks="broker.coordination.hosted_machine 7",
    scenario=COUNTERS_UNHEARD,
)
def reads_unconfirmed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(HostedMachine, "submit_confirmed", HostedMachine.submit)


# --- leaders ---


@planted("a takeover forgets the producers", breaks="broker.partition.producers 1", quick=True)
def takeover_forgets_producers(patch: pytest.MonkeyPatch) -> None:
    opening = Chain.open

    async def forgetting(chain: Any, settings: Any, now_ms: int) -> Any:
        log, segments = await opening(chain, settings, now_ms)
        log.producers = Producers()
        return log, segments

    patch.setattr(Chain, "open", forgetting)


@planted(
    "a broker whose lease may have ended remains leader and coordinator",
    breaks="broker.placement.placement 1",
    found_by="tests/broker/test_takeover.py::"
    "test_a_broker_that_was_cut_off_refuses_requests_until_it_knows_who_led_meanwhile",
)
def lease_ignored(patch: pytest.MonkeyPatch) -> None:
    """No storm finds it: answers about logs and committed offsets are first confirmed by other means."""
    patch.setattr(BrokerRegistration, "lives", lambda registration: True)


@planted(
    "a deleted topic's name is free before every live broker knows of the deletion",
    breaks="broker.topics 3",
    found_by="tests/broker/test_deleted_names.py::test_a_topic_is_created_again_once_no_broker_serves_its_last_life",
)
def name_free_at_once(patch: pytest.MonkeyPatch) -> None:
    """In few storms a client asks the broker that does not know of the deletion."""
    patch.setattr(deleted_topics, "BROKERS", "nobody/registers/here/")


@planted(
    "a claim does not compare the log's front",
    breaks="broker.partition.chain 7",
    found_by="tests/broker/partition/test_two_leaders.py::"
    "test_a_claim_knows_what_the_previous_leader_dropped_meanwhile[another offset]",
)
def front_not_compared(patch: pytest.MonkeyPatch) -> None:
    async def alone(metadata: Any, bookies: Any, item: Any, *, properties: Any, compare: Any) -> Any:
        others = [each for each in compare if not each.key.startswith(LEDGERS)]
        return await claim_ledger(metadata, bookies, item, properties=properties, compare=others)

    patch.setattr(chain_module, "claim_ledger", alone)


@planted(
    "a leader that drops a log's front does not compare the claim",
    breaks="broker.partition.chain 7",
    found_by="tests/broker/partition/test_two_leaders.py::test_a_replaced_leader_drops_nothing[another offset]",
)
def claim_not_compared(patch: pytest.MonkeyPatch) -> None:
    async def uncompared(chain: Chain, last: Segment) -> Compare:
        return Compare("nobody/writes/here", KeyField.VERSION, 0)

    patch.setattr(Chain, "claim_unchanged", uncompared)


@planted(
    "a broker that may not delete records goes on with its lost claim",
    breaks="broker.partition.writable 3",
    found_by="tests/broker/partition/test_two_leaders.py::"
    "test_a_drop_at_the_front_finds_a_claim_that_no_append_has_met[a segment]",
)
def claim_not_noticed(patch: pytest.MonkeyPatch) -> None:
    claim_unchanged = Chain.claim_unchanged

    async def unavailable(chain: Chain, last: Segment) -> Compare:
        try:
            return await claim_unchanged(chain, last)
        except LedgerFenced as error:
            raise MetadataUnavailable(str(error)) from error

    patch.setattr(Chain, "claim_unchanged", unavailable)


@planted(
    "a missing batch is reported without a check of the leader", breaks="broker.partition.writable 5", scenario=UNHEARD
)
def refusals_unconfirmed(patch: pytest.MonkeyPatch) -> None:
    def confirm(read_index: ReadIndex, last: Any, done: Callable[[bool], None]) -> None:
        done(True)
        read_index._turn_ended()

    patch.setattr(ReadIndex, "confirm", confirm)


@planted(
    "an offset is sent without a check of the coordinator",
    breaks="broker.coordination.hosted_machine 7",
    scenario=GROUPS_UNHEARD,
)
def offsets_unconfirmed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(HostedMachine, "submit_confirmed", HostedMachine.submit)


@planted(
    "groups are kept when another broker coordinates them",
    breaks="broker.groups.coordinator, release",
    found_by="tests/broker/groups/test_coordinator.py::"
    "test_a_request_that_waits_for_a_confirmation_gets_a_retriable_error_after_the_groups_move",
)
def groups_kept(patch: pytest.MonkeyPatch) -> None:
    """No storm finds it: committed offsets are confirmed before they are sent, and clients find the new coordinator."""
    patch.setattr(GroupCoordinator, "release", lambda coordinator: None)


@planted(
    "waiting appends of a released partition are forgotten",
    breaks="broker.partition.partition, release",
    scenario=GROUPS,
)
def stalled_forgotten(patch: pytest.MonkeyPatch) -> None:
    release = Partition.release

    def forgetting(partition: Any) -> None:
        partition._appends._waiting.clear()
        release(partition)

    patch.setattr(Partition, "release", forgetting)


@planted(
    "a segment is used although the outcome of its roll is unknown",
    breaks="broker.partition.writable 4",
    scenario=UNANSWERED,
)
def rolled_and_goes_on(patch: pytest.MonkeyPatch) -> None:
    writing_failed = Partition.writing_failed

    def going_on(partition: Any, error: Exception) -> None:
        if isinstance(error, MetadataUnavailable):
            ledger = partition.segments[-1].ledger
            ledger._failure, ledger._seal, ledger._appender._finished = None, None, False
            if partition._state in ROLLING_STATES:
                partition._state = PartitionState.OVERRUNNING
                partition._tasks.start_soon(partition._roll_when_metadata_is_back)
        else:
            writing_failed(partition, error)

    async def not_asked(chain: Any) -> None:
        pass

    patch.setattr(Partition, "writing_failed", going_on)
    patch.setattr(Chain, "ask", not_asked)


@planted(
    "a batch overtakes the one that was refused before it",
    breaks="broker.partition.producers 5",
    found_by="tests/broker/partition/test_refused_batches.py::"
    "test_a_batch_sent_after_a_refused_one_waits_for_it[by name]",
)
def refused_overtaken(patch: pytest.MonkeyPatch) -> None:
    """A storm takes some 500 seeds to find it."""
    patch.setattr(AwaitedBatches, "refused", lambda awaited, producer_id, epoch, first, now_ms: None)


@planted("topics are read from the broker's image, of any age", breaks="broker.topics.topic_records, current")
def image_believed(patch: pytest.MonkeyPatch) -> None:
    async def shown(records: Any, name: str) -> Any:
        return records._topics.image.get(name)

    patch.setattr(TopicRecords, "current", shown)


@planted("two brokers may give out the same producer ids", breaks="broker.producer_ids")
def producer_ids_twice(patch: pytest.MonkeyPatch) -> None:
    taking = ProducerIds.next

    async def uncounted(ids: Any) -> int:
        if ids._next == ids._end:
            item = await ids._metadata.get(PRODUCER_IDS_KEY)
            first = int(item.value) if item is not None else 0
            if item is None:
                await ids._metadata.txn([], [Put(PRODUCER_IDS_KEY, b"0")])
            ids._next, ids._end = first, first + BLOCK_SIZE
        return await taking(ids)

    patch.setattr(ProducerIds, "next", uncounted)


@planted("a lease does not end with its time", breaks="metadata.state, leases", quick=True)
def lease_without_end(patch: pytest.MonkeyPatch) -> None:
    apply = Draft.apply
    patch.setattr(Draft, "apply", lambda draft, request, now: apply(draft, request, -math.inf))


# --- repair ---


@planted("a repair names a bookie to which it has copied nothing", breaks="bookie.repair, move_from")
def repair_without_copies(patch: pytest.MonkeyPatch) -> None:
    class HasAll:
        async def present(self, ledger: Any, first: Any, end: Any, session: Any) -> Any:
            return [(first, end)]

    patch.setattr(repair, "counts", lambda fragment, bookie: True)
    patch.setattr(repair, "known_bookie", lambda bookies, name: HasAll())


@planted("an auditor ends its bookie when a write is not answered", breaks="bookie.auditor, run")
def auditor_gives_up(patch: pytest.MonkeyPatch) -> None:
    audit = Auditor.audit

    async def unforgiving(auditor: Any) -> None:
        try:
            await audit(auditor)
        except MetadataError as error:
            raise AssertionError(f"the bookie would have ended: {error!r}") from None

    patch.setattr(Auditor, "audit", unforgiving)
