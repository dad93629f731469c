"""Damage to the records of a metadata store is seen (numbers: invariants of `sealed`)."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from gnomon.metadata import records
from gnomon.metadata.client import Delete, DeletePrefix, MetadataError, Put
from gnomon.metadata.embedded import DATABASES, EmbeddedMetadata
from gnomon.metadata.sealed import DIGEST_BYTES, SUM_KEY, DamagedRecord, DamagedStore

FLIPS = 300


async def filled(machine: Any, environment: Any) -> EmbeddedMetadata:
    metadata: EmbeddedMetadata = await machine.open(environment)
    lease = await metadata.lease(10)
    for number in range(6):
        await metadata.txn([], [Put(f"topics/{number}", b"value" * number), Put(f"ledgers/{number}", b"", lease)])
    await metadata.txn([], [Put("topics/1", b"again"), Delete("topics/2")])
    await metadata.txn([], [DeletePrefix("ledgers/3")])
    return metadata


def stored(environment: Any) -> dict[tuple[str, bytes], bytes]:
    with environment.read() as transaction:
        return {
            (name, bytes(key)): bytes(value)
            for name in DATABASES
            for key, value in transaction.cursor(db=environment.databases[name])
        }


def replace(environment: Any, name: str, key: bytes, *, by: tuple[bytes, bytes] | None) -> None:
    with environment.lmdb.begin(write=True, db=environment.databases[name]) as transaction:
        transaction.delete(key)
        if by is not None:
            transaction.put(*by)


@pytest.fixture
def damaged(machine: Any) -> Callable[[Callable[[Any], None]], list[Exception]]:
    """Damages a filled store, and returns the error of its next start, if there is one."""

    def start_after(damage: Callable[[Any], None]) -> list[Exception]:
        errors: list[Exception] = []

        async def main() -> None:
            with machine.environment() as environment:
                await filled(machine, environment)
            with machine.environment() as environment:
                before = stored(environment)
                await machine.open(environment)
                damage(environment)
                try:
                    await machine.open(environment)
                except MetadataError as error:
                    errors.append(error)
                with environment.lmdb.begin(write=True) as transaction:
                    for name in DATABASES:
                        transaction.drop(environment.databases[name], delete=False)
                    for (name, key), value in before.items():
                        transaction.put(key, value, db=environment.databases[name])

        machine.run(main)
        return errors

    return start_after


def test_a_flipped_bit_of_a_key_or_a_value_stops_the_start_with_the_key(damaged: Any) -> None:
    """1."""
    drawn = random.Random(25)
    for _ in range(FLIPS):
        flipped: list[bytes] = []

        def flip(environment: Any, flipped: list[bytes] = flipped) -> None:
            (name, key), value = drawn.choice(sorted(stored(environment).items()))
            record = bytearray(key + value)
            bit = drawn.randrange(8 * len(record))
            record[bit // 8] ^= 1 << bit % 8
            new_key, new_value = bytes(record[: len(key)]), bytes(record[len(key) :])
            replace(environment, name, key, by=(new_key, new_value))
            flipped.append(new_key)

        (error,) = damaged(flip)
        assert isinstance(error, DamagedRecord | DamagedStore)
        if isinstance(error, DamagedRecord):
            assert repr(flipped[0]) in str(error)
        assert "restore a copy" in str(error)


def test_a_missing_record_stops_the_start(damaged: Any) -> None:
    """2."""
    for place in range(19):

        def lose(environment: Any, place: int = place) -> None:
            name, key = sorted(stored(environment))[place]
            replace(environment, name, key, by=None)

        (error,) = damaged(lose)
        assert isinstance(error, DamagedStore)


def test_a_record_of_another_store_stops_the_start(damaged: Any) -> None:
    """2."""

    def copy(environment: Any) -> None:
        (name, key), value = next(item for item in stored(environment).items() if item[0][0] == records.KEYS)
        replace(environment, records.HISTORY, b"x" * 8, by=(b"x" * 8, value))
        assert (name, key) in stored(environment)

    (error,) = damaged(copy)
    assert isinstance(error, DamagedRecord)


def test_a_store_of_format_1_is_sealed_when_it_is_opened(machine: Any) -> None:
    async def main() -> None:
        with machine.environment() as environment:
            before = await (await filled(machine, environment)).range("")
            with environment.lmdb.begin(write=True) as transaction:
                for (name, key), value in stored(environment).items():
                    plain = records.FORMAT_1 if key == records.FORMAT_KEY else value[DIGEST_BYTES:]
                    if key == SUM_KEY:
                        transaction.delete(key, db=environment.databases[name])
                    else:
                        transaction.put(key, plain, db=environment.databases[name])
        for _ in range(2):
            with machine.environment() as environment:
                metadata = await machine.open(environment)
                assert await metadata.range("") == before
        with machine.environment() as environment:
            metadata = await machine.open(environment)
            await metadata.txn([], [Put("topics/9", b"")])
        with machine.environment() as environment:
            assert len((await (await machine.open(environment)).range("")).items) == len(before.items) + 1

    machine.run(main)
