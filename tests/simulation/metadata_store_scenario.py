"""The metadata store that commits as in production, and the check of its state after a power failure."""

from __future__ import annotations

import random
from pathlib import Path

import msgpack
import trio
from recorded_commits import (
    MAP_BYTES,
    BadState,
    Check,
    check_content,
    contents_by_transaction,
    image_folder,
    main,
    opened,
    read_content,
)

from gnomon.metadata.client import Delete, Put
from gnomon.metadata.embedded import DATABASES, EmbeddedMetadata
from gnomon.runtime.trio_world import open_trio_world
from gnomon.runtime.world import Durability, World
from gnomon.testing.simulation.disk.crash_states import CrashState
from gnomon.testing.simulation.disk.write_log import Event, Mark, Marks

ROUNDS = 25
KEYS = 40
HISTORY_REVISIONS = 60
SIZES_BYTES = (5, 50, 50, 400, 3000)


async def _open(world: World, folder: Path) -> EmbeddedMetadata:
    environment = world.disk.open_environment(
        folder, databases=DATABASES, map_bytes=MAP_BYTES, durability=Durability.SYNCED
    )
    return await EmbeddedMetadata.open(world, environment, history_revisions=HISTORY_REVISIONS)


async def _record(folder: Path, seed: int) -> None:
    """Runs rounds of concurrent transactions; in some, a lease is granted or revoked."""
    stream = random.Random(seed)
    async with open_trio_world() as world:
        metadata = await _open(world, folder)
        marks = Marks()
        marks.add(msgpack.packb(["opened"]))
        asked = 0

        async def change(number: int, key: str, value: bytes | None) -> None:
            marks.add(msgpack.packb(["change", number, key, value]))
            result = await metadata.txn((), [Delete(key) if value is None else Put(key, value)])
            marks.add(msgpack.packb(["done", number, result.revision]))

        for number in range(ROUNDS):
            lease = await metadata.lease(600.0) if number % 4 == 1 else None
            # No key occurs twice in a round: Trio starts tasks in an undefined order.
            async with trio.open_nursery() as nursery:
                for key in stream.sample(range(KEYS), stream.choice((1, 2, 8, 20))):
                    value = None if stream.random() < 0.2 else stream.randbytes(stream.choice(SIZES_BYTES))
                    nursery.start_soon(change, asked, f"key {key}", value)
                    asked += 1
            if lease is not None and stream.random() < 0.5:
                await metadata.revoke(lease)
        metadata.close()


class History:
    """The requests and answers before the power failure; moves forward only."""

    def __init__(self, events: list[Event]) -> None:
        self._events = events
        self._at = 0
        self._asked: dict[int, tuple[str, int]] = {}
        self.values: dict[str, list[bytes | None]] = {f"key {key}": [None] for key in range(KEYS)}
        self.kept = dict.fromkeys(self.values, 0)
        """Index of the last acknowledged value."""
        self.revision = 0

    def advance(self, end: int) -> None:
        """Processes the marks among the first `end` events."""
        for event in self._events[self._at : end]:
            if not isinstance(event, Mark):
                continue
            match msgpack.unpackb(event.text):
                case ["change", number, key, value]:
                    self._asked[number] = key, len(self.values[key])
                    self.values[key].append(value)
                case ["done", number, revision]:
                    key, index = self._asked.pop(number)
                    self.kept[key] = index
                    self.revision = max(self.revision, revision)
        self._at = max(self._at, end)


async def _check(folder: Path, history: History) -> None:
    async with open_trio_world() as world:
        metadata = await _open(world, folder)
        before = {pair.key: pair for pair in (await metadata.range("")).items}
        for key, values in history.values.items():
            found = before.get(key)
            if (None if found is None else found.value) not in values[history.kept[key] :]:
                raise BadState(f"{key} has another value than the last acknowledged one")
        for round_number in range(3):
            puts = [Put(f"new {number}", bytes([round_number]) * 900) for number in range(12)]
            result = await metadata.txn((), puts)
            if result.revision <= history.revision:
                raise BadState(f"revision {result.revision} was assigned before")
        after = {pair.key: pair for pair in (await metadata.range("")).items}
        if len(after) != len(before) + 12 or any(after[key] != pair for key, pair in before.items()):
            raise BadState("later changes changed earlier keys")
        metadata.close()


def checker(events: list[Event], folder: Path) -> Check:
    """Makes the check of a recorded run."""
    contents = contents_by_transaction(events, folder, DATABASES)
    history = History(events)

    def check(state: CrashState) -> None:
        history.advance(state.after)
        path = image_folder(state.image, folder)
        with opened(path, DATABASES) as (lmdb, handles):
            check_content(contents, read_content(lmdb, handles))
        trio.run(_check, path, history)

    return check


if __name__ == "__main__":
    main(lambda folder, seed: trio.run(_record, folder, seed), checker)
