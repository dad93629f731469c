"""The scenario of the sweeps over whole clusters: Kafka clients while a storm rages over brokers, bookies and metadata.

    result = sweep(ClusterScenario(clients), range(200))

1. Each seed draws how many brokers and bookies there are, their leases, what the clients do, and its mix of faults.
2. Safety and liveness are those of `LogScenario`: the log checker's and what each client beside it judges.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from gnomon.bookie.auditor import AuditSettings
from gnomon.bookie.ledgers import REPLICATED
from gnomon.testing.broker_cluster import BrokerCluster
from gnomon.testing.ledger_probes import ledger_probes
from gnomon.testing.ledger_storm import LedgerStorm
from gnomon.testing.log_scenario import LogScenario
from gnomon.testing.simulation import Simulation

COPIES = REPLICATED.ensemble_size


@dataclass(frozen=True, slots=True)
class ClusterScenario:
    """A scenario for `simulate` and `sweep`; returns the number of records in the log.

    Attributes:
        clients: who uses the cluster, and how long the storm lasts; its nodes are replaced by the cluster's.
        kafka: settings of all brokers by Kafka's names.
        brokers, bookies: how many at most.
    """

    clients: LogScenario = field(default_factory=lambda: LogScenario({}, []))
    kafka: Mapping[str, str] = field(default_factory=dict)
    brokers: int = 3
    bookies: int = 5

    async def __call__(self, simulation: Simulation) -> int:
        """Runs it once; raises as `LogScenario`."""
        stream = simulation.random("cluster")
        brokers, bookies = stream.randint(1, self.brokers), stream.randint(COPIES, self.bookies)
        lease_seconds = stream.choice([1.0, 3.0, 6.0])
        audit = AuditSettings(grace_seconds=stream.choice([2.0, 10.0]), interval_seconds=1.0, lease_seconds=2.0)
        cluster = BrokerCluster(
            simulation, brokers, bookies, lease_seconds=lease_seconds, kafka=self.kafka, audit=audit
        )
        simulation.trace.add(f"{brokers} brokers, {bookies} bookies, leases of {lease_seconds} s")
        beside = LedgerStorm(cluster.ledgers, [], flips=True, drains=bookies > COPIES)
        simulation.start_soon(beside.rage, self.clients.storm_seconds)
        clients = replace(self.clients, nodes=cluster.nodes(), bootstrap=cluster.bootstrap, together=False)
        with ledger_probes(simulation.coverage):
            return await clients(simulation)
