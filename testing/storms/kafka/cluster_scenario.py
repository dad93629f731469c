"""The scenario of the sweeps over whole clusters: Kafka clients, and a storm over brokers, bookies and metadata.

    result = sweep(ClusterScenario(clients), range(200))

1. Each seed draws the numbers of brokers and bookies, their leases, the clients' habits and its mix of faults.
2. Safety and liveness are those of `LogScenario`, with the rules of the log checker and of every client beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from gnomon.bookie.ledgers.ledgers import REPLICATED
from gnomon.bookie.repair.auditor import AuditSettings
from gnomon.testing.simulation.simulation import Simulation
from gnomon.testing.storms.kafka.broker_cluster import BrokerCluster, Tenant
from gnomon.testing.storms.kafka.log_scenario import LogScenario
from gnomon.testing.storms.ledgers.ledger_probes import ledger_probes
from gnomon.testing.storms.ledgers.ledger_storm import LedgerStorm

COPIES = REPLICATED.ensemble_size


@dataclass(frozen=True, slots=True)
class ClusterScenario:
    """A scenario for `simulate` and `sweep`; returns the number of records in the log.

    Attributes:
        clients: the clients, and the duration of the storm; its nodes are replaced by the cluster's.
        kafka: settings of all brokers by Kafka's names.
        brokers, bookies: the highest numbers that a seed draws.
        tenant: a task that runs in each broker while it serves.
    """

    clients: LogScenario = field(default_factory=lambda: LogScenario({}, []))
    kafka: Mapping[str, str] = field(default_factory=dict)
    brokers: int = 3
    bookies: int = 5
    tenant: Tenant | None = None

    async def __call__(self, simulation: Simulation) -> int:
        """Runs the scenario once; raises as `LogScenario`."""
        stream = simulation.random("cluster")
        brokers, bookies = stream.randint(1, self.brokers), stream.randint(COPIES, self.bookies)
        lease_seconds = stream.choice([1.0, 3.0, 6.0])
        audit = AuditSettings(grace_seconds=stream.choice([2.0, 10.0]), interval_seconds=1.0, lease_seconds=2.0)
        cluster = BrokerCluster(
            simulation,
            brokers,
            bookies,
            lease_seconds=lease_seconds,
            kafka=self.kafka,
            audit=audit,
            tenant=self.tenant,
        )
        simulation.trace.add(f"{brokers} brokers, {bookies} bookies, leases of {lease_seconds} s")
        beside = LedgerStorm(cluster.ledgers, [], flips=True, drains=bookies > COPIES)
        simulation.start_soon(beside.rage, self.clients.storm_seconds)
        clients = replace(self.clients, nodes=cluster.nodes(), bootstrap=cluster.bootstrap, together=False)
        with ledger_probes(simulation.coverage):
            return await clients(simulation)
