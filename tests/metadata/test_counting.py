"""The number of calls that a client operation costs the metadata service."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gnomon.metadata.client import Compare, LeaseNotFound, Metadata, Put, Revision
from gnomon.testing.storms.metadata.counting_metadata import CountingMetadata


def test_reads_and_transactions_inside_the_block_are_counted(metadata_backend: Callable[[Any], None]) -> None:
    async def scenario(inner: Metadata) -> None:
        counting = CountingMetadata(inner)
        await counting.txn([], [Put("before", b"")])
        with counting.measure() as cost:
            await counting.get("a")
            await counting.range("")
            with counting.measure() as refused:
                await counting.txn([Compare.absent("before")], [Put("a", b"")])
        await counting.get("after")
        assert (cost.reads, cost.writes) == (2, 1)
        assert (refused.reads, refused.writes) == (0, 1)

    metadata_backend(scenario)


def test_every_call_is_passed_on_and_leases_and_watches_are_not_counted(
    metadata_backend: Callable[[Any], None],
) -> None:
    async def scenario(inner: Metadata) -> None:
        counting = CountingMetadata(inner)
        with counting.measure() as cost:
            lease = await counting.lease(10)
            await counting.keep_alive(lease)
            async with counting.watch("", Revision(1)) as watch:
                result = await inner.txn([], [Put("a", b"", lease)])
                assert (await anext(watch)).revision == result.revision
            await counting.compact(result.revision)
            await counting.revoke(lease)
            with pytest.raises(LeaseNotFound):
                await counting.keep_alive(lease)
        assert (cost.reads, cost.writes) == (0, 0)
        assert await inner.get("a") is None

    metadata_backend(scenario)
