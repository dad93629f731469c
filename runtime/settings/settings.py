"""Every setting of a process: its name, type, default, bounds and line of documentation.

Kafka's own settings (`num.partitions`) are in the section `kafka` under Kafka's names; the broker declares them.
`loaded_settings.py` reads values from file, environment and flags.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from gnomon.runtime.logs import FORMATS, LEVELS
from gnomon.runtime.settings.endpoint import PORT_MAX
from gnomon.runtime.world import Durability

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

ENVIRONMENT_PREFIX = "GNOMON_"
MIB = 1 << 20
MAP_BYTES_MAX = 1 << 45
"""A quarter of a process's address space, since one process may open two stores."""


def _setting(
    default: object,
    doc: str,
    *,
    minimum: float = 0,
    maximum: float | None = None,
    choices: Collection[str] = (),
    follows: str = "",
) -> Any:
    metadata = {"doc": doc, "minimum": minimum, "maximum": maximum, "choices": tuple(choices), "follows": follows}
    return field(default=default, metadata=metadata)


def _follow(section: DataclassInstance) -> None:
    """Gives each empty setting the value of the setting that it follows."""
    for item in fields(section):
        followed = item.metadata["follows"]
        if followed and not getattr(section, item.name):
            object.__setattr__(section, item.name, getattr(section, followed))


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """Addresses and memory bounds of the broker."""

    kafka_host: str = _setting(
        "127.0.0.1",
        "Address that Kafka clients connect to; `0.0.0.0` or `::` means all. Kafka's `listeners` replaces it.",
    )
    kafka_port: int = _setting(
        9092, "Port for Kafka clients; 0 picks a free one. Kafka's `listeners` replaces it.", maximum=PORT_MAX
    )
    advertised_host: str = _setting(
        "",
        "Host name that clients connect to; empty means `kafka_host`. Kafka's `advertised.listeners` replaces it, and"
        " gives a port, too.",
        follows="kafka_host",
    )
    native_host: str = _setting(
        "", "Address that native clients connect to; empty means `kafka_host`.", follows="kafka_host"
    )
    native_port: int = _setting(6650, "Port for native clients; 0 picks a free one.", maximum=PORT_MAX)
    native_advertised_host: str = _setting(
        "",
        "Host name that native clients and other brokers connect to; empty means `advertised_host`.",
        follows="advertised_host",
    )
    native_advertised_port: int = _setting(
        0, "Port that native clients and other brokers connect to; 0 means the one of `native_port`.", maximum=PORT_MAX
    )
    admin_host: str = _setting("127.0.0.1", "Address of the admin API, health and metrics.")
    admin_port: int = _setting(8080, "Port of the admin API, health and metrics; 0 picks a free one.", maximum=PORT_MAX)
    request_queue_bytes_max: int = _setting(
        256 * MIB, "Bytes of all requests in memory; beyond that, sockets are not read.", minimum=MIB
    )
    connection_request_bytes_max: int = _setting(
        32 * MIB, "Bytes of unanswered requests of one connection; beyond that, it is not read.", minimum=1
    )
    connections_max: int = _setting(
        10_000, "Kafka connections at the same time; further ones are closed at once.", minimum=1
    )
    entry_cache_bytes_max: int = _setting(
        64 * MIB, "Bytes of the memory cache for entries of bookies in other processes.", minimum=1
    )
    acknowledge_with_fewer_copies: bool = _setting(
        False,
        "Whether acks=all succeeds if a topic's `min.insync.replicas` asks for more copies than a record has when it"
        " is acknowledged; for tests only.",
    )

    def __post_init__(self) -> None:
        _follow(self)


@dataclass(frozen=True, slots=True)
class BookieSettings:
    """The store of entries."""

    map_bytes: int = _setting(
        1 << 40,
        "Largest size of the entry store's file, which uses disk space only as it grows.",
        minimum=MIB,
        maximum=MAP_BYTES_MAX,
    )
    durability: Durability = _setting(  # noqa: RUF009 - makes a field
        Durability.SYNCED, "`synced`: acknowledged means on disk. `none`: a power cut may lose data; for tests only."
    )
    garbage_interval_seconds: float = _setting(
        10.0, "Pause between two searches for entries that no ledger needs.", minimum=0.001
    )
    accept_older_metadata: bool = _setting(
        False,
        "Start with metadata that is older than this bookie has seen. It removes the entries of every ledger that the "
        "metadata does not name: only after a restore that cannot be avoided.",
    )
    accept_older_store: bool = _setting(
        False,
        "Start on an older copy of the entry store, and give up the records that it lacks. A bookie of a cluster does "
        "not need it, since it is repaired from other copies. Unset it after the start.",
    )


@dataclass(frozen=True, slots=True)
class MetadataSettings:
    """The metadata store."""

    history_revisions: int = _setting(
        10_000,
        "Revisions kept for watches that reconnect after a gap; fewer if their events take more than 32 MiB.",
        minimum=1,
    )
    map_bytes: int = _setting(
        1 << 36,
        "Largest size of the metadata store's file, which uses disk space only as it grows.",
        minimum=MIB,
        maximum=MAP_BYTES_MAX,
    )


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """The cluster that a process belongs to."""

    metadata: str = _setting(
        "", "The cluster's metadata: `HOST:PORT[,HOST:PORT…]` of `gnomon metadata`, or `etcd://HOST:PORT[,HOST:PORT…]`."
    )
    explicit_lac_seconds: float = _setting(
        0.01,
        "Delay after a writer's last add before it sends the last add confirmed to bookies, for other readers.",
        minimum=0.001,
    )


@dataclass(frozen=True, slots=True)
class MetadataServiceSettings:
    """`gnomon metadata`: the address where the metadata store is served to the other processes of a cluster."""

    host: str = _setting("127.0.0.1", "Address that the cluster's processes connect to; `0.0.0.0` or `::` means all.")
    port: int = _setting(4001, "Port for the cluster's processes; 0 picks a free one.", maximum=PORT_MAX)
    admin_host: str = _setting("127.0.0.1", "Address of health and metrics.")
    admin_port: int = _setting(8081, "Port of health and metrics; 0 picks a free one.", maximum=PORT_MAX)


@dataclass(frozen=True, slots=True)
class BookieServiceSettings:
    """`gnomon bookie`: the address where a bookie is served, and its registration."""

    name: str = _setting("", "Name of the bookie, unique in the cluster; its disk is bound to it.")
    host: str = _setting("127.0.0.1", "Address that the cluster's processes connect to; `0.0.0.0` or `::` means all.")
    port: int = _setting(4002, "Port for the cluster's processes; 0 picks a free one.", maximum=PORT_MAX)
    advertised_host: str = _setting(
        "", "Host name that the other processes connect to; empty means `host`.", follows="host"
    )
    advertised_port: int = _setting(
        0, "Port that the other processes connect to; 0 means the one of `port`.", maximum=PORT_MAX
    )
    domain: str = _setting("", "Rack or zone; copies are spread over all of them.")
    lease_seconds: float = _setting(6.0, "Time until the others notice that a bookie died.", minimum=0.5)
    admin_host: str = _setting("127.0.0.1", "Address of health and metrics.")
    admin_port: int = _setting(8082, "Port of health and metrics; 0 picks a free one.", maximum=PORT_MAX)

    def __post_init__(self) -> None:
        _follow(self)


@dataclass(frozen=True, slots=True)
class BrokerServiceSettings:
    """`gnomon broker`: settings of one of several brokers beyond the section `broker`."""

    rack: str = _setting("", "The broker's rack, as sent to clients.")
    lease_seconds: float = _setting(6.0, "Time until the others take over a dead broker's partitions.", minimum=0.5)
    ensemble_size: int = _setting(3, "Bookies of a new ledger; with fewer none is created.", minimum=1)
    write_quorum: int = _setting(3, "Copies of each entry of a new ledger.", minimum=1)
    ack_quorum: int = _setting(2, "Copies on disk before a record is acknowledged.", minimum=1)


@dataclass(frozen=True, slots=True)
class AuditorSettings:
    """The auditor: every bookie process takes part in its election, and one works at a time."""

    grace_seconds: float = _setting(60.0, "Time that a bookie may be away before its entries are copied to others.")
    interval_seconds: float = _setting(5.0, "Pause between two rounds.", minimum=0.001)
    lease_seconds: float = _setting(10.0, "Time until another auditor takes over after the auditor died.", minimum=0.5)
    repair_bytes_per_second: float = _setting(
        32.0 * MIB,
        "Limit for the bytes a second that repair copies. An entry that it only looks for counts as 100 bytes.",
        minimum=1,
    )


@dataclass(frozen=True, slots=True)
class SubscriptionsSettings:
    """Durable subscriptions: where their positions are kept, and how often they are stored."""

    log_segment_based_subscriptions_store_enabled: bool = _setting(
        False,
        "Keep positions in a log segment for each subscription, instead of in the metadata; positions stored in the"
        " other way are read.",
    )
    flush_seconds: float = _setting(
        1.0,
        "Interval at which changed positions are stored; records acknowledged since may be delivered again.",
        minimum=0.001,
    )
    flush_positions_max: int = _setting(
        10_000, "Positions stored at a time; those that changed longest ago are first.", minimum=1
    )
    ranges_max: int = _setting(
        1000,
        "Ranges acknowledged out of order that are stored for a subscription; further ones are delivered again.",
        maximum=10_000,
    )
    segment_entries_max: int = _setting(
        10_000, "Positions in a subscription's segment before the next segment begins.", minimum=1
    )
    metrics_max: int = _setting(
        0,
        "Subscriptions of a broker's partitions whose backlog is a metric of its own, those with the largest backlogs;"
        " 0 means sums alone.",
        maximum=10_000,
    )


@dataclass(frozen=True, slots=True)
class ShadowReplicationSettings:
    """Replication of entries from the broker of a source to the brokers of its shadows."""

    inline_bytes_max: int = _setting(
        16_384,
        "Largest entry that is sent to a shadow's broker; the shadow reads a larger one from its bookies.",
    )
    shadow_replicator_auto_reset_backlog_entries: int = _setting(
        0,
        "If more entries than this wait for a shadow, only the latest is sent; the shadow reads the skipped ones from"
        " its bookies. 0 means no limit.",
    )
    flush_seconds: float = _setting(
        5.0,
        "Interval at which each shadow's replication cursor is stored; a new owner sends later entries again.",
        minimum=0.001,
    )


@dataclass(frozen=True, slots=True)
class TableSettings:
    """Tables (topics with `gnomon.view=kv`) of a broker."""

    memory_bytes_max: int = _setting(
        1 << 30,
        "Memory of all tables of a broker whose entries are in memory; a write that needs more is refused.",
    )
    flush_bytes: int = _setting(
        16 * MIB,
        "Changes of a table on disk, in bytes of memory, after which they are written to its store.",
        minimum=1,
    )
    flush_seconds: float = _setting(
        5.0, "Age of the changes of a table on disk after which they are written to its store.", minimum=0.001
    )
    behind_bytes_max: int = _setting(
        64 * MIB,
        "Changes of a table on disk that wait in memory, for want of space in its store, before the table refuses "
        "reads and writes; its log goes on.",
        minimum=MIB,
    )
    snapshot_bytes_per_second: int = _setting(
        32 * MIB, "Rate at which a broker writes snapshots of tables, one at a time.", minimum=1
    )
    map_bytes: int = _setting(
        1 << 40,
        "Largest size of the file with the tables of a broker, which uses disk space only as it grows.",
        minimum=MIB,
        maximum=MAP_BYTES_MAX,
    )


@dataclass(frozen=True, slots=True)
class NetworkSettings:
    """The sockets of a process."""

    poller: str = _setting(
        "auto",
        "The call that waits for sockets: `epoll`, or `selectors` (slower) where the system has no epoll; `auto` is the"
        " first that there is.",
        choices=("auto", "epoll", "selectors"),
    )


@dataclass(frozen=True, slots=True)
class MetricsSettings:
    """Metrics of single topics and groups."""

    label_sets_max: int = _setting(
        0,
        "Most topics with metrics of their own, and most pairs of consumer group and topic; further ones are summed."
        " 0: none.",
        minimum=0,
        maximum=10_000,
    )


@dataclass(frozen=True, slots=True)
class LogOutputSettings:
    """The log on standard error: level and format."""

    level: str = _setting("info", "Lowest level written.", choices=tuple(LEVELS))
    format: str = _setting("auto", "`auto` is `console` on a terminal and `json` elsewhere.", choices=FORMATS)


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of a process."""

    data_dir: Path = _setting(  # noqa: RUF009 - makes a field
        Path("gnomon-data"), "Folder that holds everything this node stores."
    )
    broker: BrokerSettings = field(default_factory=BrokerSettings)
    bookie: BookieSettings = field(default_factory=BookieSettings)
    metadata: MetadataSettings = field(default_factory=MetadataSettings)
    cluster: ClusterSettings = field(default_factory=ClusterSettings)
    metadata_service: MetadataServiceSettings = field(default_factory=MetadataServiceSettings)
    bookie_service: BookieServiceSettings = field(default_factory=BookieServiceSettings)
    broker_service: BrokerServiceSettings = field(default_factory=BrokerServiceSettings)
    auditor: AuditorSettings = field(default_factory=AuditorSettings)
    subscriptions: SubscriptionsSettings = field(default_factory=SubscriptionsSettings)
    shadow_replication: ShadowReplicationSettings = field(default_factory=ShadowReplicationSettings)
    table: TableSettings = field(default_factory=TableSettings)
    network: NetworkSettings = field(default_factory=NetworkSettings)
    metrics: MetricsSettings = field(default_factory=MetricsSettings)
    log: LogOutputSettings = field(default_factory=LogOutputSettings)
    kafka: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Kafka's broker settings that were given, by Kafka's names."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One declared setting."""

    name: str
    """`section.name` as in flags and error texts."""
    default: Any
    doc: str
    minimum: float
    maximum: float | None
    choices: tuple[str, ...]
    follows: str
    """The name of the setting whose value this one takes while it is empty; empty for no such setting."""

    @property
    def variable(self) -> str:
        """Its environment variable."""
        return environment_variable(self.name)


SECTIONS = {
    "broker": BrokerSettings,
    "bookie": BookieSettings,
    "metadata": MetadataSettings,
    "cluster": ClusterSettings,
    "metadata_service": MetadataServiceSettings,
    "bookie_service": BookieServiceSettings,
    "broker_service": BrokerServiceSettings,
    "auditor": AuditorSettings,
    "subscriptions": SubscriptionsSettings,
    "shadow.replication": ShadowReplicationSettings,
    "table": TableSettings,
    "network": NetworkSettings,
    "metrics": MetricsSettings,
    "log": LogOutputSettings,
}


def declared_settings() -> dict[str, Setting]:
    """Every setting except Kafka's, by name, in the order of declaration."""
    found = {}
    for prefix, section in (("", Settings), *((f"{name}.", section) for name, section in SECTIONS.items())):
        for item in fields(section):
            if item.default is not MISSING:
                followed = item.metadata["follows"]
                others = {**item.metadata, "follows": followed and prefix + followed}
                found[prefix + item.name] = Setting(prefix + item.name, item.default, **others)
    return found


def environment_variable(name: str) -> str:
    """The environment variable of the setting of this name; Kafka's names begin with `kafka.`."""
    section, dot, rest = name.partition(".")
    return (ENVIRONMENT_PREFIX + section + ("__" if dot else "") + rest.replace(".", "_")).upper()
