from __future__ import annotations

import json
import subprocess
from collections.abc import Callable

import pytest

from gnomon.cli import bookie_members
from gnomon.cli.kafka import kafka_client, topic

Run = Callable[..., "subprocess.CompletedProcess[str]"]


class Asked(Exception):
    """Raised in place of a connection: the address."""


@pytest.fixture
def asked(inside: Run, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """The address that a command would connect to."""

    def refuse(address: str, *_others: object) -> None:
        raise Asked(address)

    monkeypatch.setattr(kafka_client, "reach", refuse)
    monkeypatch.setattr(topic, "replication_of", lambda _name, native: refuse(native))
    monkeypatch.setattr(bookie_members, "in_cluster", lambda settings, _work: refuse(settings.cluster.metadata))

    def run(*arguments: str, **variables: str) -> str:
        with pytest.raises(Asked) as found:
            inside(*arguments, **variables)
        return str(found.value)

    return run


@pytest.fixture
def profiles(inside: Run) -> None:
    everything = ("--bootstrap-server", "prod:1", "--native-address", "prod:2", "--metadata", "prod:3")
    assert inside("profile", "create", "prod", *everything).returncode == 0
    assert inside("profile", "create", "dev", "--bootstrap-server", "dev:1").returncode == 0


@pytest.mark.parametrize(
    ("words", "flag", "variable", "port", "default"),
    [
        (["topic", "list"], "--bootstrap-server", "GNOMON_BOOTSTRAP_SERVER", 1, "127.0.0.1:9092"),
        (["topic", "stats", "t"], "--native-address", "GNOMON_NATIVE_ADDRESS", 2, "127.0.0.1:6650"),
        (["bookie", "list"], "--metadata", "GNOMON_CLUSTER__METADATA", 3, ""),
    ],
)
@pytest.mark.usefixtures("profiles")
def test_a_flag_wins_over_the_environment_that_over_the_profile_and_that_over_the_default(
    inside: Run, asked: Callable[..., str], words: list[str], flag: str, variable: str, port: int, default: str
) -> None:
    """Invariants 1 and 2."""
    assert asked(*words) == default
    assert asked(*words, "--profile", "prod") == f"prod:{port}"
    assert asked(*words, GNOMON_PROFILE="prod") == f"prod:{port}"
    inside("profile", "use", "prod")
    assert asked(*words) == f"prod:{port}"
    assert asked(*words, "--profile", "dev") == ("dev:1" if port == 1 else default)
    assert asked(*words, "--profile", "prod", GNOMON_PROFILE="dev") == f"prod:{port}"
    assert asked(*words, "--profile", "prod", **{variable: "env:1"}) == "env:1"
    assert asked(*words, flag, "flag:1", "--profile", "prod", **{variable: "env:1"}) == "flag:1"
    inside("profile", "use", "--none")
    assert asked(*words) == default


@pytest.mark.usefixtures("profiles")
def test_a_profile_is_listed_shown_chosen_and_deleted(inside: Run) -> None:
    listed = json.loads(inside("profile", "list", "--output", "json").stdout)
    assert [(row["profile"], row["native_address"], row["in_use"]) for row in listed] == [
        ("dev", None, False),
        ("prod", "prod:2", False),
    ]
    assert inside("profile", "show").returncode == 5
    assert inside("profile", "use", "dev").stderr == "profile 'dev' is in use\n"
    assert json.loads(inside("profile", "show", "--output", "json").stdout)["profile"] == "dev"
    shown = inside("profile", "show", "--output", "json", GNOMON_PROFILE="prod").stdout
    assert json.loads(shown)["metadata"] == "prod:3"
    assert inside("profile", "delete", "dev").stderr == "deleted profile 'dev', which was in use\n"
    assert inside("profile", "show").returncode == 5
    assert inside("profile", "show", "prod").returncode == 0


@pytest.mark.usefixtures("profiles")
def test_a_missing_or_existing_profile_ends_with_5_and_wrong_usage_with_2(inside: Run) -> None:
    for words in (["use", "prd"], ["show", "prd"], ["delete", "prd"]):
        done = inside("profile", *words)
        assert (done.returncode, done.stderr) == (5, "Error: there is no profile 'prd': Did you mean 'prod'?\n")
    assert inside("topic", "list", "--profile", "prd").returncode == 5
    assert inside("topic", "list", "--bootstrap-server", "x:1", GNOMON_PROFILE="prd").returncode == 5
    assert inside("profile", "create", "prod", "--metadata", "x:1").returncode == 5
    assert inside("profile", "create", "empty").returncode == 2
    assert inside("profile", "create", "a.b", "--metadata", "x:1").returncode == 2
    for address in ("", "a\n", "\udcff"):
        assert inside("profile", "create", "odd", "--bootstrap-server", address).returncode == 2
    assert inside("profile", "use").returncode == 2
    assert inside("profile", "use", "prod", "--none").returncode == 2


def test_an_unreadable_file_of_profiles_is_no_matter_to_a_command_that_has_its_address(
    inside: Run, asked: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Invariant 2."""
    inside("profile", "create", "one", "--metadata", "x:1")
    from gnomon.cli.profile.profiles import profiles_file

    profiles_file().write_text("no toml")
    assert inside("topic", "list").returncode == 2
    assert asked("topic", "list", "--bootstrap-server", "x:1") == "x:1"
