"""Every setting of a process: its name, default and line of documentation, and where its value came from.

1. A flag wins over the environment, the environment over the file, the file over the default.
2. An unknown name and a value of the wrong type are errors; nothing is ignored.
3. Each value's origin is known (`gnomon config show --origin`).

Kafka's own settings (`num.partitions`) stand in the section `kafka` under Kafka's names; the broker declares them and
passes their names and their check in. Why there is no settings library here: docs/decisions/0004-settings.md.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields
from enum import Enum
from pathlib import Path
from types import MappingProxyType
from typing import Any

from gnomon.runtime.logs import FORMATS, LEVELS
from gnomon.runtime.world import Durability

ENVIRONMENT_PREFIX = "GNOMON_"
FILE_VARIABLE = "GNOMON_CONFIG"
"""Names the settings file; read by the command line, hence not a setting."""

MIB = 1 << 20
PORT_MAX = 65535
_TRUTHS = {"true": True, "false": False}
EVERY_ADDRESS = ("0.0.0.0", "::")
"""Where a host is to listen on all of its addresses: nothing that others could connect to."""


class SettingsError(Exception):
    """A setting is unknown or its value unfit; the text names it, where it stood, and what would do."""


def _setting(
    default: object, doc: str, *, minimum: float = 0, maximum: float | None = None, choices: Collection[str] = ()
) -> Any:
    metadata = {"doc": doc, "minimum": minimum, "maximum": maximum, "choices": tuple(choices)}
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """Addresses and memory bounds of the broker."""

    kafka_host: str = _setting("127.0.0.1", "Address that Kafka clients connect to; `0.0.0.0` or `::` is all of them.")
    kafka_port: int = _setting(9092, "Port for Kafka clients; 0 picks a free one.", maximum=PORT_MAX)
    advertised_host: str = _setting("", "Host name that clients are told to come back to; empty is `kafka_host`.")
    native_host: str = _setting("", "Address that native clients connect to; empty is `kafka_host`.")
    native_port: int = _setting(6650, "Port for native clients; 0 picks a free one.", maximum=PORT_MAX)
    admin_host: str = _setting("127.0.0.1", "Address of the admin API, health and metrics.")
    admin_port: int = _setting(8080, "Port of the admin API, health and metrics; 0 picks a free one.", maximum=PORT_MAX)
    request_queue_bytes_max: int = _setting(
        256 * MIB, "Bytes of requests in memory in all; beyond, sockets are not read.", minimum=MIB
    )
    connection_request_bytes_max: int = _setting(
        32 * MIB, "Bytes of unanswered requests of one connection; beyond, it is not read.", minimum=1
    )
    connections_max: int = _setting(10_000, "Kafka connections at a time; further ones are closed at once.", minimum=1)
    entry_cache_bytes_max: int = _setting(
        64 * MIB, "Bytes of entries kept in memory whose bookies are in other processes.", minimum=1
    )

    def __post_init__(self) -> None:
        if not self.advertised_host:
            object.__setattr__(self, "advertised_host", self.kafka_host)
        if not self.native_host:
            object.__setattr__(self, "native_host", self.kafka_host)


@dataclass(frozen=True, slots=True)
class BookieSettings:
    """The store of entries."""

    map_bytes: int = _setting(
        1 << 40, "Largest size of the entry store's file; it takes disk space only as it grows.", minimum=MIB
    )
    durability: Durability = _setting(  # noqa: RUF009 - makes a field
        Durability.SYNCED, "`synced`: acknowledged means on disk. `none`: a power cut may lose data; for tests only."
    )
    garbage_interval_seconds: float = _setting(
        10.0, "Pause between two looks for entries that no ledger needs.", minimum=0.001
    )


@dataclass(frozen=True, slots=True)
class MetadataSettings:
    """The metadata store."""

    history_revisions: int = _setting(
        10_000,
        "Revisions kept for watches that come back after a gap; fewer where they wrote more than 100,000 keys.",
        minimum=1,
    )
    map_bytes: int = _setting(
        1 << 36, "Largest size of the metadata store's file; it takes disk space only as it grows.", minimum=MIB
    )


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """Which cluster a process belongs to."""

    metadata: str = _setting(
        "", "The cluster's metadata: `HOST:PORT[,HOST:PORT…]` of `gnomon metadata`, or `etcd://HOST:PORT[,HOST:PORT…]`."
    )
    explicit_lac_seconds: float = _setting(
        0.01,
        "How long after a writer's last add its bookies are told that it is confirmed, for readers elsewhere.",
        minimum=0.001,
    )


@dataclass(frozen=True, slots=True)
class MetadataServiceSettings:
    """`gnomon metadata`: where the metadata store is served to the other processes of a cluster."""

    host: str = _setting("127.0.0.1", "Address that the cluster's processes connect to; `0.0.0.0` or `::` is all.")
    port: int = _setting(4001, "Port for the cluster's processes; 0 picks a free one.", maximum=PORT_MAX)
    admin_host: str = _setting("127.0.0.1", "Address of health and metrics.")
    admin_port: int = _setting(8081, "Port of health and metrics; 0 picks a free one.", maximum=PORT_MAX)


@dataclass(frozen=True, slots=True)
class BookieServiceSettings:
    """`gnomon bookie`: where a bookie is served, and what it says of itself."""

    name: str = _setting("", "Name of the bookie, unlike any other of the cluster; its disk belongs to it.")
    host: str = _setting("127.0.0.1", "Address that the cluster's processes connect to; `0.0.0.0` or `::` is all.")
    port: int = _setting(4002, "Port for the cluster's processes; 0 picks a free one.", maximum=PORT_MAX)
    advertised_host: str = _setting("", "Host name that the others are told to connect to; empty is `host`.")
    domain: str = _setting("", "Rack or zone; copies are spread over as many as there are.")
    lease_seconds: float = _setting(6.0, "How soon the others learn that a bookie died.", minimum=0.5)
    admin_host: str = _setting("127.0.0.1", "Address of health and metrics.")
    admin_port: int = _setting(8082, "Port of health and metrics; 0 picks a free one.", maximum=PORT_MAX)

    def __post_init__(self) -> None:
        if not self.advertised_host:
            object.__setattr__(self, "advertised_host", self.host)


@dataclass(frozen=True, slots=True)
class BrokerServiceSettings:
    """`gnomon broker`: what one of several brokers needs beyond the section `broker`."""

    rack: str = _setting("", "What clients are told as the broker's rack.")
    lease_seconds: float = _setting(6.0, "How soon the others take over the partitions of a dead broker.", minimum=0.5)
    ensemble_size: int = _setting(3, "Bookies that a new ledger lies on; with fewer there is none.", minimum=1)
    write_quorum: int = _setting(3, "Copies of each entry of a new ledger.", minimum=1)
    ack_quorum: int = _setting(2, "Copies on disk before a record is acknowledged.", minimum=1)


@dataclass(frozen=True, slots=True)
class AuditorSettings:
    """The auditor that every bookie process stands for; one of them works at a time."""

    grace_seconds: float = _setting(60.0, "How long a bookie may be away before its entries are copied elsewhere.")
    interval_seconds: float = _setting(5.0, "Pause between two rounds.", minimum=0.001)
    lease_seconds: float = _setting(10.0, "How long after the auditor died another one takes over.", minimum=0.5)
    repair_bytes_per_second: float = _setting(32.0 * MIB, "Most bytes a second that repair copies.", minimum=1)


@dataclass(frozen=True, slots=True)
class SubscriptionsSettings:
    """Durable subscriptions: where their positions are kept, and how often they are stored."""

    log_segment_based_subscriptions_store_enabled: bool = _setting(
        False,
        "Keep positions in a log segment for each subscription, instead of in the metadata; either way what the other"
        " wrote is read.",
    )
    flush_seconds: float = _setting(
        1.0, "How often changed positions are stored; what was acknowledged since may come again.", minimum=0.001
    )
    flush_positions_max: int = _setting(
        10_000, "Positions stored at a time; those that changed longest ago go first.", minimum=1
    )
    ranges_max: int = _setting(
        1000,
        "Runs acknowledged out of order that are stored for a subscription; those beyond come again.",
        maximum=10_000,
    )
    segment_entries_max: int = _setting(
        10_000, "Positions in a segment of a subscription before the next one begins.", minimum=1
    )


@dataclass(frozen=True, slots=True)
class ShadowReplicationSettings:
    """How the broker of a source tells those of its shadows what was written."""

    inline_bytes_max: int = _setting(
        16_384,
        "Largest entry that is sent along for the shadow's readers; a larger one the shadow reads from its bookies.",
    )
    shadow_replicator_auto_reset_backlog_entries: int = _setting(
        0,
        "Where more entries than this wait to be told to a shadow it is told the latest alone, and reads what was"
        " skipped from its bookies; 0 is no limit.",
    )
    flush_seconds: float = _setting(
        5.0,
        "How often it is stored how far each shadow was told; a new owner tells it again what came since.",
        minimum=0.001,
    )


@dataclass(frozen=True, slots=True)
class LogSettings:
    """What is logged to standard error, and how."""

    level: str = _setting("info", "Least level written.", choices=tuple(LEVELS))
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
    log: LogSettings = field(default_factory=LogSettings)
    kafka: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Kafka's broker settings that were given, by Kafka's names."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One declared setting."""

    name: str
    """`section.name` as flags and error texts have it."""
    default: Any
    doc: str
    minimum: float
    maximum: float | None
    choices: tuple[str, ...]

    @property
    def variable(self) -> str:
        """Its environment variable."""
        return _variable(self.name)


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value came from: `default`, `file`, `environment` or `flag`, and the file or variable."""

    kind: str
    place: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.place}".rstrip()


@dataclass(frozen=True, slots=True)
class Loaded:
    """Settings and the origin of each, by name: all declared ones, and those of `kafka` that were given."""

    settings: Settings
    origins: dict[str, Origin]


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
    "log": LogSettings,
}


def declared_settings() -> dict[str, Setting]:
    """Every setting but Kafka's, by name, in the order of declaration."""
    found = {}
    for prefix, section in (("", Settings), *((f"{name}.", section) for name, section in SECTIONS.items())):
        for item in fields(section):
            if item.default is not MISSING:
                found[prefix + item.name] = Setting(prefix + item.name, item.default, **item.metadata)
    return found


def load_settings(
    file: Path | None,
    environment: Mapping[str, str],
    flags: Mapping[str, object],
    *,
    kafka_names: Collection[str] = (),
    kafka_check: Callable[[str, str], None] | None = None,
) -> Loaded:
    """Reads and checks every setting.

    Args:
        file: a TOML file, or None.
        environment: usually `os.environ`; names that do not begin with `GNOMON_` are skipped.
        flags: by dotted name (`broker.kafka_port`, `kafka.num.partitions`, `data_dir`); texts are parsed.
        kafka_names: Kafka's names that the section `kafka` takes.
        kafka_check: raises ValueError with the reason where a value does not fit the Kafka setting of that name.

    Raises:
        SettingsError: a name is unknown, a value unfit, or the file cannot be read.
    """
    declared = declared_settings()
    known = [*declared, *(f"kafka.{name}" for name in kafka_names)]
    values: dict[str, Any] = {name: setting.default for name, setting in declared.items()}
    origins = {name: Origin("default") for name in declared}
    for name, value, origin in _given(file, environment, flags, known):
        if name in declared:
            values[name] = _checked(declared[name], value, origin)
        else:
            values[name] = _checked_kafka(name, value, origin, kafka_check)
        origins[name] = origin

    def section(prefix: str) -> dict[str, Any]:
        return {name.removeprefix(prefix): value for name, value in values.items() if name.startswith(prefix)}

    parts: dict[str, Any] = {name.replace(".", "_"): kind(**section(f"{name}.")) for name, kind in SECTIONS.items()}
    settings = Settings(data_dir=values["data_dir"], kafka=MappingProxyType(section("kafka.")), **parts)
    return Loaded(settings, origins)


def _given(
    file: Path | None, environment: Mapping[str, str], flags: Mapping[str, object], known: list[str]
) -> Iterator[tuple[str, object, Origin]]:
    """All values that were given, weakest first; every name is known."""
    if file is not None:
        origin = Origin("file", str(file))
        for name, value in _flatten(_read_toml(file), ""):
            yield _known(name, known, origin), value, origin
    variables = {_variable(name): name for name in known}
    for variable in sorted(environment):
        if variable.startswith(ENVIRONMENT_PREFIX) and variable != FILE_VARIABLE:
            origin = Origin("environment", variable)
            if variable not in variables:
                raise _unknown(variable, list(variables), Origin("environment"))
            yield variables[variable], environment[variable], origin
    for name, value in flags.items():
        yield _known(name, known, Origin("flag")), value, Origin("flag")


def _variable(name: str) -> str:
    section, dot, rest = name.partition(".")
    return (ENVIRONMENT_PREFIX + section + ("__" if dot else "") + rest.replace(".", "_")).upper()


def _known(name: str, known: list[str], origin: Origin) -> str:
    if name not in known:
        raise _unknown(name, known, origin)
    return name


def _unknown(name: str, known: list[str], origin: Origin) -> SettingsError:
    import difflib

    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    advice = f"did you mean {near[0]}?" if near else "`gnomon config show` lists them all"
    return SettingsError(f"unknown setting {name} ({origin}): {advice}")


def _read_toml(file: Path) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SettingsError(f"the settings file {file} does not exist: create it or leave it out") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingsError(f"the settings file {file} cannot be read: {error}") from error


def _flatten(table: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, object]]:
    """`num.partitions = 4` nests in TOML; here it is one name again."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _checked(setting: Setting, value: object, origin: Origin) -> object:
    kind = type(setting.default)
    try:
        converted = _converted(kind, value, origin.kind != "file")
    except (ValueError, TypeError, KeyError):
        raise _unfit(setting.name, _expected(kind), value, origin) from None
    if setting.choices and converted not in setting.choices:
        raise _unfit(setting.name, "one of " + ", ".join(setting.choices), value, origin)
    if isinstance(converted, int | float):
        if converted < setting.minimum:
            raise _unfit(setting.name, f"at least {setting.minimum}", value, origin)
        if setting.maximum is not None and converted > setting.maximum:
            raise _unfit(setting.name, f"at most {setting.maximum}", value, origin)
    return converted


def _converted(kind: type, value: object, texts: bool) -> object:
    """The value as `kind`; `texts` says that numbers may come as texts."""
    if isinstance(value, kind) and not (kind is int and isinstance(value, bool)):
        return value
    if kind in (int, float) and ((texts and isinstance(value, str)) or (kind is float and type(value) is int)):
        return kind(value)
    if kind is bool and texts and isinstance(value, str):
        return _TRUTHS[value.lower()]
    if (issubclass(kind, Path) or issubclass(kind, Enum)) and isinstance(value, str):
        return kind(value)
    raise TypeError


def _expected(kind: type) -> str:
    if issubclass(kind, Enum):
        return "one of " + ", ".join(str(member.value) for member in kind)
    return {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}.get(kind, "a path")


def _unfit(name: str, expected: str, value: object, origin: Origin) -> SettingsError:
    return SettingsError(f"setting {name} ({origin}) must be {expected}, not {value!r}")


def _checked_kafka(name: str, value: object, origin: Origin, check: Callable[[str, str], None] | None) -> str:
    if isinstance(value, bool):
        text = str(value).lower()
    elif isinstance(value, list):
        text = ",".join(map(str, value))
    else:
        text = str(value)
    if check is not None:
        try:
            check(name.removeprefix("kafka."), text)
        except ValueError as error:
            raise SettingsError(f"setting {name} ({origin}) has the unfit value {text!r}: {error}") from error
    return text
