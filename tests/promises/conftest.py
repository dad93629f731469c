"""Promises of the documentation, tested with real processes: a standalone broker, and a cluster.

`make promises` tests them longer: SEEKS=500 of each kind of consumer, CALLS=1000 cancelled calls.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gnomon.testing import KafkaBroker
from gnomon.testing.storms.processes.cluster_processes import ClusterProcesses

sys.path.insert(0, str(Path(__file__).parent))
from house import House

BROKERS = 2
BOOKIES = 3


@pytest.fixture(scope="session", params=["standalone", "cluster"])
def house(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    if request.param == "standalone":
        with KafkaBroker() as broker:
            yield House(broker.bootstrap_servers, broker.native_address)
        return
    directory: Path = tmp_path_factory.mktemp("cluster")
    settings = {"bookie.durability": "none"}
    with ClusterProcesses(directory, None, bookies=BOOKIES, brokers=BROKERS, disk_bytes=0, settings=settings) as made:
        yield House(made.bootstrap_servers, ",".join(node.ready["native"] for node in made.of("broker")))
        assert made.ended == [], "a process ended by itself"
