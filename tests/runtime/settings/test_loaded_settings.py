from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gnomon.runtime.settings.loaded_settings import Loaded, Origin, SettingsError, load_settings
from gnomon.runtime.settings.settings import Settings, declared_settings
from gnomon.runtime.world import Durability

KAFKA_NAMES = ["num.partitions", "auto.create.topics.enable", "log.retention.ms", "log.roll.ms", "listener.names"]


def load(
    tmp_path: Path,
    toml: str | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, object] | None = None,
    **options: Any,
) -> Loaded:
    file = None
    if toml is not None:
        file = tmp_path / "gnomon.toml"
        file.write_text(toml)
    return load_settings(file, environment or {}, flags or {}, kafka_names=lambda: KAFKA_NAMES, **options)


def test_settings_without_a_source_have_their_default_and_that_origin(tmp_path: Path) -> None:
    loaded = load(tmp_path)
    assert loaded.settings == Settings()
    assert loaded.settings.broker.kafka_port == 9092
    assert set(loaded.origins) == set(declared_settings())
    assert {str(origin) for origin in loaded.origins.values()} == {"default"}


def test_a_flag_wins_over_the_environment_then_the_file_then_the_default(tmp_path: Path) -> None:
    toml = "[broker]\nkafka_port = 1\nadmin_port = 1\nkafka_host = 'file'"
    environment = {"GNOMON_BROKER__KAFKA_PORT": "2", "GNOMON_BROKER__ADMIN_PORT": "2", "PATH": "/bin"}
    loaded = load(tmp_path, toml, environment, {"broker.kafka_port": 3})
    broker = loaded.settings.broker
    assert (broker.kafka_port, broker.admin_port, broker.kafka_host) == (3, 2, "file")
    assert loaded.origins["broker.kafka_port"] == Origin("flag")
    assert str(loaded.origins["broker.admin_port"]) == "environment GNOMON_BROKER__ADMIN_PORT"
    assert str(loaded.origins["broker.kafka_host"]) == f"file {tmp_path / 'gnomon.toml'}"


def test_values_take_the_type_of_their_default(tmp_path: Path) -> None:
    toml = "data_dir = '/srv/g'\n[bookie]\ndurability = 'none'\ngarbage_interval_seconds = 3"
    settings = load(tmp_path, toml, {"GNOMON_METADATA__HISTORY_REVISIONS": "7"}, {"log.level": "debug"}).settings
    assert settings.data_dir == Path("/srv/g")
    assert settings.bookie.durability is Durability.NONE
    assert settings.bookie.garbage_interval_seconds == 3.0
    assert settings.metadata.history_revisions == 7
    assert settings.log.level == "debug"


def test_flags_may_be_typed_values_or_text(tmp_path: Path) -> None:
    flags = {"data_dir": Path("here"), "broker.kafka_port": "0", "bookie.durability": Durability.NONE}
    settings = load(tmp_path, flags=flags).settings
    assert settings.data_dir == Path("here")
    assert settings.broker.kafka_port == 0
    assert settings.bookie.durability is Durability.NONE


@pytest.mark.parametrize(
    ("toml", "environment", "flags", "text"),
    [
        (
            "[broker]\nkafka_prot = 1",
            {},
            {},
            r"broker\.kafka_prot \(file .*gnomon\.toml\): did you mean broker\.kafka_p",
        ),
        ("[brokr]\nkafka_port = 1", {}, {}, r"brokr\.kafka_port \(file .*did you mean broker\.kafka_port\?"),
        (
            None,
            {"GNOMON_BROKER__KAFKA_PROT": "1"},
            {},
            r"KAFKA_PROT \(environment\): did you mean GNOMON_BROKER__KAFKA_PO",
        ),
        (None, {}, {"data_dri": "x"}, r"data_dri \(flag\): did you mean data_dir\?"),
        ("[kafka]\nnum.partition = 1", {}, {}, r"kafka\.num\.partition .*did you mean kafka\.num\.partitions\?"),
        (None, {"GNOMON_KAFKA__NUM_PARTITION": "1"}, {}, r"did you mean GNOMON_KAFKA__NUM_PARTITIONS\?"),
        ("zzzzzzzzzzz = 1", {}, {}, r"zzzzzzzzzzz .*`gnomon config show` lists them all"),
    ],
)
def test_an_unknown_setting_is_an_error_that_names_its_source_and_the_nearest_setting(
    tmp_path: Path, toml: str | None, environment: dict[str, str], flags: dict[str, object], text: str
) -> None:
    with pytest.raises(SettingsError, match=text):
        load(tmp_path, toml, environment, flags)


@pytest.mark.parametrize(
    ("toml", "environment", "text"),
    [
        ("broker.kafka_port = '9092'", {}, r"broker\.kafka_port \(file .*\) must be a whole number, not '9092'"),
        ("broker.kafka_port = true", {}, r"must be a whole number, not True"),
        ("broker.kafka_port = 70000", {}, r"must be at most 65535, not 70000"),
        ("bookie.map_bytes = 99999999999999999999", {}, r"must be at most 35184372088832, not 99999999999999999999"),
        ("broker.kafka_host = 4", {}, r"must be a text, not 4"),
        (None, {"GNOMON_BROKER__KAFKA_HOST": ""}, r"broker\.kafka_host .* must be given where it is named, not ''"),
        ("data_dir = ''", {}, r"data_dir .* must be given where it is named"),
        ("bookie.garbage_interval_seconds = nan", {}, r"must be a finite number, not nan"),
        ("broker = 4", {}, r"unknown setting broker "),
        ("data_dir = 4", {}, r"must be a path, not 4"),
        ("bookie.durability = 'some'", {}, r"must be one of synced, none, not 'some'"),
        ("bookie.garbage_interval_seconds = 0", {}, r"must be at least 0\.001, not 0"),
        (None, {"GNOMON_BROKER__KAFKA_PORT": "abc"}, r"\(environment GNOMON_BROKER__KAFKA_PORT\) .*number, not 'abc'"),
        (None, {"GNOMON_BROKER__KAFKA_PORT": "-1"}, r"must be at least 0, not '-1'"),
        (None, {"GNOMON_LOG__LEVEL": "loud"}, r"must be one of debug, info, warning, error, not 'loud'"),
    ],
)
def test_an_invalid_value_is_an_error_that_names_the_valid_ones(
    tmp_path: Path, toml: str | None, environment: dict[str, str], text: str
) -> None:
    with pytest.raises(SettingsError, match=text):
        load(tmp_path, toml, environment)


def test_kafka_settings_keep_their_dotted_names_and_become_text(tmp_path: Path) -> None:
    toml = (
        "[kafka]\nnum.partitions = 4\n'log.roll.ms' = 10\n"
        "auto.create.topics.enable = false\nlistener.names = ['a', 'b']"
    )
    loaded = load(tmp_path, toml, {"GNOMON_KAFKA__LOG_RETENTION_MS": "-1"}, {"kafka.log.roll.ms": "11"})
    assert dict(loaded.settings.kafka) == {
        "num.partitions": "4",
        "log.roll.ms": "11",
        "auto.create.topics.enable": "false",
        "listener.names": "a,b",
        "log.retention.ms": "-1",
    }
    assert str(loaded.origins["kafka.log.retention.ms"]) == "environment GNOMON_KAFKA__LOG_RETENTION_MS"


def test_a_value_that_the_check_of_kafka_settings_refuses_is_an_error_with_its_reason(tmp_path: Path) -> None:
    def check(name: str, value: str) -> None:
        if (name, value) == ("num.partitions", "0"):
            raise ValueError("at least 1")

    assert load(tmp_path, "kafka.num.partitions = 1", kafka_check=check).settings.kafka["num.partitions"] == "1"
    with pytest.raises(SettingsError, match=r"kafka\.num\.partitions \(file .*\) has the unfit value '0': at least 1"):
        load(tmp_path, "kafka.num.partitions = 0", kafka_check=check)


def test_a_file_that_is_missing_or_no_toml_is_an_error_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"none\.toml does not exist"):
        load_settings(tmp_path / "none.toml", {}, {})
    with pytest.raises(SettingsError, match=r"gnomon\.toml cannot be read"):
        load(tmp_path, "= 4")


def test_the_variable_that_names_the_file_is_no_setting(tmp_path: Path) -> None:
    assert load(tmp_path, environment={"GNOMON_CONFIG": "gnomon.toml"}).settings == Settings()


@pytest.mark.parametrize(("text", "value"), [("true", True), ("False", False)])
def test_a_switch_may_be_text_in_a_flag_and_a_boolean_in_the_file(tmp_path: Path, text: str, value: bool) -> None:
    name = "log_segment_based_subscriptions_store_enabled"
    flags = {f"subscriptions.{name}": text}
    assert load(tmp_path, flags=flags).settings.subscriptions.log_segment_based_subscriptions_store_enabled is value
    toml = f"[subscriptions]\n{name} = {text.lower()}"
    assert load(tmp_path, toml).settings.subscriptions.log_segment_based_subscriptions_store_enabled is value


@pytest.mark.parametrize("value", ["1", "yes", ""])
def test_a_switch_refuses_other_text(tmp_path: Path, value: str) -> None:
    flags = {"subscriptions.log_segment_based_subscriptions_store_enabled": value}
    with pytest.raises(SettingsError, match="must be true or false"):
        load(tmp_path, flags=flags)


def test_the_names_of_kafka_settings_are_only_loaded_for_names_that_gnomon_does_not_have() -> None:
    asked: list[str] = []

    def kafka_names() -> list[str]:
        asked.append("names")
        return KAFKA_NAMES

    load_settings(None, {"GNOMON_DATA_DIR": "d"}, {"broker.kafka_port": 1}, kafka_names=kafka_names)  # invariant 5
    assert asked == []
    environment = {"GNOMON_KAFKA__NUM_PARTITIONS": "3"}
    loaded = load_settings(None, environment, {"kafka.log.roll.ms": 1}, kafka_names=kafka_names)
    assert (asked, loaded.settings.kafka) == (["names"], {"num.partitions": "3", "log.roll.ms": "1"})


@pytest.mark.parametrize(
    ("kafka", "flags"),
    [
        ("listeners", {"broker.kafka_port": 9092}),
        ("listeners", {"broker.kafka_host": "h"}),
        ("listeners", {"broker.advertised_host": "h"}),
        ("advertised.listeners", {"broker.advertised_host": "h"}),
    ],
)
def test_two_settings_for_the_same_address_are_refused_with_the_origin_of_both(
    kafka: str, flags: dict[str, object]
) -> None:
    environment = {f"GNOMON_KAFKA__{kafka.upper().replace('.', '_')}": "PLAINTEXT://h:1"}
    own = next(iter(flags))
    problem = rf"{own} \(flag\) and kafka\.{kafka} \(environment .*\) both say where Kafka clients connect"
    with pytest.raises(SettingsError, match=problem):  # invariant 4
        load_settings(None, environment, flags, kafka_names=lambda: [kafka])


def test_a_replaced_setting_has_the_value_and_the_origin_of_the_one_that_replaces_it() -> None:
    names = ["listeners", "advertised.listeners", "listener.security.protocol.map"]
    given = {
        "kafka.listeners": "INSIDE://:9,OUTSIDE://10.0.0.1:10",
        "kafka.advertised.listeners": "INSIDE://inside:9",
        "kafka.listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
    }
    environment = {"GNOMON_KAFKA__LISTENERS": given.pop("kafka.listeners")}
    loaded = load_settings(None, environment, given, kafka_names=lambda: names)
    broker = loaded.settings.broker
    assert (broker.kafka_host, broker.kafka_port, broker.advertised_host) == ("0.0.0.0", 9, "inside")  # invariant 4
    assert (broker.native_host, broker.native_advertised_host) == ("0.0.0.0", "inside")
    assert str(loaded.origins["broker.kafka_port"]) == "environment GNOMON_KAFKA__LISTENERS"
    assert str(loaded.origins["broker.advertised_host"]) == "flag"


def test_listeners_that_cannot_be_served_stop_the_start() -> None:
    with pytest.raises(SettingsError, match="the listeners for Kafka clients are refused: listener SSL asks for SSL"):
        load_settings(None, {}, {"kafka.listeners": "SSL://:1"}, kafka_names=lambda: ["listeners"])
