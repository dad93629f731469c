"""Native subscriptions of all types in the storms of the other sweeps: no durable subscription misses a record."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from broker_scenario import CLIENTS, cluster_with, run
from extent import swept

from gnomon.broker.native import server
from gnomon.broker.partition.entry import Offset
from gnomon.broker.subscriptions.dlsn import Dlsn
from gnomon.broker.subscriptions.reading import LogPositions
from gnomon.broker.subscriptions.store import SubscriptionsStore
from gnomon.runtime.settings import SubscriptionsSettings
from gnomon.testing.simulation import SimulationFailed, simulate
from gnomon.testing.subscription_clients import KINDS, read_subscription

SUBSCRIBERS = replace(
    CLIENTS,
    producers=1,
    sends=20,
    deletions=False,
    beside={kind: partial(read_subscription, kind=kind) for kind in KINDS},
)
ONE_BROKER = partial(run, scenario=SUBSCRIBERS)
CLUSTER = cluster_with(SUBSCRIBERS)


def test_no_subscription_of_one_broker_misses_a_record() -> None:
    swept(ONE_BROKER, 5, part=0.1)


def test_no_subscription_of_a_cluster_misses_a_record() -> None:
    swept(CLUSTER, 3, part=0.1)


@pytest.fixture
def in_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Positions are kept in segments, which roll within a seed."""
    open_store = server.subscriptions_store

    def opened(settings: SubscriptionsSettings, *where: Any, **how: Any) -> SubscriptionsStore:
        given = replace(settings, log_segment_based_subscriptions_store_enabled=True, segment_entries_max=15)
        return open_store(given, *where, **how)

    monkeypatch.setattr(server, "subscriptions_store", opened)


@pytest.mark.usefixtures("in_segments")
def test_nor_does_one_whose_positions_are_in_segments() -> None:
    swept(ONE_BROKER, 4, part=0.1)


@pytest.mark.usefixtures("in_segments")
def test_nor_in_a_cluster() -> None:
    swept(CLUSTER, 3, part=0.1)


@pytest.mark.usefixtures("in_segments")
def test_a_seed_that_told_of_a_position_behind_what_a_failed_writer_had_left_passes() -> None:
    simulate(11, CLUSTER)


def test_a_position_that_is_taken_for_one_too_far_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    offset_of = LogPositions.offset_of

    async def too_far(self: LogPositions, dlsn: Dlsn) -> Offset:
        return Offset(min(await offset_of(self, dlsn) + 1, self.bounds.high_watermark))

    monkeypatch.setattr(LogPositions, "offset_of", too_far)
    found = []
    for seed in range(20):
        try:
            simulate(seed, ONE_BROKER)
        except (SimulationFailed, AssertionError) as error:
            found.append(str(error))
            break
    assert found
