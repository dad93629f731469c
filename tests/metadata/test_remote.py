"""A metadata store in another process, and its clients when connections or the store fail."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from gnomon.metadata.client import (
    Compare,
    Event,
    HistoryCompacted,
    InvalidRequest,
    KeyValue,
    LeaseNotFound,
    MetadataFull,
    MetadataUnavailable,
    Put,
    Revision,
    WatchBatch,
)
from gnomon.metadata.messages import ERRORS
from gnomon.metadata.remote import RemoteMetadata
from gnomon.metadata.service import PROGRESS_REVISIONS
from gnomon.runtime.rpc.client import RpcClient
from gnomon.runtime.trio_world import open_trio_world
from gnomon.runtime.world import DiskFull
from gnomon.testing.simulation.simulated_world import SimulatedWorld
from gnomon.testing.simulation.simulation import Simulation, simulate

Talk = Callable[[RemoteMetadata, Simulation], Awaitable[None]]
Node = Callable[[Any], Awaitable[None]]


def run(store_node: Node, talk: Talk, *, seed: int = 0, start: bool = True, **options: Any) -> None:
    """Runs `talk` to its end, on a machine of its own."""
    finished: list[bool] = []

    async def cluster(simulation: Simulation) -> None:
        async def node(world: SimulatedWorld) -> None:
            remote = RemoteMetadata(world, options.pop("addresses", [("store", 7)]), **options)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(remote.run)
                await talk(remote, simulation)
                finished.append(True)
                nursery.cancel_scope.cancel()

        simulation.machine("store").start(store_node)
        if not start:
            simulation.machine("store").kill()
        simulation.machine("client").start(node)
        client = simulation.machine("client").process
        assert client is not None
        await client.ended.wait()

    simulate(seed, cluster)
    assert finished


async def written(remote: RemoteMetadata, key: str, value: bytes = b"") -> KeyValue:
    item = (await remote.txn([], [Put(key, value)])).results[0]
    assert isinstance(item, KeyValue)
    return item


def restart(simulation: Simulation, how: str = "kill") -> None:
    store = simulation.machine("store")
    getattr(store, how)()
    store.start()


@pytest.mark.parametrize("seed", range(8))
def test_a_watch_continues_without_gap_or_repeat_across_resets_kills_and_power_failures(
    store_node: Node, seed: int
) -> None:
    watched: list[WatchBatch] = []
    everything: list[WatchBatch] = []

    async def talk(remote: RemoteMetadata, simulation: Simulation) -> None:
        faults = simulation.random("faults")

        async def write() -> None:
            for number in range(1_000_000):
                try:
                    await remote.txn([], [Put(f"{'ab'[number % 2]}/{number % 5}", b"%d" % number)])
                except MetadataUnavailable:
                    pass
                await trio.sleep(0.01)

        async def watch() -> None:
            async with remote.watch("a/", Revision(1)) as batches:
                while True:
                    watched.append(await anext(batches))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(write)
            nursery.start_soon(watch)
            for _ in range(10):
                await trio.sleep(faults.uniform(0.01, 1))
                match faults.randrange(4):
                    case 0:
                        for stream in simulation.network.streams():
                            simulation.network.reset(stream)
                    case 1:
                        restart(simulation)
                    case 2:
                        restart(simulation, "power_off")
                    case 3:
                        simulation.network.clog("store", "client", faults.uniform(0, 9))
            simulation.heal()
            await trio.sleep(12)
            nursery.cancel_scope.cancel()
        last = (await remote.range("")).revision
        async with remote.watch("", Revision(1)) as batches:
            while len(everything) < last:
                everything.append(await anext(batches))

    run(store_node, talk, seed=seed)
    expected = [
        WatchBatch(batch.revision, events)
        for batch in everything
        if (events := tuple(event for event in batch.events if event.key.startswith("a/")))
    ]
    assert len(watched) > 100
    assert watched == expected[: len(watched)]
    assert len(watched) > len(expected) - 3


def test_a_watch_ends_if_the_history_is_compacted_while_it_is_disconnected(store_node: Node) -> None:
    async def talk(remote: RemoteMetadata, simulation: Simulation) -> None:
        first = await written(remote, "a")
        async with remote.watch("", first.mod_revision) as batches:
            assert (await anext(batches)).events == (Event("a", first),)
            for stream in simulation.network.streams():
                simulation.network.reset(stream)
            simulation.network.block("client", "store")
            await trio.sleep(1)
            simulation.network.unblock("client", "store")
            await remote.get("a")
            await written(remote, "a")
            last = await written(remote, "a")
            await remote.compact(last.mod_revision)
            with pytest.raises(HistoryCompacted) as raised:
                await anext(batches)
        assert (raised.value.asked, raised.value.oldest) == (first.mod_revision + 1, last.mod_revision)

    run(store_node, talk)


def test_a_watch_of_a_quiet_prefix_survives_a_compaction_of_other_changes(store_node: Node) -> None:
    async def talk(remote: RemoteMetadata, simulation: Simulation) -> None:
        seen: list[WatchBatch] = []

        async def watch() -> None:
            async with remote.watch("quiet/", Revision(1)) as batches:
                while True:
                    seen.append(await anext(batches))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            for number in range(2 * PROGRESS_REVISIONS + 1):
                last = await written(remote, f"busy/{number % 10}")
            await remote.compact(Revision(last.mod_revision - PROGRESS_REVISIONS + 5))
            restart(simulation)
            await trio.sleep(2)
            item = await written(remote, "quiet/a")
            await trio.sleep(2)
            assert seen == [WatchBatch(item.mod_revision, (Event("quiet/a", item),))]
            nursery.cancel_scope.cancel()

    run(store_node, talk)


def test_a_watch_that_hears_no_news_after_an_outage_does_not_pause_for_long_at_the_next_reset(store_node: Node) -> None:
    async def talk(metadata: RemoteMetadata, simulation: Simulation) -> None:
        store, network = simulation.machine("store"), simulation.network
        async with metadata.watch("quiet", Revision(1)) as batches, trio.open_nursery() as nursery:
            nursery.start_soon(anext, batches)
            await simulation.sleep(1)
            store.kill()
            await simulation.sleep(10)
            store.start()
            await simulation.sleep(10)
            (stream,) = network.streams()
            network.reset(stream)
            await simulation.sleep(0.5)
            assert [each for each in network.streams() if each is not stream]
            nursery.cancel_scope.cancel()

    run(store_node, talk)


def test_a_cancelled_anext_loses_nothing(store_node: Node) -> None:
    async def talk(remote: RemoteMetadata, simulation: Simulation) -> None:
        async with remote.watch("", Revision(1)) as batches:
            for number in range(30):
                with trio.move_on_after(simulation.random(f"{number}").uniform(0, 0.002)):
                    await anext(batches)
                    pytest.fail("there is nothing yet")
            items = [await written(remote, "a") for _ in range(20)]
            seen: list[WatchBatch] = []
            while len(seen) < 20:
                with trio.move_on_after(0.0005):
                    seen.append(await anext(batches))
            assert [batch.revision for batch in seen] == [item.mod_revision for item in items]

    run(store_node, talk)


def test_a_transaction_whose_answer_is_lost_is_unknown_and_not_repeated(store_node: Node) -> None:
    async def talk(remote: RemoteMetadata, simulation: Simulation) -> None:
        await remote.get("a")
        simulation.network.block("store", "client")
        start = trio.current_time()
        with pytest.raises(MetadataUnavailable, match="whether the call had an effect is unknown"):
            await remote.txn([Compare.absent("a")], [Put("a", b"1")])
        assert trio.current_time() - start < 8
        simulation.network.unblock("store", "client")
        item = await remote.get("a")
        assert item is not None
        assert (item.version, item.value) == (1, b"1")

    run(store_node, talk)


def test_a_transaction_waits_for_a_store_that_has_not_started(store_node: Node) -> None:
    async def talk(remote: RemoteMetadata, simulation: Simulation) -> None:
        async def start_later() -> None:
            await trio.sleep(3)
            simulation.machine("store").start()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(start_later)
            assert (await written(remote, "a")).version == 1
        assert trio.current_time() < 5

    run(store_node, talk, start=False)


@pytest.mark.parametrize("how", ["kill", "power_off"])
def test_reads_survive_a_restart_and_fail_within_the_retry_time(store_node: Node, how: str) -> None:
    async def talk(remote: RemoteMetadata, simulation: Simulation) -> None:
        item = await written(remote, "a")
        restart(simulation, how)
        assert await remote.get("a") == item
        getattr(simulation.machine("store"), how)()
        start = trio.current_time()
        with pytest.raises(MetadataUnavailable):
            await remote.get("a")
        assert 8 < trio.current_time() - start < 17
        with pytest.raises(MetadataUnavailable):
            await remote.txn([], [])

    run(store_node, talk, retry_seconds=10.0)


def test_the_next_address_is_asked_if_one_does_not_answer(store_node: Node) -> None:
    async def talk(remote: RemoteMetadata, simulation: Simulation) -> None:
        start = trio.current_time()
        item = await written(remote, "a")
        async with remote.watch("", Revision(1)) as batches:
            assert (await anext(batches)).revision == item.mod_revision
        assert trio.current_time() - start < 1

    run(store_node, talk, addresses=[("client", 9), ("store", 7)])


def test_the_lease_of_a_disconnected_client_ends_and_the_lease_of_a_connected_one_does_not(store_node: Node) -> None:
    async def talk(remote: RemoteMetadata, simulation: Simulation) -> None:
        async def holder(name: str, world: SimulatedWorld) -> None:
            held = RemoteMetadata(world, [("store", 7)])
            async with trio.open_nursery() as nursery:
                nursery.start_soon(held.run)
                lease = await held.lease(10)
                await held.txn([], [Put(f"live/{name}", b"", lease)])
                while True:
                    await world.clock.sleep(3)
                    await held.keep_alive(lease)

        names = ["one", "two", "three"]
        for name in names:
            simulation.machine(name).start(partial(holder, name))
        await trio.sleep(60)
        for stream in simulation.network.streams():
            simulation.network.reset(stream)
        await trio.sleep(60)
        assert len((await remote.range("live/")).items) == 3
        simulation.machine("one").power_off()
        simulation.network.block("two", "store")
        two = simulation.machine("two").process
        assert two is not None
        two.may_stop = True  # its lease has ended when the link works again
        await trio.sleep(20)
        simulation.network.unblock("two", "store")
        await trio.sleep(20)
        assert [item.key for item in (await remote.range("live/")).items] == ["live/three"]
        assert simulation.machine("two").process is None

    run(store_node, talk)


def test_the_store_of_another_cluster_at_the_same_address_is_unavailable_at_once(machine: Any) -> None:
    async def main() -> None:
        async with open_trio_world() as world, trio.open_nursery() as nursery:
            async with machine.serving("ours") as served:
                remote = RemoteMetadata(world, [("127.0.0.1", served.port)])
                nursery.start_soon(remote.run)
                await remote.get("a")
            async with machine.serving("theirs", served.port):
                with pytest.raises(MetadataUnavailable, match=r"cluster 'ours'.*cluster 'theirs'.*check the address"):
                    await remote.get("a")
                async with remote.watch("", Revision(1)) as batches:
                    with pytest.raises(MetadataUnavailable, match="cluster 'theirs'"):
                        await anext(batches)
            async with machine.serving("ours", served.port):
                await remote.get("a")
            nursery.cancel_scope.cancel()

    trio.run(main)


def test_all_addresses_must_belong_to_the_cluster_that_answered_first(machine: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            machine.serving("ours") as ours,
            type(machine)(tmp_path / "other").serving("theirs") as theirs,
            open_trio_world() as world,
            trio.open_nursery() as nursery,
        ):
            remote = RemoteMetadata(world, [("127.0.0.1", at.port) for at in (ours, theirs)], retry_seconds=1)
            nursery.start_soon(remote.run)
            await written(remote, "a")
            remote.give_up_on(remote.client)
            assert await remote.get("a") is not None, "the other one refuses, and the first is asked again"
            remote.give_up_on(remote.client)
            async with remote.watch("", Revision(1)) as batches:
                with pytest.raises(MetadataUnavailable, match="cluster 'theirs'"):
                    await anext(batches)
                assert (await anext(batches)).revision >= 1, "who watches again is heard, too"
            nursery.cancel_scope.cancel()

    trio.run(main)


def test_errors_of_the_store_reach_the_caller_and_unsendable_requests_are_refused_locally(machine: Any) -> None:
    async def main() -> None:
        async with machine.serving() as served:
            remote = served.remote()
            with pytest.raises(InvalidRequest, match="cannot be asked for"):
                await remote.get("\udc80")
            with pytest.raises(LeaseNotFound, match="lease 99"):
                await remote.keep_alive(99)
            served.environment.failing = DiskFull("no room left")
            with pytest.raises(MetadataFull, match="nothing was applied: no room left"):
                await remote.txn([], [Put("a", b"")])
            served.environment.failing = None
            assert (await written(remote, "a")).version == 1

    trio.run(main)


def test_invalid_arguments_do_not_harm_the_service(machine: Any) -> None:
    async def main() -> None:
        async with machine.serving() as served:
            client = RpcClient(served.world, "127.0.0.1", served.port, "metadata", ERRORS)
            served.nursery.start_soon(client.run)
            stream = random.Random(0)
            values = [None, True, 1, -1, 1.5, float("nan"), "a", b"a", [], [["get", "a"]], [["put", 1]], {"a": 1}]
            for method in ("get", "range", "txn", "lease", "keep_alive", "revoke", "compact"):
                for _ in range(40):
                    args = [stream.choice(values) for _ in range(stream.randint(0, 4))]
                    try:
                        await client.call(method, *args)
                    except (InvalidRequest, LeaseNotFound):
                        pass
            for args in ([], ["a"], ["a", "b"], [1, 1], ["a", 1, 1]):
                with pytest.raises(InvalidRequest):
                    async with client.stream("watch", *args) as items:
                        await anext(items)

    trio.run(main)
