from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from gnomon.cli.main import COMMANDS, main
from gnomon.cli.names.suggestion import CommandGroup

HEAVY = {"trio", "confluent_kafka", "asyncio", "rich", "hypercorn", "starlette", "lmdb", "yaml"}


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
def test_the_help_of_every_command_begins_with_its_line_in_the_list(name: str) -> None:
    command = main.get_command(click.Context(main), name)
    assert command is not None
    assert (command.help or "").startswith(COMMANDS[name].line.removesuffix("."))


def test_an_unknown_command_is_a_usage_error() -> None:
    done = CliRunner().invoke(main, ["frobnicate"])
    assert done.exit_code == 2
    assert "No such command" in done.output


@pytest.mark.parametrize(
    ("words", "near"),
    [
        (["consme"], "consume"),
        (["topic", "crate"], "create"),
        (["topic", "list", "--outpt", "json"], "--output"),
        (["standalone", "--set", "num.partitons=3"], "kafka.num.partitions"),
    ],
)
def test_a_misspelt_command_option_or_setting_is_answered_with_the_nearest_one(words: list[str], near: str) -> None:
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 2
    assert f"did you mean {near}?" in done.output.lower().replace("'", "")


def test_every_group_of_commands_suggests_the_nearest_one() -> None:
    found = {name: main.get_command(click.Context(main), name) for name in COMMANDS}
    groups = {name: command for name, command in found.items() if isinstance(command, click.Group)}
    assert {name for name, group in groups.items() if not isinstance(group, CommandGroup)} == set() != set(groups)


def test_a_bug_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_arguments: object, **_named: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("gnomon.cli.config.read_settings", broken)
    assert isinstance(CliRunner().invoke(main, ["config", "show"]).exception, ZeroDivisionError)


@pytest.mark.parametrize(
    ("closed", "command"),
    [
        ("output >&-", "config show"),
        ("output >&-", "consume x"),
        ("input <&-", "produce x"),
        ("input <&-", "ledger append x"),
    ],
)
def test_a_command_that_needs_a_closed_standard_stream_ends_with_one_line(closed: str, command: str) -> None:
    name, redirection = closed.split()
    gnomon = f"{shlex.quote(sys.executable)} -m gnomon.cli.main"
    done = subprocess.run(f"{gnomon} {command} {redirection}", shell=True, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"Error: standard {name} is closed\n")


def test_a_command_that_needs_no_closed_stream_does_its_work(tmp_path: Path) -> None:
    gnomon = f"{shlex.quote(sys.executable)} -m gnomon.cli.main ledger create x --data-dir {shlex.quote(str(tmp_path))}"
    done = subprocess.run(f"{gnomon} <&- >&-", shell=True, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "created ledger 'x' with id 2\n")


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["topic", "--help"], ["completion", "bash"]])
def test_output_to_a_full_disk_ends_with_one_line(words: list[str]) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "gnomon.cli.main", *words],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONUNBUFFERED": ""},
        )
    assert (done.returncode, done.stderr) == (1, "Error: [Errno 28] No space left on device\n")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_for_each_shell(shell: str) -> None:
    done = CliRunner().invoke(main, ["completion", shell])
    assert done.exit_code == 0
    assert "_GNOMON_COMPLETE" in done.stdout
