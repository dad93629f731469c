"""Logs of state machines in memory, and a world on virtual time."""

from __future__ import annotations

import random

import trio

from gnomon.broker.coordination.state_log import LogUnavailable
from gnomon.broker.coordination.state_machine import StoredRecord


class VirtualWorld:
    """A clock on Trio's virtual time, and seeded randomness."""

    def __init__(self):
        self.clock = self

    def monotonic(self):
        return trio.current_time()

    def wall_ms(self):
        return 1_700_000_000_000 + int(trio.current_time() * 1000)

    async def sleep(self, seconds):
        await trio.sleep(seconds)

    def random(self, name):
        return random.Random(name)


class MemoryLog:
    """One partition: batches become durable a moment after they are appended, unless `held`, or fail if `refusing`.

    A confirmation is answered at once, unless `silent`. `records` are (offset, stored record).
    """

    def __init__(self, nursery):
        self.nursery = nursery
        self.records = []
        self.start = self.next = 0
        self.waiting = []
        self.held = False
        self.refusing = False
        self.reads = 0
        self.unreadable = None
        self.certain = self.ours = True
        self.silent = False
        self.asked = []

    async def read_all(self):
        self.reads += 1
        await trio.lowlevel.checkpoint()
        if self.unreadable is not None:
            raise self.unreadable
        for _, record in list(self.records):
            yield record

    def append(self, records, done):
        self.waiting.append((records, done))
        if not self.held:
            self.nursery.start_soon(self.flush)

    async def flush(self):
        if self.refusing:
            self.fail(LogUnavailable("a write failed"))
        waiting, self.waiting = self.waiting, []
        for records, done in waiting:
            base = self.next
            self.records += [
                (base + index, StoredRecord(*record, -1, -1, False)) for index, record in enumerate(records)
            ]
            self.next += len(records)
            done(base, None)

    def fail(self, error):
        waiting, self.waiting = self.waiting, []
        for _, done in waiting:
            done(None, error)

    def confirm(self, done):
        if self.silent:
            self.asked.append(done)
        else:
            done(self.certain)

    def goes_on(self):
        return self.ours

    def trim(self, before_offset):
        self.start = before_offset
        self.records = [record for record in self.records if record[0] >= before_offset]


class MemoryLogs:
    def __init__(self, nursery):
        self.nursery = nursery
        self.logs = {}
        self.refused = None

    def log(self, partition):
        return self.logs.setdefault(partition, MemoryLog(self.nursery))

    async def open(self, partition):
        if self.refused is not None:
            raise self.refused
        return self.log(partition)

    async def used(self):
        return [partition for partition, log in self.logs.items() if log.records]
