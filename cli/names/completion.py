"""`gnomon completion`: click's own completion scripts."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from gnomon.cli.streams import writes_output

ANSWER_SECONDS = 0.7
"""Seconds that a shell waits for names; without an answer in time it completes none, and shows no error."""


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
@writes_output
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script of a shell.

    For bash: gnomon completion bash > ~/.local/share/bash-completion/completions/gnomon
    """
    found = get_completion_class(shell)
    assert found is not None, f"click knows no completion for {shell}"
    click.echo(found(ctx.find_root().command, {}, "gnomon", "_GNOMON_COMPLETE").source())
