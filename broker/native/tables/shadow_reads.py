"""Reads of tables on their shadows: older values will do, and nobody is asked whether they are the newest."""

from __future__ import annotations

from gnomon.broker.configs.topic_configs import VIEW, is_table
from gnomon.broker.in_use.partitions_in_use import PartitionsInUse
from gnomon.broker.native.tables.table_arguments import TablePlace
from gnomon.broker.placement.placement import Placement
from gnomon.broker.tables.hosted_table import HostedTable
from gnomon.broker.tables.hosted_tables import HostedTables
from gnomon.broker.tables.table_reads import Look, Refuse
from gnomon.broker.topics.topics import Topics
from gnomon.client.errors import InvalidCall, NotATable, NotLeader
from gnomon.log.topic import Topic


class ShadowReads:
    """The reads of shadows that this broker leads."""

    def __init__(self, topics: Topics, placement: Placement, partitions: PartitionsInUse, tables: HostedTables) -> None:
        self._topics = topics
        self._placement = placement
        self._partitions = partitions
        self._tables = tables

    def is_shadow(self, name: str) -> bool:
        """Whether a topic of this name is known here, and is a shadow."""
        found = self._topics.image.get(name)
        return found is not None and found.source is not None

    def read(self, place: TablePlace, look: Look, refuse: Refuse, *, stale: bool) -> None:
        """Calls `look` with the state that the shadow shows, or `refuse` with the reason why it shows none.

        Raises:
            NativeError: it is no shadow of a table, another broker leads it, or the newest value was asked for.
        """
        shadow = self._topics.image.get(place.topic)
        source = None if shadow is None else self._topics.image.source_of(shadow)
        if shadow is None or source is None or not is_table(source.configs):
            raise NotATable(f"topic '{place.topic}' is no shadow of a table: tables are created with {VIEW}=kv")
        if not stale:
            raise InvalidCall(
                f"topic '{place.topic}' is a shadow and answers stale reads only (stale=True): ask the table "
                f"'{source.name}' for the newest values"
            )
        if not 0 <= place.partition < shadow.partitions or not self._placement.leads(shadow, place.partition):
            raise NotLeader(f"this broker does not lead partition {place.partition} of '{place.topic}'")
        self._look(source, place.partition, look, refuse)

    def _look(self, source: Topic, index: int, look: Look, refuse: Refuse) -> None:
        replica = self._tables.replica(source.id, index)
        if replica is not None:
            replica.look(look, refuse)
            return
        view = self._partitions.use(source, index).view if self._placement.leads(source, index) else None
        if isinstance(view, HostedTable):  # this broker leads both
            view.reads.read(look, refuse, stale=True)
        else:
            refuse("the replica of the table is not open yet")
