"""The metadata store in a real etcd: what the conformance suite cannot ask of every backend."""

from __future__ import annotations

import importlib
import itertools
import random
import shutil
import sys
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import trio

pytest.importorskip(
    "httpx2", reason="NOT TESTED ON ETCD: the package httpx2 is not installed: pip install 'gnomon[dev]'"
)

from gnomon.metadata import etcd_gateway
from gnomon.metadata.client import (
    Compacted,
    Compare,
    Delete,
    DeletePrefix,
    Event,
    Field,
    Get,
    InvalidRequest,
    KeyValue,
    LeaseNotFound,
    MetadataFull,
    MetadataUnavailable,
    Operation,
    Put,
    Revision,
    TxnResult,
    WatchBatch,
)
from gnomon.metadata.etcd import EtcdMetadata
from gnomon.metadata.request import Txn
from gnomon.metadata.state import State
from gnomon.testing.etcd_server import EtcdServer, free_port

NewEtcd = Callable[..., EtcdServer]


def run(main: Callable[[], Awaitable[None]]) -> None:
    """On real time, for etcd knows no other; a test that hangs fails."""

    async def bounded() -> None:
        with trio.fail_after(30):
            await main()

    trio.run(bounded)


async def put(metadata: EtcdMetadata, key: str, value: bytes = b"") -> KeyValue:
    (item,) = (await metadata.txn([], [Put(key, value)])).results
    assert isinstance(item, KeyValue)
    return item


async def taken(watch: AsyncIterator[WatchBatch], count: int) -> list[WatchBatch]:
    return [await anext(watch) for _ in range(count)]


async def ready(*servers: EtcdServer) -> None:
    """Waits until each answers, while other tasks go on."""
    for server in servers:
        await trio.to_thread.run_sync(server.wait_ready)


async def until(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110 - what another process does sets no event
        await trio.sleep(0.005)


@asynccontextmanager
async def serving(handler: Callable[[trio.SocketStream], Awaitable[None]]) -> AsyncIterator[str]:
    """The address of something that is not etcd."""
    async with trio.open_nursery() as nursery:
        (listener,) = await nursery.start(partial(trio.serve_tcp, handler, 0, host="127.0.0.1"))
        yield "127.0.0.1:{1}".format(*listener.socket.getsockname())
        nursery.cancel_scope.cancel()


async def answered(ask: Callable[[], Awaitable[Any]]) -> Any:
    """Asks until there is an answer."""
    while True:
        try:
            return await ask()
        except MetadataUnavailable:
            await trio.sleep(0.01)


def keys(batches: list[WatchBatch]) -> list[str]:
    return [event.key for batch in batches for event in batch.events]


def compact(server: EtcdServer, revision: int) -> None:
    """As another program, or etcd itself, would."""
    server.ask("kv/compaction", {"revision": str(revision), "physical": True})


# --- what is lost, and what is not ---


def test_where_nobody_listens_every_call_is_unavailable(etcd_world: Any) -> None:
    async def main() -> None:
        endpoints = [f"127.0.0.1:{free_port()}", f"http://127.0.0.1:{free_port()}"]
        async with EtcdMetadata(etcd_world, endpoints, call_seconds=0.3) as metadata:
            for call in (metadata.get("a"), metadata.range(""), metadata.lease(1), put(metadata, "a")):
                with pytest.raises(MetadataUnavailable, match="unknown: http://127"):
                    await call

    run(main)


def test_a_write_that_found_nobody_is_sent_to_the_next_endpoint(new_etcd: NewEtcd, etcd_world: Any) -> None:
    server = new_etcd()

    async def main() -> None:
        await ready(server)
        async with EtcdMetadata(etcd_world, [f"127.0.0.1:{free_port()}", server.endpoint]) as metadata:
            assert (await put(metadata, "a")).version == 1

    run(main)


@pytest.mark.parametrize("hangs_up", [False, True], ids=["silence", "hung up"])
def test_a_write_whose_answer_is_lost_is_unknown_and_not_sent_again_but_a_read_is(
    new_etcd: NewEtcd, etcd_world: Any, hangs_up: bool
) -> None:
    server = new_etcd()
    swallowed = 0

    async def swallow_answers(client: trio.SocketStream) -> None:
        nonlocal swallowed
        host, port = server.endpoint.split(":")
        async with client, await trio.open_tcp_stream(host, int(port)) as etcd, trio.open_nursery() as nursery:
            nursery.start_soon(pump, client, etcd)
            if await etcd.receive_some(65536):
                swallowed += 1
            if hangs_up:
                nursery.cancel_scope.cancel()

    async def pump(source: trio.SocketStream, sink: trio.SocketStream) -> None:
        while chunk := await source.receive_some(65536):
            await sink.send_all(chunk)

    async def main() -> None:
        await ready(server)
        async with serving(swallow_answers) as swallower:
            endpoints = [swallower, server.endpoint]
            async with EtcdMetadata(etcd_world, endpoints, call_seconds=1.5) as metadata:
                with pytest.raises(MetadataUnavailable, match="unknown"):
                    await put(metadata, "a")
                assert swallowed == 1
            async with EtcdMetadata(etcd_world, endpoints, call_seconds=1.5) as metadata:
                item = await metadata.get("a")  # a try that is not answered leaves time for another
                assert item is not None
                assert item.version == 1
                assert swallowed == 2

    run(main)


def test_an_etcd_that_stands_still_makes_calls_unavailable_until_it_goes_on(new_etcd: NewEtcd, etcd_world: Any) -> None:
    server = new_etcd()

    async def main() -> None:
        await ready(server)
        async with EtcdMetadata(etcd_world, [server.endpoint], call_seconds=0.6, watch_quiet_seconds=0.1) as metadata:
            last = await answered(lambda: put(metadata, "a"))
            async with metadata.watch("", last.mod_revision) as watch:
                await anext(watch)
                server.pause()
                for call in (metadata.get("a"), put(metadata, "a")):
                    with pytest.raises(MetadataUnavailable, match="unknown"):
                        await call
                with trio.move_on_after(0.5):
                    await anext(watch)
                server.resume()
                item = await answered(lambda: put(metadata, "b"))
                while (batch := await anext(watch)).revision < item.mod_revision:
                    assert keys([batch]) in (["a"], ["b"])  # unknown writes that were applied
                assert batch.revision == item.mod_revision

    run(main)


def test_of_writes_under_a_kill_the_answered_are_kept_and_each_other_is_unknown(
    new_etcd: NewEtcd, etcd_world: Any
) -> None:
    server = new_etcd()
    acknowledged: list[str] = []
    unknown: list[str] = []
    over = False

    async def write(metadata: EtcdMetadata, writer: int) -> None:
        for number in itertools.count():
            if over:
                return
            key = f"{writer}/{number}"
            try:
                assert (await metadata.txn([Compare.absent(key)], [Put(key, b"")])).succeeded, "it was sent twice"
                acknowledged.append(key)
            except MetadataUnavailable:
                unknown.append(key)

    async def main() -> None:
        nonlocal over
        await ready(server)
        async with EtcdMetadata(etcd_world, [server.endpoint], call_seconds=5) as metadata:
            async with trio.open_nursery() as nursery:
                for writer in range(6):
                    nursery.start_soon(write, metadata, writer)
                for kills in itertools.count(1):
                    await until(lambda kills=kills: len(acknowledged) >= 100 * kills)
                    if kills > 2 and unknown:
                        break
                    server.kill()
                    server.start()
                over = True
            stored = {item.key for item in (await metadata.range("")).items}
        assert set(acknowledged) <= stored <= set(acknowledged) | set(unknown)

    run(main)


def test_an_etcd_that_comes_back_without_its_data_is_an_error(new_etcd: NewEtcd, etcd_world: Any) -> None:
    server = new_etcd()

    async def main() -> None:
        await ready(server)
        async with EtcdMetadata(etcd_world, [server.endpoint]) as metadata:
            last = await put(metadata, "a")
            async with metadata.watch("", last.mod_revision) as watch:
                await anext(watch)
                server.kill()
                shutil.rmtree(server.directory / "data")
                server.start()
                with pytest.raises(MetadataUnavailable, match="went back from revision 2 to 1"):
                    await anext(watch)
            with pytest.raises(MetadataUnavailable, match="went back"):
                await metadata.get("a")

    run(main)


def test_members_of_a_cluster_stand_in_for_each_other(new_etcd: NewEtcd, etcd_world: Any) -> None:
    peers = [f"http://127.0.0.1:{free_port()}" for _ in range(3)]
    servers = [new_etcd(peers=peers, number=number) for number in range(3)]
    seen: list[str] = []

    async def follow(metadata: EtcdMetadata) -> None:
        async with metadata.watch("", Revision(1)) as watch:
            async for batch in watch:
                seen.extend(keys([batch]))

    async def written(metadata: EtcdMetadata, key: str) -> None:
        await answered(lambda: put(metadata, key))
        await until(lambda: key in seen)

    async def main() -> None:
        await ready(*servers)
        endpoints = [server.endpoint for server in servers]
        async with (
            EtcdMetadata(etcd_world, endpoints, call_seconds=1.5, watch_quiet_seconds=0.2) as metadata,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(follow, metadata)
            await written(metadata, "1")
            servers[0].kill()
            await written(metadata, "2")
            servers[0].start()
            await ready(servers[0])
            servers[1].pause()  # the one that is asked now: it stays connected and says nothing
            await written(metadata, "3")
            servers[2].kill()
            with pytest.raises(MetadataUnavailable):  # one of three has no quorum
                await metadata.get("1")
            servers[1].resume()
            await written(metadata, "4")
            nursery.cancel_scope.cancel()
        assert list(dict.fromkeys(seen)) == ["1", "2", "3", "4"]

    run(main)


# --- watches ---


def test_a_watch_goes_on_over_restarts_of_etcd_without_gap_or_repeat(new_etcd: NewEtcd, etcd_world: Any) -> None:
    server = new_etcd()
    batches: list[WatchBatch] = []

    async def follow(metadata: EtcdMetadata) -> None:
        async with metadata.watch("w/", Revision(1)) as watch:
            async for batch in watch:
                batches.append(batch)  # noqa: PERF401 - it is watched while it grows

    async def main() -> None:
        await ready(server)
        written: list[KeyValue] = []
        async with (
            EtcdMetadata(etcd_world, [server.endpoint], call_seconds=5) as metadata,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(follow, metadata)
            for life in range(3):
                for number in range(30):
                    written.append(await answered(lambda number=number: put(metadata, f"w/{number % 7}")))
                    await put(metadata, "x")
                if life < 2:
                    server.kill()
                    server.start()
                    await ready(server)
            await until(lambda: len(batches) >= len(written))
            nursery.cancel_scope.cancel()
        assert batches == [WatchBatch(item.mod_revision, (Event(item.key, item),)) for item in written]

    run(main)


def test_a_cancelled_wait_for_a_watch_loses_nothing(new_etcd: NewEtcd, etcd_world: Any) -> None:
    server = new_etcd()

    async def main() -> None:
        await ready(server)
        async with (
            EtcdMetadata(etcd_world, [server.endpoint]) as metadata,
            metadata.watch("", Revision(1)) as watch,
        ):
            for number in range(10):
                with trio.move_on_after(0.002 * number) as scope:
                    await anext(watch)
                assert scope.cancelled_caught
            items = [await put(metadata, f"{number}") for number in range(3)]
            assert await taken(watch, 3) == [WatchBatch(item.mod_revision, (Event(item.key, item),)) for item in items]

    run(main)


def test_history_compacted_while_a_watch_was_away_is_an_error_and_not_a_gap(new_etcd: NewEtcd, etcd_world: Any) -> None:
    server = new_etcd()

    async def main() -> None:
        await ready(server)
        async with EtcdMetadata(etcd_world, [server.endpoint]) as metadata:
            first = await put(metadata, "a")
            async with metadata.watch("", first.mod_revision) as watch:
                assert (await anext(watch)).revision == first.mod_revision
                server.kill()
                server.start()
                await ready(server)
                await metadata.txn([], [Delete("a")])
                last = await put(metadata, "b")
                await metadata.compact(last.mod_revision)
                with pytest.raises(Compacted) as raised:
                    await anext(watch)
            assert (raised.value.asked, raised.value.oldest) == (first.mod_revision + 1, last.mod_revision)
            async with metadata.watch("", raised.value.oldest) as watch:
                assert keys([await anext(watch)]) == ["b"]

    run(main)


def test_a_connected_watch_does_not_notice_a_compaction(new_etcd: NewEtcd, etcd_world: Any) -> None:
    server = new_etcd()

    async def main() -> None:
        await ready(server)
        async with (
            EtcdMetadata(etcd_world, [server.endpoint]) as metadata,
            metadata.watch("", Revision(1)) as watch,
        ):
            for key in ("a", "b", "c"):
                item = await put(metadata, key)
                assert await anext(watch) == WatchBatch(item.mod_revision, (Event(key, item),))
                await metadata.compact(item.mod_revision)
                compact(server, item.mod_revision)

    run(main)


def test_etcd_forgets_the_deletions_of_the_revision_it_is_compacted_at_and_we_do_not(
    new_etcd: NewEtcd, etcd_world: Any
) -> None:
    server = new_etcd()

    async def main() -> None:
        await ready(server)
        gateway = etcd_gateway.Gateway(etcd_world, [server.endpoint], call_seconds=5)
        async with EtcdMetadata(etcd_world, [server.endpoint]) as metadata:
            await put(metadata, "a")
            deleted = (await metadata.txn([], [Delete("a")])).revision
            await metadata.compact(deleted)
            async with metadata.watch("", deleted) as watch:
                assert await anext(watch) == WatchBatch(deleted, (Event("a", None),))
            last = await put(metadata, "b")

            compact(server, deleted)
            every = {"key": "AA==", "range_end": "AA==", "start_revision": str(deleted)}
            stream = await gateway.stream(f"http://{server.endpoint}", "watch", {"create_request": every})
            assert (await stream.next())["created"]
            (event,) = (await stream.next())["events"]  # etcd's own: the deletion is missing, and nothing says so
            assert event["kv"]["mod_revision"] == str(last.mod_revision)
            await stream.close()
            await gateway.close()
            async with metadata.watch("", deleted) as watch:
                with pytest.raises(Compacted) as raised:
                    await anext(watch)
            assert raised.value.oldest == deleted + 1

    run(main)


def test_a_revision_is_one_batch_however_etcd_cuts_its_messages(new_etcd: NewEtcd, etcd_world: Any) -> None:
    server = new_etcd(options=["--max-request-bytes", "300000"])
    fragments: list[bool] = []

    async def main() -> None:
        await ready(server)
        async with EtcdMetadata(etcd_world, [server.endpoint]) as metadata:
            for _ in range(6):
                result = await metadata.txn([], [Put(f"{number:02}", bytes(20_000)) for number in range(13)])
            async with metadata.watch("", Revision(1)) as watch:
                inner: Any = watch
                receive = inner._messages.receive

                def counted(message: Any) -> Any:
                    fragments.append(message.get("fragment", False))
                    return receive(message)

                inner._messages.receive = counted
                batches = await taken(watch, 6)
        assert [batch.revision for batch in batches] == list(range(result.revision - 5, result.revision + 1))
        assert [keys([batch]) for batch in batches] == [[f"{number:02}" for number in range(13)]] * 6
        assert any(fragments), "etcd cut nothing: the test shows nothing"

    run(main)


def test_an_idle_watch_keeps_up_with_the_revisions_of_others(new_etcd: NewEtcd, etcd_world: Any) -> None:
    server = new_etcd(options=["--experimental-watch-progress-notify-interval", "100ms"])

    async def main() -> None:
        await ready(server)
        async with (
            EtcdMetadata(etcd_world, [server.endpoint]) as metadata,
            metadata.watch("idle/", Revision(1)) as watch,
        ):
            with trio.move_on_after(1):
                for number in range(50):
                    last = await put(metadata, f"busy/{number}")
                await anext(watch)
            server.kill()
            server.start()
            await metadata.compact(last.mod_revision)
            item = await put(metadata, "idle/a")
            assert await anext(watch) == WatchBatch(item.mod_revision, (Event("idle/a", item),))

    run(main)


# --- ranges, transactions, leases ---


def test_clusters_in_one_etcd_do_not_see_each_other(new_etcd: NewEtcd, etcd_world: Any) -> None:
    server = new_etcd()

    async def main() -> None:
        await ready(server)
        async with (
            EtcdMetadata(etcd_world, [server.endpoint], prefix="gnomon/a/") as a,
            EtcdMetadata(etcd_world, [server.endpoint], prefix="gnomon/b/") as b,
            a.watch("", Revision(1)) as watch,
        ):
            one = await put(a, "k", b"a")
            two = await put(b, "k", b"b")
            server.ask("kv/put", {"key": b64encode(b"gnomon/").decode(), "value": ""})
            assert two.mod_revision == one.mod_revision + 1
            assert (await a.range("")).items == (one,)
            assert (await b.range("")).items == (two,)
            assert (await b.txn([], [DeletePrefix("")])).results == (1,)
            assert await b.get("k") is None
            three = await put(a, "k")
            assert await taken(watch, 2) == [
                WatchBatch(item.mod_revision, (Event("k", item),)) for item in (one, three)
            ]
            assert three.version == 2

    run(main)


def test_a_range_of_many_pages_is_of_one_revision(new_etcd: NewEtcd, etcd_world: Any) -> None:
    server = new_etcd()
    moves = 0

    async def move(metadata: EtcdMetadata) -> None:
        nonlocal moves
        while True:
            here, there = ("k/0000-", "k/1999-") if moves % 2 else ("k/1999-", "k/0000-")
            await metadata.txn([], [Delete(here), Put(there, b"")])
            moves += 1

    async def main() -> None:
        await ready(server)
        async with EtcdMetadata(etcd_world, [server.endpoint], range_page_keys=400) as metadata:
            for first in range(0, 2000, 100):
                await metadata.txn([], [Put(f"k/{number:04}", b"%d" % number) for number in range(first, first + 100)])
            await put(metadata, "k/1999-")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(move, metadata)
                for _ in range(10):
                    found = await metadata.range("k/")
                    assert len(found.items) == 2001
                    assert max(item.mod_revision for item in found.items) == found.revision
                nursery.cancel_scope.cancel()
            assert moves > 10
            assert [item.key for item in (await metadata.range("k/")).items if item.value] == [
                f"k/{number:04}" for number in range(2000)
            ]

    run(main)


@pytest.mark.parametrize("compactions", [1, 9])
def test_a_range_that_is_compacted_between_its_pages_begins_again_within_bounds(
    new_etcd: NewEtcd, etcd_world: Any, monkeypatch: pytest.MonkeyPatch, compactions: int
) -> None:
    server = new_etcd()
    pages = 0
    store_call = etcd_gateway.Gateway.store_call

    async def compacting(gateway: Any, path: str, body: Any, *, once: bool = False) -> Any:
        nonlocal pages
        answer = await store_call(gateway, path, body, once=once)
        if path == "kv/range":
            pages += 1
            if pages <= compactions:
                server.ask("kv/put", {"key": b64encode(b"other").decode()})
                compact(server, int(answer["header"]["revision"]) + 1)
        return answer

    async def main() -> None:
        await ready(server)
        async with EtcdMetadata(etcd_world, [server.endpoint], range_page_keys=2) as metadata:
            items = [await put(metadata, key) for key in "abc"]
            monkeypatch.setattr(etcd_gateway.Gateway, "store_call", compacting)
            if compactions == 1:
                assert (await metadata.range("")).items == tuple(items)
            else:
                with pytest.raises(MetadataUnavailable, match="compact"):
                    await metadata.range("")

    run(main)


def random_txn(draw: random.Random) -> Txn:
    def key() -> str:
        return draw.choice(["a", "a/1", "a/2", "b", "é"])

    def compare() -> Compare:
        field = draw.choice(list(Field))
        value: int | bytes = draw.choice([b"", b"", b"1"]) if field is Field.VALUE else draw.randrange(4)
        return Compare(key(), field, value)

    def operation() -> Operation:
        return draw.choice(
            [Put(key(), draw.choice([b"", b"1"])), Put(key(), b"2"), Delete(key()), DeletePrefix(key()), Get(key())]
        )

    def branch() -> tuple[Operation, ...]:
        return tuple(operation() for _ in range(draw.randrange(4)))

    return Txn(tuple(compare() for _ in range(draw.randrange(4))), branch(), branch())


def shifted(result: TxnResult, first: int) -> TxnResult:
    """A result of etcd's, as a store that began `first` revisions later would have it."""
    results = [
        replace(
            item,
            create_revision=Revision(item.create_revision - first),
            mod_revision=Revision(item.mod_revision - first),
        )
        if isinstance(item, KeyValue)
        else item
        for item in result.results
    ]
    return TxnResult(result.succeeded, Revision(result.revision - first), tuple(results))


def test_random_transactions_do_on_etcd_what_they_do_on_the_state_machine(new_etcd: NewEtcd, etcd_world: Any) -> None:
    server, draw, state = new_etcd(), random.Random(3), State()
    branches = {True: 0, False: 0}

    async def main() -> None:
        await ready(server)
        async with EtcdMetadata(etcd_world, [server.endpoint]) as metadata:
            first = (await metadata.range("")).revision
            for _ in range(600):
                request = random_txn(draw)
                # Revisions are compared as etcd counts them.
                moved = [
                    replace(compare, value=compare.value + first)
                    if isinstance(compare.value, int) and compare.value and compare.field is not Field.VERSION
                    else compare
                    for compare in request.compare
                ]
                expected, _ = state.apply(request, 0.0)
                if isinstance(expected, InvalidRequest):
                    with pytest.raises(InvalidRequest):
                        await metadata.txn(moved, request.then, request.otherwise)
                    continue
                assert isinstance(expected, TxnResult)
                assert shifted(await metadata.txn(moved, request.then, request.otherwise), first) == expected
                branches[expected.succeeded] += 1
            assert min(branches.values()) > 50

    run(main)


def test_more_operations_than_etcd_takes_are_refused_and_nothing_is_applied(new_etcd: NewEtcd, etcd_world: Any) -> None:
    server = new_etcd()

    async def main() -> None:
        await ready(server)
        async with EtcdMetadata(etcd_world, [server.endpoint]) as metadata:
            puts = [Put(f"{number}", b"") for number in range(129)]
            compares = [Compare.absent(f"{number}") for number in range(129)]
            for compare, then in ([], puts), (compares, []):
                with pytest.raises(InvalidRequest, match=r"128 unless .* --max-txn-ops\): split it"):
                    await metadata.txn(compare, then)
            with pytest.raises(InvalidRequest, match="request is too large"):
                await metadata.txn([], [Put("large", bytes(1_700_000))])
            with pytest.raises(InvalidRequest, match="larger than max"):
                await metadata.txn([], [Put("larger", bytes(3_000_000))])
            assert (await metadata.range("")).items == ()
            assert (await metadata.txn(compares[:128], puts[:128])).succeeded

    run(main)


def test_a_lease_is_rounded_up_to_whole_seconds_and_starts_anew_with_etcd(new_etcd: NewEtcd, etcd_world: Any) -> None:
    server = new_etcd()

    async def main() -> None:
        await ready(server)
        async with EtcdMetadata(etcd_world, [server.endpoint]) as metadata:
            for asked, granted in [(0.1, "1"), (1.0, "1"), (2.3, "3"), (30, "30")]:
                lease = await metadata.lease(asked)
                assert server.ask("lease/timetolive", {"ID": str(lease)})["grantedTTL"] == granted
            await metadata.txn([], [Put("a", b"", lease)])
            server.kill()
            server.start()
            await ready(server)
            assert int(server.ask("lease/timetolive", {"ID": str(lease)})["TTL"]) >= 29
            await metadata.keep_alive(lease)
            await metadata.revoke(lease)
            assert await metadata.get("a") is None
            with pytest.raises(LeaseNotFound):
                await metadata.keep_alive(lease)
            with pytest.raises(InvalidRequest, match="too large lease TTL"):
                await metadata.lease(1e12)

    run(main)


def test_a_full_etcd_leaves_a_write_unknown_and_goes_on_reading(new_etcd: NewEtcd, etcd_world: Any) -> None:
    server = new_etcd(options=["--quota-backend-bytes", "1000000"])

    async def main() -> None:
        await ready(server)
        async with EtcdMetadata(etcd_world, [server.endpoint]) as metadata:
            acknowledged = 0

            async def fill() -> None:
                nonlocal acknowledged
                while True:
                    await put(metadata, f"{acknowledged:03}", bytes(50_000))
                    acknowledged += 1

            with pytest.raises(MetadataUnavailable, match="quota-backend-bytes") as raised:
                await fill()
            assert not isinstance(raised.value, MetadataFull)
            stored = len((await metadata.range("")).items)
            assert stored in (acknowledged, acknowledged + 1)
            assert stored > 1

    run(main)


# --- how it is set up ---


@pytest.mark.parametrize("endpoint", ["https://127.0.0.1:2379", "127.0.0.1", "http://a:1/b", ":1", "a:b", ""])
def test_an_endpoint_that_is_no_plain_http_address_is_refused(etcd_world: Any, endpoint: str) -> None:
    with pytest.raises(InvalidRequest, match="give host:port or http://host:port"):
        EtcdMetadata(etcd_world, [endpoint])


@pytest.mark.parametrize("prefix", ["", "/", "gnomon", "\udc80/"])
def test_a_prefix_that_could_begin_another_is_refused(etcd_world: Any, prefix: str) -> None:
    with pytest.raises(InvalidRequest):
        EtcdMetadata(etcd_world, ["127.0.0.1:2379"], prefix=prefix)


def test_no_endpoints_are_refused(etcd_world: Any) -> None:
    with pytest.raises(InvalidRequest, match="at least one"):
        EtcdMetadata(etcd_world, [])


def test_a_closed_store_answers_nothing_more(new_etcd: NewEtcd, etcd_world: Any) -> None:
    server = new_etcd()

    async def main() -> None:
        await ready(server)
        metadata = EtcdMetadata(etcd_world, [server.endpoint])
        last = await put(metadata, "a")
        async with metadata.watch("", last.mod_revision) as watch:
            await anext(watch)
            for _ in range(2):
                await metadata.close()
            with pytest.raises(MetadataUnavailable, match="closed"):
                await metadata.get("a")
            with pytest.raises(MetadataUnavailable, match="closed"):
                await anext(watch)

    run(main)


def test_another_program_on_the_port_is_told_from_etcd(etcd_world: Any) -> None:
    async def greet(stream: trio.SocketStream) -> None:
        await stream.receive_some(65536)
        await stream.send_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")

    async def main() -> None:
        async with serving(greet) as address, EtcdMetadata(etcd_world, [address], call_seconds=0.3) as metadata:
            with pytest.raises(MetadataUnavailable, match="no JSON gateway of etcd"):
                await metadata.get("a")

    run(main)


def test_without_httpx2_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "httpx2", None)
    monkeypatch.delitem(sys.modules, etcd_gateway.__name__)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'gnomon\[etcd\]'"):
        importlib.import_module(etcd_gateway.__name__)
