"""The parts of a broker that its admin API shows and changes."""

from __future__ import annotations

from dataclasses import dataclass

from gnomon.broker.admin.tables.table_clients import TableClients
from gnomon.broker.authorization.authorizer import Authorizer
from gnomon.broker.configs.broker_configs import BrokerConfigs
from gnomon.broker.in_use.partitions_in_use import PartitionsInUse
from gnomon.broker.native.subscription_admin import SubscriptionAdmin
from gnomon.broker.placement.placement import Placement
from gnomon.broker.replication.shadow_replication import ShadowReplication
from gnomon.broker.storage import Storage
from gnomon.broker.topics.topic_admin import TopicAdmin
from gnomon.broker.topics.topic_records import TopicRecords
from gnomon.broker.topics.topics import Topics
from gnomon.runtime.logs import Logger
from gnomon.runtime.world import World


@dataclass(frozen=True, slots=True)
class Administered:
    """The parts for the admin port, whose server is created when the first client connects."""

    topics: Topics
    records: TopicRecords
    admin: TopicAdmin
    placement: Placement
    partitions: PartitionsInUse
    replication: ShadowReplication
    subscriptions: SubscriptionAdmin
    tables: TableClients
    configs: BrokerConfigs
    authorizer: Authorizer
    cluster_id: str
    storage: Storage
    world: World
    log: Logger
