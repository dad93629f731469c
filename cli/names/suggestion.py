"""Suggestions for misspelt names; click itself suggests options, and in its older versions nothing else."""

from __future__ import annotations

from collections.abc import Iterable

import click


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """` Did you mean 'retention.ms'?`, or nothing if no known name is near."""
    import difflib

    near = difflib.get_close_matches(name, list(known), n=1)
    return f" Did you mean {near[0]!r}?" if near else ""


class CommandGroup(click.Group):
    """A group that answers an unknown command with the nearest one."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """See `click.Group`."""
        name = args[0]
        if not ctx.resilient_parsing and not name.startswith("-") and self.get_command(ctx, name) is None:
            ctx.fail(f"No such command {name!r}.{did_you_mean(name, self.list_commands(ctx))}")
        return super().resolve_command(ctx, args)
