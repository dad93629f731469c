"""Lost, drained and incomplete bookies, on the simulated network."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
import trio
from numbered_entries import contents, fill
from turns import turns_during

from gnomon.bookie.auditor import ELECTION, Auditor, AuditSettings
from gnomon.bookie.client import known_bookie
from gnomon.bookie.cookie import COOKIES
from gnomon.bookie.entry import encode_entry
from gnomon.bookie.ids import BookieId, EntryId
from gnomon.bookie.ledger import Ledger, Quorum, list_ledgers
from gnomon.bookie.record import LEDGERS, decode_record, ledger_key
from gnomon.bookie.registry import BOOKIES, DRAINING
from gnomon.bookie.repair import MISSING, LedgerRepair, Throttle, missing_report
from gnomon.metadata.client import Compare, Delete, MetadataUnavailable, Operation, Put, TxnResult
from gnomon.testing.counting_metadata import CountingMetadata
from gnomon.testing.ledger_cluster import LedgerClient, LedgerCluster
from gnomon.testing.simulation import Simulation, simulate

WIDE = Quorum(3, 3, 2)
EAGER = AuditSettings(grace_seconds=5, interval_seconds=1, lease_seconds=3)


async def audited(client: LedgerClient, until: Callable[[Auditor], Awaitable[bool]]) -> Auditor:
    """Audits until a condition holds."""
    auditor = Auditor(client.metadata, client.bookies, EAGER, "auditor", client.world.logger)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(auditor.run)
        with trio.fail_after(120):
            while not await until(auditor):
                await client.world.clock.sleep(0.5)
        nursery.cancel_scope.cancel()
    return auditor


async def beside_a_ledger(client: LedgerClient) -> tuple[Ledger, BookieId]:
    """A ledger, and the only one of four bookies that has nothing of it."""
    ledger = await client.create("ledger", WIDE)
    (spare,) = {*client.bookies.alive()} - {*ledger.record.bookies}
    return ledger, spare


async def copies_of(client: LedgerClient, name: str) -> dict[int, list[BookieId]]:
    """Which bookies have each confirmed entry of a ledger, where its record says."""
    stored = await client.metadata.get(ledger_key(name))
    assert stored is not None
    record = decode_record(stored.value)
    ledger = await client.follow(name)
    found: dict[int, list[BookieId]] = {}
    for entry in range(record.start_entry, ledger.last_add_confirmed + 1):
        fragment = record.fragment_of(EntryId(entry))
        for index in record.quorum.write_set(EntryId(entry)):
            bookie = client.bookies.get(fragment.bookies[index])
            assert bookie is not None
            if await bookie.present(ledger.id, EntryId(entry), EntryId(entry), fragment.session):
                found.setdefault(entry, []).append(fragment.bookies[index])
    return found


async def named(client: LedgerClient, bookie: BookieId) -> bool:
    records = [decode_record(item.value) for item in (await client.metadata.range(LEDGERS)).items]
    return any(bookie in fragment.bookies for record in records for fragment in record.fragments)


def test_what_a_lost_bookie_had_is_copied_to_others_also_of_ledgers_that_nobody_has_open() -> None:
    async def scenario(simulation: Simulation) -> None:
        cluster = LedgerCluster(simulation, bookies=5)
        await cluster.start()

        async def write(client: LedgerClient) -> BookieId:
            for number in range(4):
                ledger = await client.create(f"ledger-{number}", WIDE)
                await fill(ledger, 20)
                if number % 2:
                    await ledger.seal()
            return ledger.record.fragments[0].bookies[0]

        lost = await cluster.run_client("writer", write)
        simulation.machine(lost).power_off()

        async def audit(client: LedgerClient) -> None:
            async def nobody_names_it(_auditor: Auditor) -> bool:
                return not await named(client, lost)

            auditor = await audited(client, nobody_names_it)
            assert auditor.totals.fragments_moved >= 1
            assert auditor.copied_bytes > 0
            for number in range(4):
                copies = await copies_of(client, f"ledger-{number}")
                assert len(copies) == 20
                assert all(len(there) == 3 for there in copies.values())

        await cluster.run_client("audit", audit)

    simulate(1, scenario)


@pytest.mark.parametrize("quorum", [WIDE, Quorum(4, 2, 2)])
def test_what_is_copied_is_read_many_entries_at_a_time_and_not_from_the_bookie_that_is_gone(quorum: Quorum) -> None:
    async def scenario(simulation: Simulation) -> None:
        cluster = LedgerCluster(simulation, bookies=5)
        await cluster.start()

        async def write(client: LedgerClient) -> BookieId:
            ledger = await client.create("ledger", quorum)
            await fill(ledger, 200)
            await ledger.seal()
            return ledger.record.fragments[0].bookies[0]

        lost = await cluster.run_client("writer", write)
        simulation.machine(lost).power_off()

        async def audit(client: LedgerClient) -> None:
            asked: list[tuple[str, BookieId]] = []

            def watched(name: BookieId, method: str) -> None:
                bookie = client.bookies.get(name)
                read = getattr(bookie, method)

                def noted(*args: Any) -> Any:
                    asked.append((method, name))
                    return read(*args)

                setattr(bookie, method, noted)

            for name in client.bookies.known():
                watched(name, "read")
                watched(name, "read_range")

            async def nobody_names_it(_auditor: Auditor) -> bool:
                return not await named(client, lost)

            auditor = await audited(client, nobody_names_it)
            assert auditor.copied_bytes > 0
            assert {method for method, _ in asked} == {"read_range"}
            assert lost not in {name for _, name in asked}
            assert len(asked) <= quorum.ensemble_size
            copies = await copies_of(client, "ledger")
            assert len(copies) == 200
            assert all(len(there) == quorum.write_quorum for there in copies.values())

        await cluster.run_client("audit", audit)

    simulate(1, scenario)


@pytest.mark.parametrize("quorum", [WIDE, Quorum(4, 2, 2)])
def test_what_a_dead_writer_left_at_a_bookie_is_not_taken_for_the_entries_that_it_is_to_have(quorum: Quorum) -> None:
    """The bookie was away when the bounds that exclude them were dropped, and stands in for another one now."""

    async def scenario(simulation: Simulation) -> None:
        cluster = LedgerCluster(simulation, bookies=quorum.ensemble_size + 1)
        await cluster.start()
        written: list[bytes] = []

        async def write(client: LedgerClient) -> tuple[BookieId, ...]:
            ledger = await client.create("ledger", quorum)
            await fill(ledger, 10)
            names = ledger.record.fragments[0].bookies
            (spare,) = set(client.bookies.known()) - {*names}
            session = ledger.record.session
            orphans = [
                (entry, encode_entry(ledger.id, entry, session, EntryId(9), 0, [b"orphan"]))
                for entry in map(EntryId, range(10, 20))
            ]
            await known_bookie(client.bookies, spare).put_copies(ledger.id, session, orphans)
            await fill(await client.claim("ledger"), 10)
            ledger = await client.claim("ledger")
            assert ledger.record.fragment_of(EntryId(15)).session == session
            written.extend(await contents(ledger))
            return names

        lost = (await cluster.run_client("writer", write))[2]
        simulation.machine(lost).power_off()

        async def audit(client: LedgerClient) -> None:
            async def nobody_names_it(_auditor: Auditor) -> bool:
                return not await named(client, lost)

            await audited(client, nobody_names_it)
            ledger = await client.follow("ledger")
            for first in map(EntryId, range(20)):
                assert await ledger.read(first, EntryId(19)) == written[first:]

        await cluster.run_client("audit", audit)

    simulate(1, scenario)


async def moved_while(client: LedgerClient, lost: BookieId, meanwhile: Callable[[], Awaitable[object]]) -> bool:
    """Whether a ledger is moved from a bookie, of four, while something else is done to it."""
    stored = await client.metadata.get(ledger_key("ledger"))
    assert stored is not None
    repair = LedgerRepair(client.metadata, client.bookies, stored, "ledger", Throttle(client.world.clock, 1e9))
    (spare,) = {*client.bookies.alive()} - {*repair.record.fragments[0].bookies}
    bookie = known_bookie(client.bookies, spare)
    with pytest.MonkeyPatch.context() as patch:

        async def put_copies(*copies: Any) -> None:
            patch.undo()
            await bookie.put_copies(*copies)
            await meanwhile()

        patch.setattr(bookie, "put_copies", put_copies)
        return await repair.move_from(lost)


async def update(_client: LedgerClient, ledger: Ledger) -> None:
    await ledger.update({"another": "value"})


async def trim_some(_client: LedgerClient, ledger: Ledger) -> None:
    await ledger.shrink(EntryId(5))


async def trim_the_fragment(_client: LedgerClient, ledger: Ledger) -> None:
    await ledger.shrink(EntryId(15))


async def seal(_client: LedgerClient, ledger: Ledger) -> None:
    await ledger.seal()


async def claim(client: LedgerClient, _ledger: Ledger) -> None:
    await client.claim("ledger")


Change = Callable[[LedgerClient, Ledger], Awaitable[None]]


@pytest.mark.parametrize("change", [update, trim_some, seal, claim])
def test_a_ledger_whose_record_changes_while_it_is_copied_need_not_be_copied_again(change: Change) -> None:
    async def scenario(simulation: Simulation) -> None:
        cluster = LedgerCluster(simulation, bookies=4)
        await cluster.start()

        async def work(client: LedgerClient) -> None:
            first, spare = await beside_a_ledger(client)
            await fill(first, 10)
            lost, *others = first.record.bookies
            await first.change_ensemble(EntryId(10), (spare, *others))
            ledger = await client.claim("ledger")
            await fill(ledger, 10)
            assert await moved_while(client, lost, lambda: change(client, ledger))
            assert not await named(client, lost)
            copies = await copies_of(client, "ledger")
            assert [*copies] == [*range(5 if change is trim_some else 0, 20)]
            assert all(len(there) == 3 for there in copies.values())

        await cluster.run_client("client", work)

    simulate(1, scenario)


@pytest.mark.parametrize(("change", "fragments"), [(trim_the_fragment, [10]), (claim, [0, 20])])
def test_what_is_not_the_fragment_any_more_that_was_copied_names_no_other_bookie(
    change: Change, fragments: list[int]
) -> None:
    """The claim drops the bound between two fragments: the first one is then longer than what was copied."""

    async def scenario(simulation: Simulation) -> None:
        cluster = LedgerCluster(simulation, bookies=4)
        await cluster.start()

        async def work(client: LedgerClient) -> None:
            first, spare = await beside_a_ledger(client)
            await fill(first, 10)
            ledger = await client.claim("ledger")
            await fill(ledger, 10)
            await client.world.clock.sleep(1)  # every bookie has removed orphans by then
            assert len(ledger.record.fragments) == 2
            assert not await moved_while(client, first.record.bookies[0], lambda: change(client, ledger))
            assert not await named(client, spare)
            ((_, record),) = await list_ledgers(client.metadata)
            assert [fragment.first_entry for fragment in record.fragments] == fragments

        await cluster.run_client("client", work)

    simulate(1, scenario)


def test_a_bookie_that_missed_entries_gets_them_when_it_is_back() -> None:
    async def scenario(simulation: Simulation) -> None:
        cluster = LedgerCluster(simulation, bookies=3)
        await cluster.start()

        async def write(client: LedgerClient) -> None:
            ledger = await client.create("ledger", WIDE)
            await fill(ledger, 5)
            simulation.machine("bookie-3").power_off()
            await fill(ledger, 20)
            simulation.machine("bookie-3").start()
            await client.world.clock.sleep(10)
            await fill(ledger, 5)
            assert (await client.metadata.range(MISSING)).items

            async def settled(_auditor: Auditor) -> bool:
                return not (await client.metadata.range(MISSING)).items

            await audited(client, settled)
            copies = await copies_of(client, "ledger")
            assert len(copies) == 30
            assert all(len(there) == 3 for there in copies.values())

        await cluster.run_client("writer", write)

    simulate(2, scenario)


def test_a_drained_bookie_leaves_every_record_and_then_the_cluster() -> None:
    async def scenario(simulation: Simulation) -> None:
        cluster = LedgerCluster(simulation, bookies=4)
        await cluster.start()
        leaving = BookieId("bookie-1")

        async def write(client: LedgerClient) -> None:
            for number in range(3):
                await fill(await client.create(f"ledger-{number}", WIDE), 10)
            cookie = await client.metadata.get(COOKIES + leaving)
            await client.metadata.txn((), (Put(DRAINING + leaving, b""),))

            async def dismissed(_auditor: Auditor) -> bool:
                return await client.metadata.get(COOKIES + leaving) != cookie  # it may come back, on an empty disk

            await audited(client, dismissed)
            assert not await named(client, leaving)
            for number in range(3):
                ledger = await client.claim(f"ledger-{number}")
                await fill(ledger, 1)
                assert len(await ledger.read(EntryId(0), EntryId(10))) == 11

        await cluster.run_client("writer", write)

    simulate(3, scenario)


def test_one_of_two_auditors_audits_and_the_other_takes_over_when_it_dies() -> None:
    async def scenario(simulation: Simulation) -> None:
        cluster = LedgerCluster(simulation, bookies=3)
        await cluster.start()
        auditors: dict[str, Auditor] = {}

        async def candidate(client: LedgerClient) -> None:
            name = f"candidate-{len(auditors)}"
            auditors[name] = Auditor(client.metadata, client.bookies, EAGER, name, client.world.logger)
            await auditors[name].run()

        first = cluster.start_client("first", candidate)
        await simulation.sleep(5)
        cluster.start_client("second", candidate)
        await simulation.sleep(5)
        assert [auditor.elected for auditor in auditors.values()] == [True, False]
        first.power_off()
        await simulation.sleep(10)
        assert auditors["candidate-1"].elected

    simulate(4, scenario)


def test_ledgers_that_miss_copies_are_counted_until_they_have_them() -> None:
    async def scenario(simulation: Simulation) -> None:
        cluster = LedgerCluster(simulation, bookies=3)
        await cluster.start()

        async def audit(client: LedgerClient) -> None:
            ledger = await client.create("ledger", WIDE)
            away = simulation.machine("bookie-2")
            away.kill()
            await fill(ledger, 5)
            seen: list[int] = []

            async def is_back(auditor: Auditor) -> bool:
                if auditor.elected:
                    seen.append(auditor.reports_open)
                if len(seen) == 20:
                    away.start()
                return len(seen) > 20 and auditor.reports_open == 0

            await audited(client, is_back)
            assert set(seen[2:20]) == {1}
            assert {entry: len(names) for entry, names in (await copies_of(client, "ledger")).items()} == dict.fromkeys(
                range(5), 3
            )

        await cluster.run_client("client", audit)

    simulate(1, scenario)


def test_an_auditor_goes_on_after_a_write_that_the_metadata_service_did_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(simulation: Simulation) -> None:
        cluster = LedgerCluster(simulation, bookies=3)
        await cluster.start()

        async def audit(client: LedgerClient) -> None:
            ledger = await client.create("ledger", WIDE)
            await client.metadata.txn((), (missing_report(ledger.id, ledger.name),))
            txn, lost = client.metadata.txn, 0

            async def lose_once(compare: Sequence[Compare], then: Sequence[Operation], *rest: Any) -> TxnResult:
                nonlocal lost
                if any(isinstance(operation, Delete) for operation in then) and not lost:
                    lost += 1
                    raise MetadataUnavailable("no answer")
                return await txn(compare, then, *rest)

            monkeypatch.setattr(client.metadata, "txn", lose_once)

            async def settled(auditor: Auditor) -> bool:
                return auditor.totals.reports_settled == 1

            await audited(client, settled)
            assert lost == 1

        await cluster.run_client("client", audit)

    simulate(1, scenario)


def test_looking_for_what_a_lost_bookie_had_leaves_others_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(simulation: Simulation) -> None:
        cluster = LedgerCluster(simulation, bookies=4)
        await cluster.start()

        async def audit(client: LedgerClient) -> None:
            ledger, spare = await beside_a_ledger(client)
            record = ledger.record.encode()
            await client.metadata.txn((), [Put(ledger_key(f"ledger-{number}"), record) for number in range(100)])
            await client.metadata.txn((), [Put(f"{DRAINING}{spare}", b"")])
            auditor = Auditor(client.metadata, client.bookies, EAGER, "auditor", client.world.logger)
            monkeypatch.setattr("gnomon.bookie.auditor.RECORDS_PER_TURN", 5)
            assert await turns_during(auditor.audit()) >= 2 * 20
            assert auditor.totals.bookies_drained == 1

        await cluster.run_client("client", audit)

    simulate(1, scenario)


def test_a_bookie_that_stays_away_and_is_not_drained_costs_one_look_at_all_ledgers_a_round() -> None:
    async def scenario(simulation: Simulation) -> None:
        cluster = LedgerCluster(simulation, bookies=4)
        await cluster.start()

        async def audit(client: LedgerClient) -> None:
            _, spare = await beside_a_ledger(client)
            simulation.machine(spare).power_off()
            metadata = CountingMetadata(client.metadata)
            auditor = Auditor(metadata, client.bookies, EAGER, "auditor", client.world.logger)
            for _ in range(30):
                await client.world.clock.sleep(1)
                with metadata.measure() as cost:
                    await auditor.audit()
            assert (cost.reads, cost.writes) == (3, 0), "who is drained, what is reported, and all ledgers"

        await cluster.run_client("client", audit)

    simulate(1, scenario)


def test_a_lost_bookie_that_nobody_can_stand_in_for_costs_no_writer_anything() -> None:
    async def scenario(simulation: Simulation) -> None:
        cluster = LedgerCluster(simulation, bookies=3)
        await cluster.start()

        async def work(client: LedgerClient) -> None:
            ledger = await client.create("ledger", WIDE)
            await fill(ledger, 5)
            simulation.machine(ledger.record.bookies[0]).kill()
            auditor = Auditor(client.metadata, client.bookies, EAGER, "auditor", client.world.logger)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(auditor.run)
                for _ in range(60):
                    await fill(ledger, 1)
                    await client.world.clock.sleep(1)
                nursery.cancel_scope.cancel()
            assert (auditor.totals.fragments_ended, auditor.totals.fragments_moved) == (0, 0)

        await cluster.run_client("client", work)

    simulate(1, scenario)


def test_a_writer_that_has_left_the_lost_bookie_while_others_were_repaired_is_left_alone() -> None:
    async def scenario(simulation: Simulation) -> None:
        cluster = LedgerCluster(simulation, bookies=5)
        await cluster.start()

        async def work(client: LedgerClient) -> None:
            clock = client.world.clock
            large, ledger = await client.create("a", WIDE), await client.create("b", WIDE)
            for _ in range(60):
                await large.add([bytes(50_000)])
            await fill(ledger, 5)
            lost = next(name for name in large.record.bookies if name in ledger.record.bookies)
            await large.seal()
            simulation.machine(lost).kill()
            await clock.sleep(8)  # nothing is appended: the writer does not know
            slow = AuditSettings(grace_seconds=1, interval_seconds=1, repair_bytes_per_second=300_000)
            auditor = Auditor(client.metadata, client.bookies, slow, "auditor", client.world.logger)
            await auditor.audit()
            await clock.sleep(2)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(auditor.audit)  # it copies `a` for ten seconds
                await clock.sleep(2)
                while lost in ledger.record.fragments[-1].bookies:
                    await fill(ledger, 1)
                    await clock.sleep(0.2)
            await fill(ledger, 1)
            assert auditor.totals.fragments_moved == 2

        await cluster.run_client("client", work)

    simulate(1, scenario)


def test_a_ledger_whose_record_changes_while_it_is_copied_is_repaired_all_the_same() -> None:
    async def scenario(simulation: Simulation) -> None:
        cluster = LedgerCluster(simulation, bookies=4)
        await cluster.start()

        async def work(client: LedgerClient) -> None:
            clock = client.world.clock
            ledger = await client.create("a", WIDE)
            lost = ledger.record.bookies[0]
            for _ in range(60):
                await ledger.add([bytes(50_000)])
            simulation.machine(lost).kill()
            while lost in ledger.record.fragments[-1].bookies:
                await fill(ledger, 1)
                await clock.sleep(0.2)
            await clock.sleep(8)
            slow = AuditSettings(grace_seconds=1, interval_seconds=1, repair_bytes_per_second=1_000_000)
            auditor = Auditor(client.metadata, client.bookies, slow, "auditor", client.world.logger)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(auditor.run)
                for number in range(10):  # copying takes longer than the record stays as it is
                    await ledger.update({"number": number})
                    await clock.sleep(2)
                nursery.cancel_scope.cancel()
            assert lost not in ledger.record.bookies
            assert ledger.record.properties == {"number": 9}
            assert auditor.copied_bytes < 4_000_000

        await cluster.run_client("client", work)

    simulate(1, scenario)


def test_a_bookie_that_came_back_while_another_was_the_auditor_has_its_whole_grace_again() -> None:
    async def scenario(simulation: Simulation) -> None:
        cluster = LedgerCluster(simulation, bookies=4)
        await cluster.start()

        async def work(client: LedgerClient) -> None:
            clock, metadata = client.world.clock, client.metadata
            settings = AuditSettings(grace_seconds=60, interval_seconds=1, lease_seconds=3)
            auditor = Auditor(metadata, client.bookies, settings, "auditor", client.world.logger)
            ledger = await client.create("ledger", WIDE)
            await fill(ledger, 3)
            machine = simulation.machine(ledger.record.bookies[0])
            async with trio.open_nursery() as nursery:
                nursery.start_soon(auditor.run)
                await clock.sleep(2)
                machine.kill()
                await clock.sleep(10)
                elected = await metadata.get(ELECTION)
                assert elected is not None
                await metadata.revoke(elected.lease)
                other = await metadata.lease(300.0)
                await metadata.txn((), (Put(ELECTION, b"another", other),))
                await clock.sleep(5)
                machine.start()
                await clock.sleep(100)
                machine.kill()
                await clock.sleep(10)
                await metadata.revoke(other)
                await clock.sleep(30)
                assert auditor.elected
                assert auditor.totals.fragments_ended == 0
                await clock.sleep(60)
                assert auditor.totals.fragments_ended == 1
                nursery.cancel_scope.cancel()

        await cluster.run_client("client", work)

    simulate(1, scenario)


def test_a_record_that_cannot_be_read_ends_nobody_and_keeps_drained_bookies_members() -> None:
    async def scenario(simulation: Simulation) -> None:
        cluster = LedgerCluster(simulation, bookies=4, garbage_interval_seconds=1)
        await cluster.start()

        async def work(client: LedgerClient) -> None:
            clock, metadata = client.world.clock, client.metadata
            ledger, spare = await beside_a_ledger(client)
            await fill(ledger, 3)
            newer = Put(ledger_key("newer"), b"\x92\x63\x01")
            await metadata.txn((), (newer, Put(f"{MISSING}7", b"newer"), Put(f"{BOOKIES}newer", b"\xc1")))
            await metadata.txn((), (Put(f"{DRAINING}{spare}", b""),))
            auditor = Auditor(metadata, client.bookies, EAGER, "auditor", client.world.logger)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(auditor.run)
                await clock.sleep(20)
                assert auditor.elected
                assert auditor.totals.bookies_drained == 0
                await fill(ledger, 3)
                await metadata.txn((), (Delete(ledger_key("newer")),))
                await clock.sleep(20)
                assert auditor.totals.bookies_drained == 1
                nursery.cancel_scope.cancel()
            assert all(simulation.machine(name).running for name in cluster.names)

        await cluster.run_client("client", work)

    simulate(1, scenario)


def test_an_auditor_that_is_late_dismisses_no_other_bookie_of_the_same_name() -> None:
    async def scenario(simulation: Simulation) -> None:
        cluster = LedgerCluster(simulation, bookies=4)
        await cluster.start()

        async def work(client: LedgerClient) -> None:
            metadata = client.metadata
            ledger, spare = await beside_a_ledger(client)
            await fill(ledger, 3)
            await metadata.txn((), (Put(f"{DRAINING}{spare}", b""),))
            auditor = Auditor(metadata, client.bookies, EAGER, "auditor", client.world.logger)
            naming = auditor._naming

            async def naming_for_long(names: Any) -> Any:
                found = await naming(names)
                await metadata.txn((), (Delete(f"{DRAINING}{spare}"),))  # by another auditor, with all else
                await metadata.txn((), (Put(f"{DRAINING}{spare}", b""),))  # the next one of the name is to leave, too
                return found

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(auditor, "_naming", naming_for_long)
                await auditor.audit()
            assert auditor.totals.bookies_drained == 0
            assert await metadata.get(f"{COOKIES}{spare}") is not None
            await auditor.audit()
            assert auditor.totals.bookies_drained == 1

        await cluster.run_client("client", work)

    simulate(1, scenario)
