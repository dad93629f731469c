"""The names of a topic's subscriptions, for a shell that completes them."""

from __future__ import annotations

import click
import trio

from gnomon.cli.names.completion import ANSWER_SECONDS
from gnomon.cli.options import native_of
from gnomon.client.client import connect


def subscription_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Completes the name of a subscription of the topic that was given; without an answer in time there are none."""
    given = ctx.params.get(param.name or "") or ()
    try:
        names = trio.run(_names, native_of(ctx), ctx.params["topic"])
    except Exception:
        return []
    return [name for name in names if name.startswith(incomplete) and name not in given]


async def _names(addresses: str, topic: str) -> list[str]:
    with trio.move_on_after(ANSWER_SECONDS):
        async with connect(addresses) as client:
            return [found.name for found in await client.subscriptions.list(topic)]
    return []
