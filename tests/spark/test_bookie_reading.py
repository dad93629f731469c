"""Tasks that read bookies: their rows are those that brokers give (numbers: invariants of `reading`)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from planned_topic import confirmed_everywhere, plan_of
from spark_client import SparkClient, with_topics

from gnomon.bookie.ids import BookieId, EntryId, LedgerId
from gnomon.bookie.ledgers.ledgers import connect_ledgers
from gnomon.bookie.node import FOLDER
from gnomon.bookie.record import Fragment
from gnomon.bookie.storage.entry_store import ENTRIES
from gnomon.bookie.storage.removal import ENTRY_KEY
from gnomon.broker.topics.cast import SHADOW_SOURCE
from gnomon.client.kafka.topic_partition import TopicPartition
from gnomon.log.plans.planned_entries import UnreadableEntry
from gnomon.runtime.world import Unreachable
from gnomon.spark.columns import SCHEMA, ColumnDecoder, Range
from gnomon.spark.planning import DataLost, tasks_of
from gnomon.spark.row_count import WrongRowCount
from gnomon.spark.task import PlanPart, Task, parts_of
from gnomon.testing.storms.ledgers.ledger_cluster import METADATA, METADATA_PORT

ROWS = 60
COLLECTED_SECONDS = 25
"""After this time bookies have removed what was deleted."""
PLACE = TopicPartition("rolled", 0)


class Planned:
    """The topic `rolled`: one partition of 60 records in several ledgers, and a plan of all of them."""

    def __init__(self, client: SparkClient) -> None:
        self.client = client

    async def write(self) -> None:
        client = self.client
        await client.create("rolled", 1, {"segment.bytes": "500"})
        for first in range(0, ROWS, 5):
            await client.produce("rolled", 0, first)
        await confirmed_everywhere(client.machines.simulation.clock)
        self.topic_id = (await client.cluster.topic("rolled")).id
        self.part = await self.plan()
        records = [segment.record for segment in self.part.segments]
        assert len(records) > 3
        assert {record.sealed for record in records} == {True, False}

    async def plan(self) -> PlanPart:
        world = self.client.cluster.world
        async with connect_ledgers(f"{METADATA}:{METADATA_PORT}", world=world) as ledgers:
            return parts_of("rolled", await plan_of(ledgers, "rolled"))[PLACE]

    def tasks(self, start: int = 0, stop: int = ROWS, **given: str) -> list[Task]:
        """The tasks of a range that are read from bookies."""
        return tasks_of(
            [Range("rolled", 0, start, stop)],
            {PLACE: self.topic_id},
            self.client.options(**given),
            SCHEMA.names,
            {PLACE: self.part},
        )

    async def rows(self, start: int = 0, stop: int = ROWS, **given: Any) -> list[dict[str, Any]]:
        return [row for task in self.tasks(start, stop, **given) for row in await self.client.rows_of(task)]

    async def offsets(self, start: int = 0, stop: int = ROWS, **given: Any) -> list[int]:
        return [row["offset"] for row in await self.rows(start, stop, **given)]

    def through_brokers(self, start: int = 0, stop: int = ROWS, **given: str) -> Task:
        return self.tasks(start, stop, **given)[0]._replace(plan=None, range=Range("rolled", 0, start, stop))

    def stop_brokers(self) -> None:
        for machine in self.client.machines.brokers.values():
            machine.kill()

    async def wait(self, seconds: float) -> None:
        await self.client.machines.simulation.clock.sleep(seconds)


def with_plan(work: Callable[[Planned], Awaitable[None]]) -> None:
    async def scenario(client: SparkClient) -> None:
        planned = Planned(client)
        await planned.write()
        await work(planned)

    with_topics(scenario)


def test_the_rows_from_bookies_are_those_through_brokers_also_once_all_brokers_are_dead() -> None:  # 1
    async def work(planned: Planned) -> None:
        ranges = [(0, ROWS), (0, 1), (4, 6), (13, 14), (17, 41), (59, 60)]
        read = [await planned.client.rows_of(planned.through_brokers(*each)) for each in ranges]
        assert [row["offset"] for row in read[0]] == list(range(ROWS))
        planned.stop_brokers()
        planned.client.machines.ledgers.metadata.kill()
        assert [await planned.rows(*each) for each in ranges] == read
        assert planned.client.warnings == []

    with_plan(work)


def test_tasks_of_a_plan_have_each_row_once_however_they_are_cut() -> None:  # 1
    async def work(planned: Planned) -> None:
        rows = await planned.client.rows_of(planned.through_brokers())
        planned.stop_brokers()
        size = sum(segment.size_bytes for segment in planned.part.segments)
        for part in (1, 2, 3, 7, 25):
            most = str(-(-size // part))
            tasks = planned.tasks(maxBytesPerTask=most)
            assert len(tasks) == part
            assert part == 1 or all(
                task.plan and len(task.plan.segments) < len(planned.part.segments) for task in tasks
            )
            assert await planned.rows(maxBytesPerTask=most) == rows
        assert len(planned.tasks(maxRecordsPerPartition="7")) == 9
        assert await planned.rows(maxRecordsPerPartition="7") == rows
        assert await planned.rows(minPartitions="60") == rows

    with_plan(work)


def test_a_shadow_is_read_from_the_ledgers_of_its_source() -> None:  # 1
    async def work(planned: Planned) -> None:
        client = planned.client
        await client.create("copy", -1, {SHADOW_SOURCE: "rolled"})
        await planned.wait(3)
        ids = {TopicPartition("copy", 0): (await client.cluster.topic("copy")).id}
        ranges, options = [Range("copy", 0, 7, ROWS)], client.options()
        (through_brokers,) = tasks_of(ranges, ids, options, SCHEMA.names)
        rows = await client.rows_of(through_brokers)
        assert [(row["topic"], row["offset"]) for row in rows] == [("copy", offset) for offset in range(7, ROWS)]
        planned.stop_brokers()
        (task,) = tasks_of(ranges, ids, options, SCHEMA.names, {TopicPartition("copy", 0): planned.part})
        assert await client.rows_of(task) == rows

    with_plan(work)


def test_a_plan_stays_good_while_the_log_grows_and_its_leader_changes() -> None:
    async def work(planned: Planned) -> None:
        rows = await planned.client.rows_of(planned.through_brokers())
        leader = planned.client.machines.leader("rolled", 0)
        for first in range(ROWS, ROWS + 20, 5):
            await planned.client.produce("rolled", 0, first)
        planned.client.machines.brokers[leader].kill()
        await planned.wait(10)
        planned.client.cluster.forget("rolled")
        await planned.client.produce("rolled", 0, ROWS + 20)
        assert len((await planned.plan()).segments) > len(planned.part.segments)
        planned.stop_brokers()
        assert await planned.rows() == rows

    with_plan(work)


def test_a_dead_bookie_and_a_damaged_copy_are_logged_and_do_not_matter() -> None:
    async def work(planned: Planned) -> None:
        planned.stop_brokers()
        segment = planned.part.segments[1]
        damaged, _, dead = segment.record.fragments[0].bookies  # the first one is asked first
        damage(planned, segment.ledger, 0, [damaged])
        planned.client.machines.ledgers.bookies[dead].kill()
        assert await planned.offsets() == list(range(ROWS))
        warnings = planned.client.warnings
        assert {text.partition(" at ")[0] for text in warnings} == {f"bookie {damaged}", f"bookie {dead}"}
        assert all(text.endswith("; another copy is read") for text in warnings)

    with_plan(work)


def damage(planned: Planned, ledger: LedgerId, entry: int, names: list[BookieId]) -> None:
    ledgers = planned.client.machines.ledgers
    for name in names:
        ledgers.bookies[name].disk.flip_bit(ledgers.data(name) / FOLDER, ENTRIES, ENTRY_KEY.pack(ledger, entry))


def test_an_entry_without_a_sound_copy_is_an_error_that_names_it() -> None:
    async def work(planned: Planned) -> None:
        segment = planned.part.segments[1]
        damage(planned, segment.ledger, segment.first, planned.client.machines.ledgers.names)
        await planned.wait(0.1)
        start = planned.part.segments[0].next_offset
        place = f"partition 0 of topic 'rolled': entry {segment.first} of ledger {segment.ledger}, with offsets from"
        with pytest.raises(UnreadableEntry, match=f"{place} {start} on and below {segment.next_offset}, cannot be"):
            await planned.rows()
        assert await planned.offsets(0, start) == list(range(start))

    with_plan(work)


@pytest.mark.parametrize("begin", [25, 27])
@pytest.mark.parametrize("from_bookies", [True, False])
def test_offsets_that_were_deleted_are_an_error_or_a_warning(from_bookies: bool, begin: int) -> None:  # 3
    """A batch whose records are deleted in part is still there whole."""

    async def work(planned: Planned) -> None:
        await planned.client.delete_before(0, begin, "rolled")
        await planned.wait(COLLECTED_SECONDS)
        if from_bookies:
            strict, lax = planned.tasks(3)[0], planned.tasks(3, failOnDataLoss="false")[0]
        else:
            strict, lax = planned.through_brokers(3), planned.through_brokers(3, failOnDataLoss="false")
        loss = "partition 0 of topic 'rolled': offsets 3 to 24 were deleted since the read was planned"
        with pytest.raises(DataLost, match=f"{loss}; failOnDataLoss=false reads the offsets that are left"):
            await planned.client.rows_of(strict)
        planned.client.warnings.clear()
        assert [row["offset"] for row in await planned.client.rows_of(lax)] == list(range(25, ROWS))
        assert planned.client.warnings[-1] == f"{loss}; lost offsets: 22"
        inside = planned.tasks(26, 30)[0]
        assert len(await planned.client.rows_of(inside if from_bookies else inside._replace(plan=None))) == 4
        gone = planned.tasks(3, 20, failOnDataLoss="false")[0]
        assert await planned.client.rows_of(gone if from_bookies else gone._replace(plan=None)) == []
        assert planned.client.warnings[-1] == f"{loss.replace('24', '19')}; lost offsets: 17"

    with_plan(work)


def test_a_range_that_begins_before_its_plan_is_read_through_brokers() -> None:  # 3
    async def work(planned: Planned) -> None:
        await planned.client.delete_before(0, 25, "rolled")
        planned.part = await planned.plan()
        first, *others = planned.tasks(3, maxRecordsPerPartition="30", failOnDataLoss="false")
        assert (first.plan, None in [task.plan for task in others]) == (None, False)
        rows = [row["offset"] for task in (first, *others) for row in await planned.client.rows_of(task)]
        assert rows == list(range(25, ROWS))
        assert "offsets 3 to 24 were deleted" in planned.client.warnings[-1]

    with_plan(work)


def test_a_plan_whose_copies_have_moved_is_left_for_the_leader() -> None:  # 2
    async def work(planned: Planned) -> None:
        segments = list(planned.part.segments)
        fragment = Fragment(EntryId(0), segments[2].record.session, (BookieId("bookie-9"),) * 3)
        object.__setattr__(segments[2].record, "fragments", (fragment,))
        planned.part = planned.part._replace(segments=tuple(segments))
        assert await planned.offsets() == list(range(ROWS))
        (warning,) = planned.client.warnings
        start = segments[1].next_offset
        assert f"entry 0 of ledger {segments[2].ledger}, with offsets from {start} on" in warning
        assert warning.endswith("bookie 'bookie-9' is not known here: start it; the rest is read through brokers")

    with_plan(work)


def test_entries_that_neither_bookies_nor_brokers_have_are_an_error_that_names_them() -> None:  # 2
    async def work(planned: Planned) -> None:
        planned.stop_brokers()
        for machine in planned.client.machines.ledgers.bookies.values():
            machine.kill()
        with pytest.raises(Unreachable, match="no broker answers") as caught:
            await planned.rows(3)
        (note,) = caught.value.__notes__
        place = f"entry 0 of ledger {planned.part.segments[0].ledger}, with offsets from 3 on and below"
        assert note.startswith(f"Brokers were asked because of this: partition 0 of topic 'rolled': {place}")

    with_plan(work)


@pytest.mark.parametrize("again", [False, True], ids=["deleted", "created again"])
@pytest.mark.parametrize("from_bookies", [True, False])
def test_the_offsets_of_a_deleted_topic_are_lost_and_not_read_from_a_new_one(from_bookies: bool, again: bool) -> None:
    async def work(planned: Planned) -> None:  # 2, 3
        task = planned.tasks()[0] if from_bookies else planned.through_brokers()
        await planned.client.delete("rolled")
        await planned.wait(COLLECTED_SECONDS)
        if again:
            await planned.client.create("rolled", 1)
            for first in range(0, ROWS, 5):
                await planned.client.produce("rolled", 0, first)
        with pytest.raises(DataLost, match=rf"'rolled': offsets 0 to {ROWS - 1} were deleted since"):
            await planned.client.rows_of(task)
        planned.client.warnings.clear()
        assert await planned.client.rows_of(task._replace(fail_on_data_loss=False)) == []
        loss = f"offsets 0 to {ROWS - 1} were deleted since the read was planned; lost offsets: {ROWS}"
        assert planned.client.warnings[-1].endswith(loss)

    with_plan(work)


@pytest.mark.parametrize("from_bookies", [True, False])
def test_rows_that_the_decoder_loses_are_noticed(from_bookies: bool, monkeypatch: pytest.MonkeyPatch) -> None:  # 4
    monkeypatch.setattr(ColumnDecoder, "flush", lambda decoder: None)

    async def work(planned: Planned) -> None:
        task = planned.tasks(3)[0] if from_bookies else planned.through_brokers(3)
        text = (
            "topic 'rolled', partition 0, offsets 3 to 59: 0 rows were decoded, the headers of the batches announce 57"
        )
        with pytest.raises(WrongRowCount, match=text):
            await planned.client.rows_of(task)

    with_plan(work)
