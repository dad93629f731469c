"""Enumerates the possible contents of a disk after a power failure at any moment of a recorded run, and judges each.

1. Everything written before the last finished sync is there. Any part of later writes may be there: whole, torn at
   sectors of 512 bytes, or missing, in any order. A write that is durable in itself (O_DSYNC) is uncertain only until
   its call returns. A rename counts as such a write.
2. The file ends where the kept writes and size changes leave its end, or at the largest size that any call since the
   last sync asked for. Bytes that are added in this way are zeros.
3. Between two syncs no state occurs twice: two states are equal if the checksums of their bytes are equal, and the
   process had made the same marks (its own messages in the recording).
4. A state is also bad if the process that judges it dies or takes too long. The other states are still judged.
"""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain, count, islice
from pathlib import Path
from typing import Final, NamedTuple, NoReturn, TypeAlias

from crc32c import crc32c

from gnomon.testing.simulation.disk.write_log import Event, Grow, Mark, Replace, SizeChange, Sync, Write, apply, extend

SECTOR_BYTES: Final = 512
JUDGE_SECONDS_MAX: Final = 20
"""Time limit of one state, after which its judge is killed."""

Choice: TypeAlias = tuple[int, ...]
"""For each pending event a bit mask of its sectors on the disk (for a new size: bit 0)."""


class CrashState(NamedTuple):
    """A disk after a power failure."""

    name: str
    after: int
    """The number of events that had happened: the process knew the marks among them."""
    image: bytearray


class _CrashWindow:
    """The events since the last sync, and the image before them."""

    def __init__(self) -> None:
        self.image = bytearray()
        self.pending: list[Event] = []
        self.held: list[bool] = []
        """For each event, whether it is durable in itself."""

    def add(self, event: Event) -> None:
        if isinstance(event, Sync):
            for earlier in self.pending:
                apply(self.image, earlier)
            self.pending, self.held = [], []
        else:
            self.pending.append(event)
            self.held.append(_durable(event))

    def masks(self, in_flight: bool) -> tuple[Choice, Choice]:
        """Per pending event all of its sectors, and those that are certainly there."""
        whole = tuple(_all_sectors(event) for event in self.pending)
        held = list(self.held)
        if in_flight:
            held[-1] = False
        return whole, tuple(mask if keep else 0 for mask, keep in zip(whole, held, strict=True))

    def after(self, choice: Choice, longest: bool) -> bytearray:
        """The image with the chosen part of the pending events."""
        image = self.image.copy()
        for event, mask in zip(self.pending, choice, strict=True):
            if not mask:
                continue
            if isinstance(event, Write):
                for piece in _pieces(event, mask):
                    apply(image, piece)
            else:
                apply(image, event)
        if longest:
            for event in self.pending:
                extend(image, _end_bytes(event))
        return image


def crash_states(
    events: Sequence[Event],
    seed: int,
    per_moment: int,
    share: int = 0,
    shares: int = 1,
    begin: int = 0,
    end: int | None = None,
) -> Iterator[CrashState]:
    """Enumerates the states of a recorded run, each once between two syncs.

    Args:
        seed: of all random draws.
        per_moment: the most states to try for each moment between two calls; systematic ones first.
        share, shares: selects every `shares`-th window between two syncs, from `share` on; together they cover all.
        begin, end: the first event after which power is lost, and the first after which it is not.
    """
    marks = [0, *accumulate(isinstance(event, Mark) for event in events)]
    window = _CrashWindow()
    syncs = 0
    stream = random.Random(f"{seed}/0")
    seen: set[tuple[int, int]] = set()
    for index, event in enumerate(events[:end]):
        if isinstance(event, Mark):
            continue
        window.add(event)
        if isinstance(event, Sync):
            syncs += 1
            stream = random.Random(f"{seed}/{syncs}")
            seen.clear()
        if syncs % shares != share or index < begin:
            continue
        for in_flight in (True, False) if _durable(event) else (False,):
            # The process had no answer of a call in flight; after the call, it had all answers up to the next call.
            after = index if in_flight else _next_call(events, index)
            whole, least = window.masks(in_flight)
            tries = islice(_choices(whole, least, stream), 2 * per_moment)
            for choice, longest in islice(dict.fromkeys(tries), per_moment):
                image = window.after(choice, longest)
                key = crc32c(image), marks[after]  # an eighth of the time of `hash`, which needs a copy
                if key not in seen:
                    seen.add(key)
                    kept = " ".join(f"{mask:x}/{all_of:x}" for mask, all_of in zip(choice, whole, strict=True))
                    yield CrashState(f"event {after}, sync {syncs}, kept [{kept}]{' longest' * longest}", after, image)


def _next_call(events: Sequence[Event], index: int) -> int:
    index += 1
    while index < len(events) and isinstance(events[index], Mark):
        index += 1
    return index


def _choices(whole: Choice, least: Choice, stream: random.Random) -> Iterator[tuple[Choice, bool]]:
    """Infinite choices that contain everything certain; each with whether the file has its maximal length."""
    drawn = (_drawn(whole, stream) for _ in count())
    for index, choice in enumerate(chain(_systematic(whole), drawn)):
        yield tuple(mask | kept for mask, kept in zip(choice, least, strict=True)), index % 4 == 3


def _systematic(whole: Choice) -> Iterator[Choice]:
    """All, none; prefixes in write order; one alone missing, one alone there; the last one torn, in order."""
    nothing = (0,) * len(whole)
    yield whole
    yield nothing
    for index, mask in enumerate(whole):
        before, behind = whole[:index], whole[index + 1 :]
        yield (*before, 0, *nothing[index + 1 :])
        yield (*before, 0, *behind)
        yield (*nothing[:index], mask, *nothing[index + 1 :])
        all_sectors = mask.bit_length()
        for sectors in sorted({1, all_sectors // 2, all_sectors - 1} - {0, all_sectors}):
            yield (*before, (1 << sectors) - 1, *nothing[index + 1 :])
            yield (*before, mask & ~((1 << sectors) - 1), *behind)


def _drawn(whole: Choice, stream: random.Random) -> Choice:
    """Every event there, missing, cut short or torn anywhere, at random."""
    drawn = []
    for mask in whole:
        cut = (1 << stream.randint(0, mask.bit_length())) - 1
        few = 1 << stream.randrange(mask.bit_length())
        drawn.append(
            stream.choice((0, mask, mask, cut, mask & ~few, few, stream.getrandbits(mask.bit_length()) & mask))
        )
    return tuple(drawn)


def _durable(event: Event) -> bool:
    """Whether it is on the device when its call returns."""
    return isinstance(event, Replace) or (isinstance(event, Write) and event.durable)


def _all_sectors(event: Event) -> int:
    if not isinstance(event, Write):
        return 1
    first, last = event.offset // SECTOR_BYTES, (event.offset + len(event.content) - 1) // SECTOR_BYTES
    return (1 << (last - first + 1)) - 1


def _pieces(event: Write, mask: int) -> Iterator[Write]:
    """The runs of sectors of a write that a mask selects."""
    base = event.offset // SECTOR_BYTES
    at = 0
    while mask >> at:
        if not mask >> at & 1:
            at += 1
            continue
        first = at
        while mask >> at & 1:
            at += 1
        start = max((base + first) * SECTOR_BYTES, event.offset)
        end = min((base + at) * SECTOR_BYTES, event.offset + len(event.content))
        yield Write(start, event.content[start - event.offset : end - event.offset], event.durable)


def _end_bytes(event: Event) -> int:
    match event:
        case Write(offset, content):
            return offset + len(content)
        case Grow(size_bytes) | SizeChange(size_bytes):
            return size_bytes
    return 0


@dataclass(slots=True)
class Verdicts:
    """The results over all states."""

    states: int = 0
    bad: list[str] = field(default_factory=list)
    """The fault of each bad state, with its identity."""
    cpu_seconds: float = 0.0


def judge(states: Iterator[CrashState], check: Callable[[CrashState], None]) -> Verdicts:
    """Judges states in forked processes, one after another; a state is bad when `check` raises, dies or takes too long.

    Must be called by a process with one thread, because it forks.
    """
    verdicts = Verdicts()
    while True:
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            _judge_until_death(states, check, writing)
        os.close(writing)
        with open(reading, encoding="utf-8") as lines:
            found = [json.loads(line) for line in lines]
        _, status = os.waitpid(child, 0)
        verdicts.states += len(found)
        verdicts.bad += [said for said in found if said is not None]
        if not os.WIFSIGNALED(status):
            break
        # The enumeration of this process is still at its beginning: it skips the states that were judged.
        died_at = next(islice(states, len(found), None))
        verdicts.states += 1
        verdicts.bad.append(f"{died_at.name}: its judge died of {signal.Signals(os.WTERMSIG(status)).name}")
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        used = resource.getrusage(who)
        verdicts.cpu_seconds += used.ru_utime + used.ru_stime
    assert os.waitstatus_to_exitcode(status) == 0, "a judge of crash states failed"
    return verdicts


def _judge_until_death(states: Iterator[CrashState], check: Callable[[CrashState], None], writing: int) -> NoReturn:
    status = 1
    try:
        with open(writing, "w", buffering=1, encoding="utf-8") as lines:
            for state in states:
                signal.alarm(JUDGE_SECONDS_MAX)
                try:
                    check(state)
                    said = None
                except Exception as error:
                    said = f"{state.name}: {type(error).__name__}: {error}"
                lines.write(json.dumps(said) + "\n")
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def judge_in_processes(commands: Sequence[Sequence[str]], path: Path) -> Verdicts:
    """Runs commands at the same time, each of which prints the verdicts of a share (`print_verdicts`), and adds them.

    Args:
        path: a folder that the commands import their modules from.

    Raises:
        RuntimeError: a command failed.
    """
    search = os.pathsep.join([str(path), *filter(None, sys.path)])
    running = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": search})
        for command in commands
    ]
    total = Verdicts()
    outputs = [process.communicate()[0] for process in running]
    for process, output in zip(running, outputs, strict=True):
        if process.returncode != 0:
            raise RuntimeError(f"a judge of crash states failed ({process.returncode}): {process.args!r}")
        share = json.loads(output)
        total.states += share["states"]
        total.bad += share["bad"]
        total.cpu_seconds += share["cpu_seconds"]
    return total


def print_verdicts(verdicts: Verdicts) -> None:
    """Prints verdicts for `judge_in_processes` to standard output."""
    print(json.dumps({"states": verdicts.states, "bad": verdicts.bad, "cpu_seconds": verdicts.cpu_seconds}))
