"""A fault that any client may have: each item of a stream reaches its reader late, but answers arrive at once.

    with slow_streams(lambda: drawn.expovariate(1000.0)):  # `drawn` is a stream of random numbers
        ...

In a busy process answers overtake hundreds of deliveries in this way. In a simulation Python code takes no virtual
time: without this fault no answer overtakes an item.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import trio

from gnomon.runtime.rpc.stream import RpcStream
from gnomon.testing.storms.patches import Patches


@contextmanager
def slow_streams(draw_seconds: Callable[[], float]) -> Iterator[None]:
    """Delays each item of every RPC stream during the block, by the drawn number of virtual seconds."""

    def take(before: Callable[..., Any]) -> Any:
        async def taken_late(stream: RpcStream) -> Any:
            await trio.sleep(draw_seconds())
            return await before(stream)

        return taken_late

    with ExitStack() as stack:
        Patches(stack)(RpcStream, "__anext__", take)
        yield
