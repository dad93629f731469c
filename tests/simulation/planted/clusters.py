"""Bugs in how brokers share the work, and in the auditor; the sweep over whole clusters looks for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pytest
from broker_scenario import CLUSTER, CLUSTER_SCENARIO, CUTS, UNHEARD, Scenario, cluster_with, heard_late

from gnomon.bookie.auditor import Auditor
from gnomon.bookie.repair import LedgerRepair
from gnomon.broker.broker import Broker
from gnomon.broker.groups.coordinator import GroupCoordinator
from gnomon.broker.groups.hosted_shard import HostedShard
from gnomon.broker.partition.certainty import Certainty
from gnomon.broker.partition.chain import Chain
from gnomon.broker.partition.partition import Partition
from gnomon.broker.partition.producers import AwaitedBatches, Producers
from gnomon.broker.partition.segment import Segment
from gnomon.broker.producer_ids import BLOCK_SIZE, PRODUCER_IDS_KEY, ProducerIds
from gnomon.broker.topic_admin import TopicAdmin
from gnomon.metadata.client import Compare, Field, MetadataUnavailable, Put
from gnomon.metadata.draft import Draft
from gnomon.testing.faults import Fault, FaultMix
from gnomon.testing.simulated_disk import DiskConditions
from gnomon.testing.simulated_network import NetworkConditions
from gnomon.testing.storm_clients import commit_offsets

from planted.planted_bug import Plant, PlantedBug


@dataclass(frozen=True)
class ClusterBug(PlantedBug):
    """A bug, and the scenario that looks for it."""

    scenario: Scenario


CLUSTER_BUGS: list[ClusterBug] = []
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
"""Groups whose coordinators are killed and come back, of which the others hear late."""

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
"""Calls arrive, and their answers do not."""


def planted(
    name: str, *, breaks: str, quick: bool = False, found_by: str = "", scenario: Scenario = CLUSTER_SCENARIO
) -> Callable[[Plant], Plant]:
    """Lists a bug; the function decorated patches the product."""

    def decorate(plant: Plant) -> Plant:
        CLUSTER_BUGS.append(ClusterBug(name, breaks, plant, quick, None, found_by, scenario))
        return plant

    return decorate


# --- leaders ---


@planted("a takeover forgets the producers", breaks="broker.partition.producers 1", quick=True)
def takeover_forgets_producers(patch: pytest.MonkeyPatch) -> None:
    restore = Chain._restore

    async def forgetting(cls: Any, log: Any, segments: Any, now_ms: int) -> None:
        await restore(log, segments, now_ms)
        log.producers = Producers()

    patch.setattr(Chain, "_restore", classmethod(forgetting))


@planted(
    "a broker whose lease may be over goes on as leader and coordinator",
    breaks="broker.broker 4",
    found_by="tests/broker/test_takeover.py::"
    "test_a_broker_that_was_away_is_sure_of_nothing_before_it_has_heard_who_led_meanwhile",
)
def lease_ignored(patch: pytest.MonkeyPatch) -> None:
    """What it says of logs and committed offsets is confirmed elsewhere first."""
    patch.setattr(Broker, "lease_lives", lambda broker: True)


@planted(
    "a deleted topic's name is free before every live broker has heard of the deletion",
    breaks="broker.topics 3",
    found_by="tests/broker/test_deleted_names.py::"
    "test_a_topic_is_created_anew_once_no_broker_serves_its_last_life_any_more",
)
def name_free_at_once(patch: pytest.MonkeyPatch) -> None:
    """A client asks the broker that has not heard of it in few storms (clusters, seed 855)."""

    async def nobody(admin: TopicAdmin) -> list[int]:
        return []

    patch.setattr(TopicAdmin, "_live_brokers", nobody)


@planted(
    "a claim does not compare the log's front",
    breaks="broker.partition.chain 7",
    found_by="tests/broker/partition/test_two_leaders.py::"
    "test_who_claims_knows_what_its_predecessor_gave_up_meanwhile[another offset]",
)
def front_not_compared(patch: pytest.MonkeyPatch) -> None:
    claim = Chain._claim

    async def alone(chain: Chain, item: Any, compare: Any) -> Any:
        return await claim(chain, item, ())

    patch.setattr(Chain, "_claim", alone)


@planted(
    "who gives up a log's front does not compare the claim",
    breaks="broker.partition.chain 7",
    found_by="tests/broker/partition/test_two_leaders.py::"
    "test_who_was_replaced_gives_nothing_up_any_more[another offset]",
)
def claim_not_compared(patch: pytest.MonkeyPatch) -> None:
    async def stands(chain: Chain, last: Segment) -> Compare:
        return Compare("nobody/writes/here", Field.VERSION, 0)

    patch.setattr(Chain, "_claim_stands", stands)


@planted("a missing batch is told without asking who leads", breaks="broker.partition.partition 8", scenario=UNHEARD)
def refusals_unconfirmed(patch: pytest.MonkeyPatch) -> None:
    def confirm(certainty: Certainty, last: Any, done: Callable[[bool], None]) -> None:
        done(True)
        certainty._turn_ended()

    patch.setattr(Certainty, "confirm", confirm)


@planted(
    "an offset is told without asking who coordinates",
    breaks="broker.groups.hosted_shard 5",
    scenario=GROUPS_UNHEARD,
)
def offsets_unconfirmed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(HostedShard, "ask", HostedShard.submit)


@planted(
    "groups are kept when another broker coordinates them",
    breaks="broker.groups.coordinator, release",
    found_by="tests/broker/groups/test_coordinator.py::"
    "test_who_waits_for_that_when_the_groups_go_elsewhere_is_told_to_ask_again",
)
def groups_kept(patch: pytest.MonkeyPatch) -> None:
    """Their committed offsets are confirmed before they are told, and clients find the other coordinator."""
    patch.setattr(GroupCoordinator, "release", lambda coordinator: None)


@planted(
    "what stalls at a partition that is given away is forgotten",
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
    "a segment goes on although the outcome of its roll is unknown",
    breaks="broker.partition.partition 7",
    scenario=UNANSWERED,
)
def rolled_and_goes_on(patch: pytest.MonkeyPatch) -> None:
    writing_failed = Partition._writing_failed

    def going_on(partition: Any, error: Exception) -> None:
        if isinstance(error, MetadataUnavailable):
            ledger = partition.segments[-1].ledger
            ledger._failure, ledger._appender._finished = None, False
            partition._roll_put_off = True
            partition._nursery.start_soon(partition._roll_later)
        else:
            writing_failed(partition, error)

    async def not_asked(partition: Any) -> bool:
        return True

    patch.setattr(Partition, "_writing_failed", going_on)
    patch.setattr(Partition, "_metadata_answers", not_asked)


@planted(
    "a batch overtakes the one that was refused before it",
    breaks="broker.partition.producers 5",
    found_by="tests/broker/partition/test_refused_batches.py::"
    "test_a_batch_sent_behind_a_refused_one_waits_for_it[by name]",
)
def refused_overtaken(patch: pytest.MonkeyPatch) -> None:
    """A storm takes some 500 seeds to find it."""
    patch.setattr(AwaitedBatches, "refused", lambda awaited, producer_id, epoch, first, now_ms: None)


@planted("topics are what the broker's image says, however old that is", breaks="broker.topic_admin, current")
def image_believed(patch: pytest.MonkeyPatch) -> None:
    async def shown(admin: Any, name: str) -> Any:
        return admin._broker.image.get(name)

    patch.setattr(TopicAdmin, "current", shown)


@planted("two brokers may give out the same producer ids", breaks="broker.producer_ids")
def producer_ids_twice(patch: pytest.MonkeyPatch) -> None:
    async def take_block(ids: Any) -> None:
        item = await ids._metadata.get(PRODUCER_IDS_KEY)
        first = int(item.value) if item is not None else 0
        if item is None:
            await ids._metadata.txn([], [Put(PRODUCER_IDS_KEY, b"0")])
        ids._next, ids._end = first, first + BLOCK_SIZE

    patch.setattr(ProducerIds, "_take_block", take_block)


@planted("a lease does not end with its time", breaks="metadata.state, leases", quick=True)
def lease_without_end(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Draft, "_end_due_leases", lambda draft, now: None)


# --- repair ---


@planted("a repair names a bookie that it has copied nothing to", breaks="bookie.repair, move_from")
def repair_without_copies(patch: pytest.MonkeyPatch) -> None:
    async def nothing(repair: Any, fragment: Any, last: Any, index: Any, target: Any) -> None:
        pass

    patch.setattr(LedgerRepair, "_copy", nothing)


@planted("an auditor ends its bookie when a write is not answered", breaks="bookie.auditor, run")
def auditor_gives_up(patch: pytest.MonkeyPatch) -> None:
    audit_under = Auditor._audit_under

    async def unforgiving(auditor: Any, lease: Any) -> None:
        try:
            await audit_under(auditor, lease)
        except* Exception as errors:
            raise AssertionError(f"the bookie would have ended: {errors.exceptions[0]!r}") from None

    patch.setattr(Auditor, "_audit_under", unforgiving)
