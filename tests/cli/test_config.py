from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from gnomon.cli.given_settings import read_settings
from gnomon.cli.main import main


def settings(*arguments: str) -> dict[str, dict[str, object]]:
    done = CliRunner().invoke(main, ["config", "show", "--origin", "--output", "json", *arguments])
    assert done.exit_code == 0, done.output
    return {row["setting"]: row for row in json.loads(done.stdout)}


def test_the_environment_wins_over_the_file_and_the_file_over_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "gnomon.toml"
    file.write_text("[broker]\nkafka_port = 1\nadmin_port = 2\n[kafka]\nnum.partitions = 7\n")
    monkeypatch.setenv("GNOMON_BROKER__KAFKA_PORT", "3")
    monkeypatch.setenv("GNOMON_BOOTSTRAP_SERVER", "127.0.0.1:9")
    shown = settings("--config", str(file))
    assert shown["broker.kafka_port"]["value"] == 3
    assert shown["broker.kafka_port"]["origin"] == "environment GNOMON_BROKER__KAFKA_PORT"
    assert shown["broker.admin_port"]["origin"] == f"file {file}"
    assert shown["kafka.num.partitions"]["value"] == "7"
    assert shown["kafka.broker.id"] == {"setting": "kafka.broker.id", "value": "1", "origin": "default", "note": ""}
    assert shown["kafka.num.io.threads"]["note"] == "without effect"
    assert shown["bookie.durability"]["value"] == "synced"


def test_a_value_derived_from_another_setting_has_the_origin_of_that_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "gnomon.toml"
    file.write_text("[kafka]\nlog.retention.minutes = 3\nlog.retention.hours = 5\n")
    monkeypatch.setenv("GNOMON_BROKER__KAFKA_HOST", "10.0.0.1")
    shown = settings("--config", str(file))
    retention, advertised = shown["kafka.log.retention.ms"], shown["broker.advertised_host"]
    assert (retention["value"], retention["origin"]) == ("180000", f"file {file} (kafka.log.retention.minutes)")
    origin = "environment GNOMON_BROKER__KAFKA_HOST (broker.kafka_host)"
    assert (advertised["value"], advertised["origin"]) == ("10.0.0.1", origin)
    assert (shown["kafka.log.roll.ms"]["value"], shown["kafka.log.roll.ms"]["origin"]) == ("604800000", "default")
    assert shown["bookie_service.advertised_host"]["origin"] == "default"


def test_the_file_may_be_named_in_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "gnomon.toml"
    file.write_text('data_dir = "/elsewhere"\n')
    monkeypatch.setenv("GNOMON_CONFIG", str(file))
    assert settings()["data_dir"]["value"] == "/elsewhere"


def test_an_unknown_setting_is_a_usage_error_in_one_line(tmp_path: Path) -> None:
    file = tmp_path / "gnomon.toml"
    file.write_text("[broker]\nkafka_prt = 1\n")
    done = CliRunner().invoke(main, ["config", "show", "--config", str(file)])
    assert done.exit_code == 2
    assert "did you mean broker.kafka_port" in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_table_has_one_line_for_each_setting() -> None:
    lines = CliRunner().invoke(main, ["config", "show"]).stdout.splitlines()
    assert lines[0].split() == ["SETTING", "VALUE", "NOTE"]
    assert len(lines) == len(settings()) + 1


def test_set_applies_to_settings_whose_own_option_is_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GNOMON_NATIVE_ADDRESS", "127.0.0.1:9")  # an option of commands, not a setting
    given = ("broker.kafka_port=1", "broker.native_port=2", "num.partitions=3")
    broker = read_settings(None, given, **{"broker.kafka_port": None, "broker.native_port": 7}).settings
    assert (broker.broker.kafka_port, broker.broker.native_port, broker.kafka["num.partitions"]) == (1, 7, "3")
