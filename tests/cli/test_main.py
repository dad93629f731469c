from __future__ import annotations

import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from gnomon.cli.main import COMMANDS, main

HEAVY = {"trio", "confluent_kafka", "structlog", "rich", "hypercorn", "starlette", "lmdb", "yaml"}


def test_help_imports_nothing_heavy() -> None:
    script = (
        "import sys\nfrom gnomon.cli.main import main\n"
        "try: main(['--help'])\nexcept SystemExit: pass\n"
        "print(' '.join(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "standalone" in done.stdout
    assert HEAVY & set(done.stderr.split()) == set()


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_says_in_its_own_help_what_the_list_says(name: str) -> None:
    command = main.get_command(click.Context(main), name)
    assert command is not None
    assert (command.help or "").startswith(COMMANDS[name].line.removesuffix("."))


def test_an_unknown_command_is_a_usage_error() -> None:
    done = CliRunner().invoke(main, ["frobnicate"])
    assert done.exit_code == 2
    assert "No such command" in done.output


def test_a_bug_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_arguments: object, **_named: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("gnomon.cli.config.read_settings", broken)
    assert isinstance(CliRunner().invoke(main, ["config", "show"]).exception, ZeroDivisionError)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_for_each_shell(shell: str) -> None:
    done = CliRunner().invoke(main, ["completion", shell])
    assert done.exit_code == 0
    assert "_GNOMON_COMPLETE" in done.stdout
