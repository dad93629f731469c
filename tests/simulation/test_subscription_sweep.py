"""Native subscriptions of all types in the storms of the other sweeps: no durable subscription misses a record."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from broker_scenario import CLIENTS, cluster_with, run
from extent import swept
from native_scenario import CANCELLED, CHURNED, CHURNING, CHURNING_CLUSTER, CUT_OFF, SEEKING, SEEKING_CLUSTER

from gnomon.broker.subscriptions.cursor import Cursor
from gnomon.broker.subscriptions.dispatcher import Dispatcher
from gnomon.broker.subscriptions.positions import stores
from gnomon.broker.subscriptions.positions.store import SubscriptionsStore
from gnomon.log.entry import Offset
from gnomon.runtime.settings.settings import SubscriptionsSettings
from gnomon.testing.simulation.ground import SimulationFailed
from gnomon.testing.simulation.simulation import simulate
from gnomon.testing.storms.subscriptions.subscription_clients import KINDS, read_subscription

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


def test_no_seek_on_one_broker_is_followed_by_a_record_from_before_the_seek() -> None:
    swept(SEEKING, 2, part=0.1)


def test_no_seek_in_a_cluster_is_followed_by_a_record_from_before_the_seek() -> None:
    swept(SEEKING_CLUSTER, 1, part=0.1)


def test_no_record_is_missed_with_few_permits_several_seeks_deletions_and_growth_on_one_broker() -> None:
    swept(CHURNING, 5, part=0.2, reaches=CHURNED)


def test_no_record_is_missed_with_few_permits_several_seeks_deletions_and_growth_in_a_cluster() -> None:
    swept(CHURNING_CLUSTER, 1, part=0.1)


def test_no_cancelled_call_of_a_native_client_leaves_anything_half_done() -> None:
    swept(CANCELLED, 1, part=0.05, reaches=[CUT_OFF])


@pytest.fixture
def in_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stores positions in segments, which roll within a seed."""
    open_store = stores.subscriptions_store

    def opened(settings: SubscriptionsSettings, *where: Any, **how: Any) -> SubscriptionsStore:
        given = replace(settings, log_segment_based_subscriptions_store_enabled=True, segment_entries_max=15)
        return open_store(given, *where, **how)

    monkeypatch.setattr(stores, "subscriptions_store", opened)


@pytest.mark.usefixtures("in_segments")
def test_no_subscription_of_one_broker_with_positions_in_segments_misses_a_record() -> None:
    swept(ONE_BROKER, 4, part=0.1)


@pytest.mark.usefixtures("in_segments")
def test_no_subscription_of_a_cluster_with_positions_in_segments_misses_a_record() -> None:
    swept(CLUSTER, 3, part=0.1)


@pytest.mark.usefixtures("in_segments")
def test_a_seed_that_found_a_position_after_the_entries_of_a_failed_writer_passes() -> None:
    simulate(11, CLUSTER)


def test_a_position_that_is_stored_one_too_far_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    add = Dispatcher.add

    def too_far(dispatcher: Dispatcher[Any], name: str, cursor: Cursor) -> Any:
        end = max(cursor.mark_delete, dispatcher.end)
        return add(dispatcher, name, Cursor(min(Offset(cursor.mark_delete + 1), end), cursor.ranges))

    monkeypatch.setattr(Dispatcher, "add", too_far)
    found = []
    for seed in range(20):
        try:
            simulate(seed, ONE_BROKER)
        except (SimulationFailed, AssertionError) as error:
            found.append(str(error))
            break
    assert found
