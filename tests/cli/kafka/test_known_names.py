from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable

import pytest
from click.shell_completion import ShellComplete

from gnomon.cli.kafka.known_names import ANSWER_SECONDS
from gnomon.cli.main import main
from gnomon.testing import KafkaBroker

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def completed(*words: str) -> list[str]:
    """The completions of the last word."""
    shell = ShellComplete(main, {}, "gnomon", "_GNOMON_COMPLETE")
    return [item.value for item in shell.get_completions(list(words[:-1]), words[-1])]


def test_topics_and_groups_are_those_of_the_broker(
    ask: Run, broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask("topic", "create", "complete-a", "complete-b", "--partitions", 1)
    ask("group", "reset-offsets", "complete-group", "--topic", "complete-a", "--to-latest")
    at = ("--bootstrap-server", broker.bootstrap_servers)
    assert completed("topic", "describe", *at, "complete-") == ["complete-a", "complete-b"]
    assert completed("topic", "delete", "complete-a", *at, "complete-") == ["complete-b"]
    assert completed("topic", "create", *at, "complete-") == []
    monkeypatch.setenv("GNOMON_BOOTSTRAP_SERVER", broker.bootstrap_servers)
    assert completed("consume", "complete-a", "--group", "complete-") == ["complete-group"]
    assert completed("group", "reset-offsets", "complete-group", "--topic", "complete-b") == ["complete-b"]
    assert completed("subscription", "list", "complete-") == ["complete-a", "complete-b"]


def test_the_broker_of_the_profile_is_asked(inside: Run, broker: KafkaBroker, ask: Run) -> None:
    inside("profile", "create", "here", "--bootstrap-server", broker.bootstrap_servers)
    ask("topic", "create", "profiled", "--partitions", 1)
    assert completed("topic", "list", "--profile", "") == ["here"]
    assert completed("profile", "use", "h") == ["here"]
    assert completed("topic", "describe", "--profile", "here", "profi") == ["profiled"]
    assert completed("topic", "describe", "--profile", "elsewhere", "profi") == []
    inside("profile", "use", "here")
    assert completed("topic", "describe", "profi") == ["profiled"]


def test_a_broker_that_does_not_answer_within_the_short_time_out_has_no_names(
    inside: Run, capfd: pytest.CaptureFixture[str]
) -> None:
    assert ANSWER_SECONDS < 1
    with socket.create_server(("127.0.0.1", 0)) as silent:
        at = f"127.0.0.1:{silent.getsockname()[1]}"
        assert completed("topic", "describe", "--bootstrap-server", at, "") == []
        assert completed("group", "describe", "--bootstrap-server", at, "") == []
    assert completed("topic", "describe", "--bootstrap-server", "no address", "") == []
    assert capfd.readouterr() == ("", "")


def test_configs_settings_formats_and_edges_complete_without_a_broker(inside: Run) -> None:
    assert completed("topic", "create", "t", "--config", "retention.m") == ["retention.ms="]
    assert completed("topic", "alter", "t", "--unset", "retention.m") == ["retention.ms"]
    assert completed("standalone", "--set", "num.part") == ["num.partitions="]
    assert completed("broker", "--set", "cluster.meta") == ["cluster.metadata="]
    assert completed("consume", "t", "--format", "") == ["value", "kv", "json"]
    assert completed("consume", "t", "--from", "e") == ["earliest", "end"]


def test_commands_complete_without_being_imported() -> None:
    script = (
        "import sys\nfrom gnomon.cli.main import main\nfrom click.shell_completion import ShellComplete\n"
        "print([c.value for c in ShellComplete(main, {}, 'gnomon', 'X').get_completions([], 'con')])\n"
        "print(sorted(name for name in sys.modules if name.startswith('gnomon.cli.')))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    commands, modules = done.stdout.splitlines()
    assert commands == "['consume', 'config']"
    assert modules == "['gnomon.cli.main', 'gnomon.cli.names', 'gnomon.cli.names.suggestion']"
