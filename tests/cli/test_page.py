from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from gnomon.cli.exit import Exit
from gnomon.cli.main import COMMANDS, main

PAGE = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
OPTION = r"--[a-z][a-z0-9-]*"
EVERYWHERE = {"--help", "--output", "--bootstrap-server", "--profile", "--config", "--data-dir"}


def leaves(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    if isinstance(command, click.Group):
        if command.invoke_without_command:
            yield name, command
        for inner, found in command.commands.items():
            yield from leaves(found, f"{name} {inner}")
    else:
        yield name, command


def options(command: click.Command) -> set[str]:
    found = [
        parameter.opts + parameter.secondary_opts for parameter in command.params if isinstance(parameter, click.Option)
    ]
    return {option for names in found for option in names}


@pytest.mark.parametrize("name", COMMANDS)
def test_the_page_shows_every_command_and_option_and_no_other(name: str) -> None:
    command = main.get_command(click.Context(main), name)
    assert command is not None
    section = PAGE.partition(f"\n## gnomon {name}\n")[2].partition("\n## ")[0]
    known = set()
    for usage, leaf in leaves(command, f"gnomon {name}"):
        assert usage in f"gnomon {name}\n{section}", usage
        known |= options(leaf)
    assert known - EVERYWHERE <= set(re.findall(OPTION, section))
    assert set(re.findall(OPTION, section)) <= known | EVERYWHERE


def test_the_page_shows_every_exit_code() -> None:
    assert set(re.findall(r"^\| (\d) \|", PAGE, re.M)) == {str(int(code)) for code in Exit}
