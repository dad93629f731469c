"""Writer, reader, recovery and record in a plain loop: several bookies, several writers, lost and late messages."""

from __future__ import annotations

import pytest
from claim_schedules import Cluster, record_of
from simulated_bookie import stored

from gnomon.bookie.errors import NotEnoughBookies
from gnomon.bookie.ids import ANY_SESSION, NO_ENTRY, EntryId
from gnomon.bookie.ledgers.recovery import Recovery
from gnomon.bookie.record import Quorum, shrink

SEEDS = 1_000
STEPS = 180


def test_acknowledged_entries_survive_every_schedule_of_writers_claims_and_losses() -> None:
    acknowledged = claims = changes = 0
    for seed in range(SEEDS):
        cluster = Cluster(seed)
        try:
            cluster.run(STEPS)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        acknowledged += len(cluster.committed)
        claims += len(cluster.writers) - 1
        changes += cluster.changes
    assert acknowledged > SEEDS, "the schedules acknowledge too little to show anything"
    assert claims > 3 * SEEDS, "the schedules claim too rarely to show anything"
    assert changes > SEEDS, "the schedules change too few ensembles to show anything"


def test_recovery_reads_no_entry_before_enough_bookies_are_fenced() -> None:
    recovery = Recovery(record_of(Quorum(3, 3, 2)))
    recovery.fenced(0, EntryId(7), ANY_SESSION)
    recovery.fenced(0, EntryId(7), ANY_SESSION)
    with pytest.raises(NotEnoughBookies, match="only 1 of 2"):
        recovery.next_read()


def test_recovery_asks_only_fenced_bookies_and_needs_explicit_answers() -> None:
    recovery = Recovery(record_of(Quorum(3, 3, 2)))
    recovery.fenced(0, NO_ENTRY, ANY_SESSION)
    recovery.fenced(2, NO_ENTRY, ANY_SESSION)
    assert recovery.next_read() == (0, 0, 1)
    recovery.absent()
    assert recovery.next_read() == (2, 0, 1)
    with pytest.raises(NotEnoughBookies, match="entry 0"):
        recovery.next_read()  # bookie 2 answered with an error: one negative answer is not enough


def test_recovery_reads_the_last_confirmed_entry_only_for_the_length() -> None:
    recovery = Recovery(record_of(Quorum()))
    recovery.fenced(0, EntryId(4), ANY_SESSION)
    assert recovery.next_read() == (0, 4, 1)
    recovery.found(stored(1, b"confirmed", 500))
    assert recovery.next_read() == (0, 5, 1)
    recovery.found(stored(1, b"tail", 504))
    assert recovery.next_read() == (0, 6, 1)
    recovery.absent()
    assert recovery.next_read() is None
    assert (recovery.confirmed, recovery.last_entry, recovery.length_bytes) == (4, 5, 504)
    assert recovery.tail == [(5, b"tail", 0)]


def test_a_damaged_last_confirmed_entry_does_not_hinder_recovery() -> None:
    recovery = Recovery(record_of(Quorum()))
    recovery.fenced(0, EntryId(4), ANY_SESSION)
    assert recovery.next_read() == (0, 4, 1)
    assert recovery.next_read() == (0, 5, 1)  # the answer about entry 4 was an error
    recovery.absent()
    assert recovery.next_read() is None
    assert recovery.last_entry == 4


def test_a_bookie_of_the_ensemble_that_lacks_an_entry_of_the_last_fragment_is_noticed() -> None:
    recovery = Recovery(record_of(Quorum(3, 2, 2)))  # entry 4 is on bookies 1 and 2, entry 5 on 2 and 0
    for bookie in range(3):
        recovery.fenced(bookie, EntryId(4), ANY_SESSION)
    recovery.next_read()
    recovery.found(stored(1, b"confirmed", 500))
    recovery.next_read()
    recovery.found(stored(1, b"tail", 504))
    assert recovery.copied_entries == range(6)


@pytest.mark.parametrize(("confirmed", "asked"), [(NO_ENTRY, 0), (EntryId(0), 0), (EntryId(6), 6)])
def test_reading_starts_at_the_last_confirmed_entry_if_there_is_one(confirmed: EntryId, asked: int) -> None:
    recovery = Recovery(record_of(Quorum()))
    assert recovery.length_bytes == 0
    recovery.fenced(0, confirmed, ANY_SESSION)
    assert recovery.next_read() == (0, asked, 1)


def test_a_confirmed_entry_that_was_shrunk_away_is_not_read() -> None:
    record = shrink(record_of(Quorum()), EntryId(5), 70)
    recovery = Recovery(record)
    assert recovery.length_bytes == 70
    recovery.fenced(0, EntryId(4), ANY_SESSION)
    assert recovery.next_read() == (0, 5, 1)
    again = Recovery(record)
    again.fenced(0, EntryId(5), ANY_SESSION)
    assert again.next_read() == (0, 5, 1)
    again.found(stored(1, b"confirmed", 90))
    assert again.next_read() == (0, 6, 1)
    assert again.length_bytes == 90


def test_an_entry_with_one_copy_lacks_no_other() -> None:
    recovery = Recovery(record_of(Quorum(3, 1, 1)))
    for bookie in range(3):
        recovery.fenced(bookie, EntryId(1), ANY_SESSION)
    assert not recovery.copied_entries


def test_the_error_names_the_bookies_that_are_needed() -> None:
    with pytest.raises(NotEnoughBookies, match=r"only 0 of 2 bookies needed of b0, b1, b2 could be fenced"):
        Recovery(record_of(Quorum(3, 3, 2))).next_read()


def test_a_bookie_lacks_no_entry_below_the_start_of_a_ledger_without_entries() -> None:
    recovery = Recovery(shrink(record_of(Quorum(3, 3, 2)), EntryId(5), 70))
    recovery.fenced(0, NO_ENTRY, ANY_SESSION)
    assert recovery.confirmed == 4
    assert not recovery.copied_entries
