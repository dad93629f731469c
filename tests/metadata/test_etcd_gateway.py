"""Calls to the members of an etcd, and their outcomes when members fail."""

from __future__ import annotations

import importlib
import itertools
import shutil
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import trio
from real_etcd import NewEtcd, OnEtcd, answered, keys, put, ready, run, until

from gnomon.metadata.client import (
    Compare,
    DeletePrefix,
    InvalidRequest,
    MetadataUnavailable,
    Put,
    Revision,
)
from gnomon.metadata.etcd import gateway as etcd_gateway
from gnomon.metadata.etcd.etcd import EtcdMetadata
from gnomon.testing.etcd_server import EtcdServer, free_port


@asynccontextmanager
async def serving(handler: Callable[[trio.SocketStream], Awaitable[None]]) -> AsyncIterator[str]:
    """Serves connections with `handler` instead of etcd; yields the address."""
    async with trio.open_nursery() as nursery:
        (listener,) = await nursery.start(partial(trio.serve_tcp, handler, 0, host="127.0.0.1"))
        yield "127.0.0.1:{1}".format(*listener.socket.getsockname())
        nursery.cancel_scope.cancel()


def three_members(new_etcd: NewEtcd) -> list[EtcdServer]:
    """The members of one etcd, started."""
    peers = [f"http://127.0.0.1:{free_port()}" for _ in range(3)]
    return [new_etcd(peers=peers, number=number) for number in range(3)]


def test_every_call_is_unavailable_if_no_endpoint_listens(etcd_world: Any) -> None:
    async def main() -> None:
        async with EtcdMetadata(etcd_world, endpoints, call_seconds=0.3) as metadata:
            for call in (metadata.get("a"), metadata.range(""), metadata.lease(1), put(metadata, "a")):
                with pytest.raises(MetadataUnavailable, match="unknown: http://127"):
                    await call

    with socket.socket() as one, socket.socket() as other:  # bound, so that nobody else listens there
        for each in (one, other):
            each.bind(("127.0.0.1", 0))
        endpoints = ["127.0.0.1:{1}".format(*one.getsockname()), "http://127.0.0.1:{1}".format(*other.getsockname())]
        run(main)


def test_a_transaction_that_deletes_every_key_is_not_sent_to_an_etcd(etcd_world: Any) -> None:
    async def main() -> None:
        async with EtcdMetadata(etcd_world, [f"127.0.0.1:{free_port()}"], call_seconds=0.3) as metadata:
            for then, otherwise in (([DeletePrefix("")], []), ([], [DeletePrefix("")])):
                with pytest.raises(InvalidRequest, match="it deletes every key: name a prefix"):
                    await metadata.txn([], then, otherwise)

    run(main)


def test_a_write_to_an_endpoint_that_does_not_listen_is_sent_to_the_next_one(
    new_etcd: NewEtcd, etcd_world: Any
) -> None:
    server = new_etcd()

    async def main() -> None:
        await ready(server)
        async with EtcdMetadata(etcd_world, [f"127.0.0.1:{free_port()}", server.endpoint]) as metadata:
            assert (await put(metadata, "a")).version == 1

    run(main)


@pytest.mark.parametrize("hangs_up", [False, True], ids=["silence", "hung up"])
def test_after_a_lost_answer_a_write_is_unknown_and_not_repeated_and_a_read_is_repeated(
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
            async with EtcdMetadata(etcd_world, endpoints, call_seconds=4) as metadata:
                item = await metadata.get("a")  # an unanswered attempt leaves time for another one
                assert item is not None
                assert item.version == 1
                assert swallowed == 2

    run(main)


def test_a_paused_etcd_makes_calls_unavailable_until_it_resumes(on_etcd: OnEtcd) -> None:
    async def main(server: EtcdServer, metadata: EtcdMetadata) -> None:
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

    on_etcd(main, call_seconds=0.6, watch_quiet_seconds=0.1)


def test_writes_during_kills_are_kept_if_answered_and_unknown_otherwise(new_etcd: NewEtcd, etcd_world: Any) -> None:
    servers = three_members(new_etcd)
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

    async def kill_in_turn() -> None:
        nonlocal over
        for kills in itertools.count(1):
            await until(lambda kills=kills: len(acknowledged) >= 100 * kills)
            if kills > len(servers) and unknown:
                break
            server = servers[kills % len(servers)]
            server.kill()
            server.start()
            await ready(server)
        over = True

    async def main() -> None:
        await ready(*servers)
        endpoints = [server.endpoint for server in servers]
        async with EtcdMetadata(etcd_world, endpoints, call_seconds=5) as metadata:
            async with trio.open_nursery() as nursery:
                for writer in range(6):
                    nursery.start_soon(write, metadata, writer)
                await kill_in_turn()
            stored = {item.key for item in (await metadata.range("")).items}
        assert set(acknowledged) - stored == set(), "acknowledged and lost"
        assert stored <= set(acknowledged) | set(unknown)

    run(main)


def test_an_etcd_that_restarts_without_its_data_is_an_error(on_etcd: OnEtcd) -> None:
    async def main(server: EtcdServer, metadata: EtcdMetadata) -> None:
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

    on_etcd(main)


def test_calls_go_to_another_member_of_the_cluster_when_one_fails(new_etcd: NewEtcd, etcd_world: Any) -> None:
    servers = three_members(new_etcd)
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
            servers[1].pause()  # the member in use: it stays connected and does not answer
            await written(metadata, "3")
            servers[2].kill()
            with pytest.raises(MetadataUnavailable):  # one of three has no quorum
                await metadata.get("1")
            servers[1].resume()
            await written(metadata, "4")
            nursery.cancel_scope.cancel()
        assert list(dict.fromkeys(seen)) == ["1", "2", "3", "4"]

    run(main)


@pytest.mark.parametrize("endpoint", ["https://127.0.0.1:2379", "127.0.0.1", "http://a:1/b", ":1", "a:b", ""])
def test_an_endpoint_that_is_no_plain_http_address_is_refused(etcd_world: Any, endpoint: str) -> None:
    with pytest.raises(InvalidRequest, match="give host:port or http://host:port"):
        EtcdMetadata(etcd_world, [endpoint])


def test_an_empty_list_of_endpoints_is_refused(etcd_world: Any) -> None:
    with pytest.raises(InvalidRequest, match="at least one"):
        EtcdMetadata(etcd_world, [])


@pytest.mark.parametrize(
    "body",
    [b"hello", b"[]", b"{}", b'{"status":"ok"}', b'{"header":null}', b'{"header":{"revision":"x"}}', b'{"result":7}'],
)
def test_another_program_on_the_port_is_not_taken_for_etcd(etcd_world: Any, body: bytes) -> None:
    async def greet(stream: trio.SocketStream) -> None:
        await stream.receive_some(65536)
        await stream.send_all(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))

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
