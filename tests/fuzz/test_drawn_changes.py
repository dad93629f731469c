"""Batches with drawn changes: the rows or the error of the reference, within a bound of memory.

`make fuzz` draws 10,000,000 of them (CHANGES) in PROCESSES processes; SEED begins another draw.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import resource
from collections.abc import Callable
from functools import cache
from typing import Any, Final

from column_rows import FEW, MANY, check_rows_or_error, placed

from gnomon.wire.kafka.compression import Codec

CHANGES: Final = int(os.environ.get("CHANGES", "4000"))
SEED: Final = int(os.environ.get("SEED") or "1")
PROCESSES: Final = int(os.environ.get("PROCESSES") or "1")
CHUNK: Final = 1_000
"""Changes of one generator of numbers, so that a finding is found again alone."""
MEMORY_BYTES: Final = 64 << 20
"""The most that a process grows by."""
LONG: Final[Any] = [(1 + at % 3, at - 200, b"k" * (at % 9), b"v" * at, (("h", None),) * (at % 4)) for at in range(130)]
NUMBERS: Final = (0, 1, 2**7 - 1, 2**7, 2**14, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1)


def given_batches() -> list[bytes]:
    """Batches of each codec, with the times of their producers and of the log."""
    drawn = [(rows, codec, stamped, 40) for rows in (FEW, MANY, LONG) for codec in Codec for stamped in (False, True)]
    return [bytes(placed([each])[0]) for each in drawn]


def other_byte(draw: random.Random, batch: bytearray) -> None:
    batch[draw.randrange(len(batch))] = draw.randrange(256)


def other_bit(draw: random.Random, batch: bytearray) -> None:
    batch[draw.randrange(len(batch))] ^= 1 << draw.randrange(8)


def other_number(draw: random.Random, batch: bytearray) -> None:
    at, size = draw.randrange(len(batch)), draw.choice((1, 2, 4, 8))
    batch[at : at + size] = (draw.choice(NUMBERS) % (1 << 8 * size)).to_bytes(size, "big")


def cut_out(draw: random.Random, batch: bytearray) -> None:
    at = draw.randrange(len(batch))
    del batch[at : at + draw.randrange(1, 20)]


def doubled(draw: random.Random, batch: bytearray) -> None:
    at, size = draw.randrange(len(batch)), draw.randrange(1, 20)
    batch[at:at] = batch[at : at + size]


KINDS: Final[tuple[Callable[[random.Random, bytearray], None], ...]] = (
    other_byte,
    other_bit,
    other_number,
    cut_out,
    doubled,
)


def memory_bytes() -> int:
    """The most memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


@cache
def memory_before() -> int:
    """The memory of this process once it has decoded batches that are not changed."""
    for batch in given_batches():
        check_rows_or_error(memoryview(batch))
    return memory_bytes()


def check_chunk(number: int) -> int:
    """Checks CHUNK changes, and returns the bytes by which this process has grown since its first chunk."""
    before = memory_before()
    draw, batches = random.Random(SEED * 1_000_003 + number), given_batches()
    for _ in range(CHUNK):
        batch = bytearray(draw.choice(batches))
        for _ in range(draw.randrange(1, 4)):
            if batch:
                draw.choice(KINDS)(draw, batch)
        try:
            check_rows_or_error(memoryview(bytes(batch)))
        except BaseException as error:
            error.add_note(f"SEED={SEED}, chunk {number}: {batch.hex()}")
            raise
    return memory_bytes() - before


def test_batches_with_drawn_changes_give_the_rows_or_the_error_of_iterate_records() -> None:
    chunks = range(-(-CHANGES // CHUNK))
    if PROCESSES == 1:
        assert max(map(check_chunk, chunks)) < MEMORY_BYTES
        return
    with multiprocessing.get_context("spawn").Pool(PROCESSES) as pool:
        assert max(pool.imap_unordered(check_chunk, chunks)) < MEMORY_BYTES
