"""The embedded store under random requests, crashes and restarts, against a model of its content."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import trio
from background_calls import calls, taken
from hypothesis import given, settings
from hypothesis import strategies as st

from gnomon.metadata.client import (
    MetadataError,
    MetadataFull,
    Put,
    Revision,
)
from gnomon.metadata.embedded import EmbeddedMetadata
from gnomon.metadata.request import Compact, Grant, KeepAlive, Request, Revoke, Tick, Txn
from gnomon.runtime.world import DiskFull
from gnomon.testing.storms.metadata.metadata_model import MetadataModel, requests

FULL = DiskFull("no room")


async def asked(metadata: EmbeddedMetadata, request: Request) -> Any:
    """The store's answer to a request of the model, or the type of its error."""
    try:
        match request:
            case Txn(compare, then, otherwise):
                return await metadata.txn(compare, then, otherwise)
            case Grant(ttl_seconds):
                return await metadata.lease(ttl_seconds)
            case KeepAlive(lease):
                return await metadata.keep_alive(lease)
            case Revoke(lease):
                return await metadata.revoke(lease)
            case Compact(revision):
                return await metadata.compact(revision)
            case Tick():
                return await metadata.compact(Revision(0))
    except MetadataError as error:
        return type(error)


class Crash:
    """A crash while requests are in progress; if `kept`, their commit has reached the disk."""

    def __init__(self, under_way: list[Request], kept: bool) -> None:
        self.under_way, self.kept = list(under_way), kept

    def __repr__(self) -> str:
        return f"Crash({self.under_way}, {self.kept})"


class Life:
    """A store under requests, crashes and restarts, with the model of its content."""

    def __init__(self, machine: Any, history_revisions: int) -> None:
        self.machine, self.history_revisions = machine, history_revisions
        self.model = MetadataModel(history_revisions)

    async def live(self, steps: list[Any]) -> None:
        """Runs steps: each is a request, a number of seconds to wait, "full", or a `Crash`."""
        while True:
            with self.machine.environment() as environment:
                metadata = await self.machine.open(environment, self.history_revisions)
                self.model.restart(trio.current_time())
                await self.check(metadata)
                if not steps:
                    return
                while steps and not isinstance(steps[0], Crash):
                    await self.step(environment, metadata, steps.pop(0))
                    await self.check(metadata)
                if steps:
                    await self.crash(environment, metadata, steps.pop(0))

    async def step(self, environment: Any, metadata: EmbeddedMetadata, step: Request | float | str) -> None:
        if isinstance(step, float):
            await trio.sleep(step)
            step = Tick()
        if isinstance(step, str):
            environment.failing = FULL
            assert await asked(metadata, Txn((), (Put("full", b""),))) is MetadataFull
            environment.failing = None
            return
        assert await asked(metadata, step) == self.model.apply(step, trio.current_time())

    async def crash(self, environment: Any, metadata: EmbeddedMetadata, crash: Crash) -> None:
        environment.held = True
        async with calls() as start:
            for request in crash.under_way:
                await start(asked(metadata, request))
        if not crash.kept:
            return
        environment.commit_untold()
        # Only one commit is in progress at a time: it contains the first request with a durable change.
        durable = self.durable()
        while crash.under_way and durable == self.durable():
            self.model.apply(crash.under_way.pop(0), trio.current_time())

    def durable(self) -> Any:
        return self.model.revision, self.model.oldest_kept, list(self.model.leases)

    async def check(self, metadata: EmbeddedMetadata) -> None:
        found = await metadata.range("")
        assert found.items == tuple(item for _, item in sorted(self.model.keys.items()))
        assert found.revision == self.model.revision
        start = max(self.model.oldest_kept, 1)
        expected = self.model.watched("", start)
        seen = await taken(metadata, start, len(expected))
        assert [(batch.revision, sorted(batch.events, key=lambda event: event.key)) for batch in seen] == [
            (batch.revision, list(batch.events)) for batch in expected
        ]


STEPS = st.one_of(
    requests,
    requests,
    requests,
    st.sampled_from([0.5, 2.0, 10.0]),
    st.just("full"),
    st.builds(Crash, st.lists(requests, max_size=2), st.booleans()),
)


@settings(max_examples=60, deadline=None)
@given(steps=st.lists(STEPS, max_size=25), history_revisions=st.sampled_from([2, 10_000]))
def test_crashes_and_full_disks_lose_no_answered_change(
    new_machine: Callable[[], Any], steps: list[Any], history_revisions: int
) -> None:
    machine = new_machine()
    machine.run(lambda: Life(machine, history_revisions).live(copy.deepcopy(steps)))
