"""The metadata service over RPC, driven by Hypothesis: concurrent clients while the service fails."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
import trio
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from gnomon.metadata.client import (
    Compare,
    DeletePrefix,
    HistoryCompacted,
    InvalidRequest,
    KeyField,
    LeaseId,
    LeaseNotFound,
    MetadataError,
    MetadataUnavailable,
    Operation,
    Put,
    Revision,
)
from gnomon.metadata.draft import Draft
from gnomon.metadata.embedded import EmbeddedMetadata
from gnomon.metadata.node import MetadataNodeSettings, run_metadata
from gnomon.metadata.remote import RemoteMetadata, RemoteWatcher
from gnomon.metadata.request import Txn, refusal
from gnomon.testing.simulation.guided.machine_examples import check, found_by
from gnomon.testing.simulation.guided.state_machine import PAUSES, SimulatedStateMachine, Weather, weathers
from gnomon.testing.simulation.simulated_world import SimulatedWorld
from gnomon.testing.storms.metadata.metadata_checker import LeaseLife, MetadataHistory, Watched, in_key_order
from gnomon.testing.storms.metadata.metadata_model import prefixes, txns

PORT = 4001
CLIENTS = ("client-1", "client-2", "client-3")
TTL_SECONDS = (1.0, 5.0, 30.0)
LIVENESS_SECONDS = 60.0
STEPS = 40
REACHED = [f"metadata/{what}" for what in ("txn", "lost compare", "grant", "renewed", "gone", "read", "watch")]

clients = st.sampled_from(CLIENTS)
WHICH = st.integers(0, 5)


class ServiceMachine(SimulatedStateMachine):
    """Three clients of one service; a watch inside the service records its commits."""

    @initialize(weather=weathers)
    def begin(self, weather: Weather) -> None:
        self.start_simulation(weather)
        self.history = MetadataHistory()
        self.compacted = 0
        self.puts = 0
        self.under_way: dict[str, tuple[trio.Nursery, RemoteMetadata]] = {}
        server = self.simulation.machine("metadata")
        server.start(self.service)
        for name in CLIENTS:
            self.simulation.machine(name).start(self.client)
        self.guided.sleep(0.1)
        self.history.given = self.history.revision  # the id of the cluster must not be deleted
        self.expose([machine for name in CLIENTS for machine in (server, self.simulation.machine(name))])

    async def service(self, world: SimulatedWorld) -> None:
        settings = MetadataNodeSettings(Path("/data"), host="", port=PORT, map_bytes=1 << 26)
        async with trio.open_nursery() as nursery:
            await run_metadata(
                world,
                settings,
                world.logger,
                ready=lambda serving: nursery.start_soon(self.listen, serving.metadata),
                stop=world.stop_requested,
            )
            nursery.cancel_scope.cancel()

    async def listen(self, metadata: EmbeddedMetadata) -> None:
        async with metadata.watch("", Revision(self.history.revision + 1)) as batches:
            async for batch in batches:
                self.history.committed(batch, self.now)

    async def client(self, world: SimulatedWorld) -> None:
        remote = RemoteMetadata(world, [("metadata", PORT)])
        name = next(name for name in CLIENTS if self.simulation.machine(name).process is world._process)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(remote.run)
            self.under_way[name] = mine = nursery, remote
            try:
                await trio.sleep_forever()
            finally:
                if self.under_way[name] is mine:  # otherwise the client was started again
                    del self.under_way[name]

    @property
    def now(self) -> float:
        return self.simulation.clock.monotonic()

    def count(self, what: str) -> None:
        self.simulation.coverage.count(f"metadata/{what}")

    def tell(self, who: str, pause: float, work: Callable[[RemoteMetadata], Awaitable[object]]) -> None:
        async def refused() -> None:
            try:
                await work(remote)
            except MetadataError as error:
                self.count(type(error).__name__)

        if who in self.under_way:
            nursery, remote = self.under_way[who]
            nursery.start_soon(refused)
        self.guided.sleep(pause)

    # --- transactions ---

    @rule(who=clients, txn=txns, pause=PAUSES)
    def transact(self, who: str, txn: Txn, pause: float) -> None:
        aimed = Txn(tuple(map(self.aim, txn.compare)), self.own(txn.then), self.own(txn.otherwise))
        self.tell(who, pause, lambda remote: self.transacts(remote, aimed))

    @rule(asked=st.lists(st.tuples(clients, txns), min_size=2, max_size=4), pause=PAUSES)
    def transact_together(self, asked: list[tuple[str, Txn]], pause: float) -> None:
        for who, txn in asked:
            self.transact(who, txn, 0.0)
        self.guided.sleep(pause)

    @rule(who=clients, keys=st.lists(st.sampled_from(["a", "a/1", "b"]), min_size=1, max_size=4), pause=PAUSES)
    def put(self, who: str, keys: list[str], pause: float) -> None:
        for key in keys:
            self.transact(who, Txn((), (Put(key, b""),)), 0.0)
        self.guided.sleep(pause)

    def aim(self, compare: Compare) -> Compare:
        """Replaces some compared values with the stored ones."""
        item = self.history.keys.get(compare.key)
        if compare.field is KeyField.VALUE:
            return replace(compare, value=item.value) if item is not None and compare.value == b"1" else compare
        now = {
            KeyField.VERSION: 0 if item is None else item.version,
            KeyField.CREATE_REVISION: 0 if item is None else item.create_revision,
            KeyField.MOD_REVISION: 0 if item is None else item.mod_revision,
        }
        return replace(compare, value=now[compare.field]) if compare.value in (3, 4, 5, 6) else compare

    def own(self, branch: tuple[Operation, ...]) -> tuple[Operation, ...]:
        """Gives each put a unique value, and a granted lease if it names one."""
        operations: list[Operation] = []
        for operation in branch:
            if isinstance(operation, Put):
                self.puts += 1
                lease = None if operation.lease is None else self.lease(operation.lease)
                operation = Put(operation.key, b"%d" % self.puts, lease)
            elif isinstance(operation, DeletePrefix):
                operation = DeletePrefix(operation.prefix or "a")
            operations.append(operation)
        return tuple(operations)

    async def transacts(self, remote: RemoteMetadata, txn: Txn) -> None:
        asked = self.history.asks(txn)
        try:
            asked.result = await remote.txn(txn.compare, txn.then, txn.otherwise)
        except LeaseNotFound:
            asked.refused = True
            raise
        except InvalidRequest:
            asked.refused = True
            assert refusal(txn) is not None
            return
        self.history.tells(asked.floor, asked.result.revision, "a transaction")
        self.count("txn" if asked.result.succeeded else "lost compare")

    # --- leases ---

    def lease(self, which: int) -> LeaseId | None:
        """One of the granted leases, counted from the newest; None if there is none."""
        granted = list(self.history.leases)
        return granted[-1 - which % len(granted)] if granted else None

    @rule(who=clients, ttl=st.sampled_from(TTL_SECONDS), pause=PAUSES)
    def grant(self, who: str, ttl: float, pause: float) -> None:
        async def work(remote: RemoteMetadata) -> None:
            called = self.now
            lease = await remote.lease(ttl)
            assert lease not in self.history.leases, f"lease {lease} was granted twice"
            self.history.leases[lease] = LeaseLife(ttl, called)
            self.count("grant")

        self.tell(who, pause, work)

    @precondition(lambda self: self.history.leases)
    @rule(who=clients, which=WHICH, times=st.integers(0, 3), pause=PAUSES)
    def renew_or_revoke(self, who: str, which: int, times: int, pause: float) -> None:
        """Renews a lease `times` times, at intervals of half its time; revokes it if `times` is 0."""
        lease = self.lease(which)
        assert lease is not None
        life = self.history.leases[lease]

        async def renew(remote: RemoteMetadata) -> None:
            for _ in range(times):
                await self.renew(remote, lease, life)
                await self.simulation.sleep(life.ttl / 2)

        async def revoke(remote: RemoteMetadata) -> None:
            life.revoked = True
            await remote.revoke(lease)
            life.gone = True

        self.tell(who, pause, renew if times else revoke)

    async def renew(self, remote: RemoteMetadata, lease: LeaseId, life: LeaseLife) -> None:
        called, gone = self.now, life.gone
        try:
            await remote.keep_alive(lease)
        except LeaseNotFound:
            life.gone = True
            self.history.lost(lease, self.now)
            self.count("gone")
        else:
            self.history.renewed(lease, called, gone)
            self.count("renewed")

    # --- reads ---

    @rule(who=clients, prefix=prefixes, whole=st.booleans(), pause=PAUSES)
    def read(self, who: str, prefix: str, whole: bool, pause: float) -> None:
        async def work(remote: RemoteMetadata) -> None:
            floor = self.history.told
            if whole or not prefix:
                result = await remote.range(prefix)
                self.history.tells(floor, result.revision, "a range")
                self.history.ranged(prefix, result)
            else:
                self.history.got(floor, prefix, await remote.get(prefix))
            self.count("read")

        self.tell(who, pause, work)

    @rule(who=clients, prefix=prefixes, back=st.integers(0, 8), pause=PAUSES)
    def watch(self, who: str, prefix: str, back: int, pause: float) -> None:
        watched = Watched(prefix, Revision(max(1, self.history.revision + 1 - back)))

        async def work(remote: RemoteMetadata) -> None:
            self.history.watches.append(watched)
            self.count("watch")
            try:
                async with remote.watch(prefix, watched.first) as batches:
                    async for batch in batches:
                        watched.batches.append(in_key_order(batch))
                        self.history.told = max(self.history.told, batch.revision)
            except HistoryCompacted as error:
                if error.oldest > self.compacted:
                    raise AssertionError(f"{error}, and {self.compacted} was asked for") from error
            finally:
                watched.ended = True

        self.tell(who, pause, work)

    @rule(who=clients, back=st.integers(0, 8), pause=PAUSES)
    def compact(self, who: str, back: int, pause: float) -> None:
        revision = Revision(max(0, self.history.revision - back))
        self.compacted = max(self.compacted, revision)
        self.tell(who, pause, lambda remote: remote.compact(revision))

    # --- the end ---

    def judge(self) -> None:
        self.guided.run(self.finish)
        wrong = self.history.check()
        kept = [key for key, item in self.history.keys.items() if item.lease is not None]
        assert not wrong, "; ".join(wrong)
        assert not kept, f"{kept} outlived their leases"

    async def finish(self) -> None:
        for name in CLIENTS:
            if not self.simulation.machine(name).running:
                self.simulation.machine(name).start()
        await self.simulation.sleep(LIVENESS_SECONDS)
        while True:
            asked = self.history.asks(Txn((), (Put("end", b"%d" % self.puts),)))
            try:
                asked.result = await self.under_way[CLIENTS[0]][1].txn((), asked.txn.then)
                break
            except MetadataUnavailable:
                continue
        with trio.move_on_after(LIVENESS_SECONDS):
            while self.history.revision < asked.result.revision or self.history.behind():
                await self.simulation.sleep(0.1)


def test_a_service_keeps_its_promises_under_random_requests_and_faults() -> None:
    check(ServiceMachine, max_examples=60, steps=STEPS).assert_all_counted(REACHED)


def test_the_machine_finds_a_watch_that_loses_an_event_when_it_reconnects(monkeypatch: pytest.MonkeyPatch) -> None:
    drop_stream = RemoteWatcher.drop_stream

    async def losing(watcher: RemoteWatcher) -> None:
        watcher._position = Revision(watcher._position + 1)
        await drop_stream(watcher)

    monkeypatch.setattr(RemoteWatcher, "drop_stream", losing)
    assert "a watch of" in found_by(ServiceMachine, 150, STEPS)


def test_the_machine_finds_a_transaction_that_ignores_its_comparisons(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Draft, "_holds", lambda draft, compare: True)
    assert "got TxnOutcome" in found_by(ServiceMachine, 150, STEPS)
