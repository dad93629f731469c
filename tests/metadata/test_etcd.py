"""The metadata store in a real etcd: tests that do not apply to every backend."""

from __future__ import annotations

import random
from base64 import b64encode
from dataclasses import replace
from typing import Any

import pytest
import trio
from real_etcd import NewEtcd, OnEtcd, compact, put, ready, run, taken

from gnomon.metadata.client import (
    TXN_BYTES_MAX,
    Compare,
    Delete,
    DeletePrefix,
    Event,
    Get,
    InvalidRequest,
    KeyField,
    KeyValue,
    LeaseNotFound,
    MetadataFull,
    MetadataUnavailable,
    Operation,
    Put,
    Revision,
    TxnOutcome,
    WatchBatch,
)
from gnomon.metadata.etcd import gateway as etcd_gateway
from gnomon.metadata.etcd.etcd import EtcdMetadata
from gnomon.metadata.request import Txn
from gnomon.metadata.state import State
from gnomon.testing.etcd_server import EtcdServer


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
            assert (await b.txn([], [DeletePrefix("k")])).results == (1,)
            assert await b.get("k") is None
            three = await put(a, "k")
            assert await taken(watch, 2) == [
                WatchBatch(item.mod_revision, (Event("k", item),)) for item in (one, three)
            ]
            assert three.version == 2

    run(main)


def test_a_range_of_many_pages_is_of_one_revision(on_etcd: OnEtcd) -> None:
    moves = 0

    async def move(metadata: EtcdMetadata) -> None:
        nonlocal moves
        while True:
            here, there = ("k/0000-", "k/1999-") if moves % 2 else ("k/1999-", "k/0000-")
            await metadata.txn([], [Delete(here), Put(there, b"")])
            moves += 1

    async def main(server: EtcdServer, metadata: EtcdMetadata) -> None:
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

    on_etcd(main, range_page_keys=400)


@pytest.mark.parametrize("compactions", [1, 9])
def test_a_range_compacted_between_its_pages_is_retried_a_limited_number_of_times(
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
        field = draw.choice(list(KeyField))
        value: int | bytes = draw.choice([b"", b"", b"1"]) if field is KeyField.VALUE else draw.randrange(4)
        return Compare(key(), field, value)

    def operation() -> Operation:
        return draw.choice(
            [Put(key(), draw.choice([b"", b"1"])), Put(key(), b"2"), Delete(key()), DeletePrefix(key()), Get(key())]
        )

    def branch() -> tuple[Operation, ...]:
        return tuple(operation() for _ in range(draw.randrange(4)))

    return Txn(tuple(compare() for _ in range(draw.randrange(4))), branch(), branch())


def shifted(result: TxnOutcome, first: int) -> TxnOutcome:
    """A result of etcd with `first` subtracted from its revisions, as a new store would return it."""
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
    return TxnOutcome(result.succeeded, Revision(result.revision - first), tuple(results))


def test_random_transactions_have_equal_results_on_etcd_and_on_the_state_machine(on_etcd: OnEtcd) -> None:
    draw, state = random.Random(3), State()
    branches = {True: 0, False: 0}

    async def main(server: EtcdServer, metadata: EtcdMetadata) -> None:
        first = (await metadata.range("")).revision
        for _ in range(600):
            request = random_txn(draw)
            # Comparisons use the revisions of etcd.
            moved = [
                replace(compare, value=compare.value + first)
                if isinstance(compare.value, int) and compare.value and compare.field is not KeyField.VERSION
                else compare
                for compare in request.compare
            ]
            expected, _ = state.apply(request, 0.0)
            if isinstance(expected, InvalidRequest):
                with pytest.raises(InvalidRequest):
                    await metadata.txn(moved, request.then, request.otherwise)
                continue
            assert isinstance(expected, TxnOutcome)
            assert shifted(await metadata.txn(moved, request.then, request.otherwise), first) == expected
            branches[expected.succeeded] += 1
        assert min(branches.values()) > 50

    on_etcd(main)


def test_a_transaction_beyond_the_limits_of_etcd_is_refused_and_not_applied(on_etcd: OnEtcd) -> None:
    async def main(server: EtcdServer, metadata: EtcdMetadata) -> None:
        puts = [Put(f"{number}", b"") for number in range(129)]
        compares = [Compare.absent(f"{number}") for number in range(129)]
        for compare, then in ([], puts), (compares, []):
            with pytest.raises(InvalidRequest, match=r"128 by default\): split it, .* --max-txn-ops"):
                await metadata.txn(compare, then)
        largest = bytes(TXN_BYTES_MAX - len("large"))  # etcd counts a few bytes more
        with pytest.raises(InvalidRequest, match=r"1.5 MiB by default; .*request is too large.* --max-request-bytes"):
            await metadata.txn([], [Put("large", largest)])
        assert (await metadata.range("")).items == ()
        assert (await metadata.txn(compares[:128], puts[:128])).succeeded

    on_etcd(main)


def test_a_lease_is_rounded_up_to_whole_seconds_and_has_its_full_time_after_a_restart_of_etcd(on_etcd: OnEtcd) -> None:
    async def main(server: EtcdServer, metadata: EtcdMetadata) -> None:
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

    on_etcd(main)


def test_a_full_etcd_leaves_the_outcome_of_a_write_unknown_and_still_serves_reads(on_etcd: OnEtcd) -> None:
    async def main(server: EtcdServer, metadata: EtcdMetadata) -> None:
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

    on_etcd(main, etcd_options=["--quota-backend-bytes", "1000000"])


@pytest.mark.parametrize("prefix", ["", "/", "gnomon", "\udc80/"])
def test_an_invalid_prefix_is_refused(etcd_world: Any, prefix: str) -> None:
    with pytest.raises(InvalidRequest):
        EtcdMetadata(etcd_world, ["127.0.0.1:2379"], prefix=prefix)


def test_a_closed_store_refuses_every_call(on_etcd: OnEtcd) -> None:
    async def main(server: EtcdServer, metadata: EtcdMetadata) -> None:
        last = await put(metadata, "a")
        async with metadata.watch("", last.mod_revision) as watch:
            await anext(watch)
            for _ in range(2):
                await metadata.close()
            with pytest.raises(MetadataUnavailable, match="closed"):
                await metadata.get("a")
            with pytest.raises(MetadataUnavailable, match="closed"):
                await anext(watch)

    on_etcd(main)
