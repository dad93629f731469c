"""The table that a call of a native client names."""

from __future__ import annotations

from gnomon.broker.configs.topic_configs import VIEW
from gnomon.broker.native.tables.table_arguments import TablePlace
from gnomon.broker.native.writes.write_targets import WriteTargets
from gnomon.broker.partition.partition import Partition
from gnomon.broker.tables.hosted_table import HostedTable
from gnomon.client.errors import NotATable


def hosted_table(targets: WriteTargets, place: TablePlace) -> tuple[Partition, HostedTable]:
    """The partition of a call, and its table.

    Raises:
        NativeError: this broker does not lead it, or it is no table.
    """
    targets.check_topic(place.topic, place.topic_id)
    partition = targets.partition(place.topic, place.partition)
    table = partition.view
    if not isinstance(table, HostedTable):
        raise NotATable(f"topic '{place.topic}' is no table: tables are created with {VIEW}=kv")
    return partition, table
