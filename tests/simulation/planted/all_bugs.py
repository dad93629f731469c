"""The planted bugs of all files beside this one."""

from __future__ import annotations

from planted import BUGS, PlantedBug
from planted.at_rest import COPIES_BUGS, REST_BUGS
from planted.churn import CHURN_BUGS
from planted.clusters import CLUSTER_BUGS
from planted.conditions import CONDITION_BUGS
from planted.groups import GROUP_BUGS
from planted.latencies import LATENCY_BUGS
from planted.ledgers import LEDGER_BUGS
from planted.logs import LOG_BUGS
from planted.older_copies import OLDER_COPY_BUGS
from planted.plans import PLAN_BUGS
from planted.shadows import SHADOW_BUGS
from planted.sinks import SINK_BUGS
from planted.stored_tables import STORED_TABLE_BUGS
from planted.subscriptions import SUBSCRIPTION_BUGS
from planted.tables import TABLE_BUGS

ALL_BUGS: list[PlantedBug] = [
    *(*BUGS, *LEDGER_BUGS, *OLDER_COPY_BUGS, *CLUSTER_BUGS, *SHADOW_BUGS, *SUBSCRIPTION_BUGS, *CONDITION_BUGS),
    *(*REST_BUGS, *COPIES_BUGS, *LATENCY_BUGS, *GROUP_BUGS, *LOG_BUGS, *CHURN_BUGS, *PLAN_BUGS, *SINK_BUGS),
    *(*TABLE_BUGS, *STORED_TABLE_BUGS),
]
