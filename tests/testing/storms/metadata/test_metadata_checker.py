from __future__ import annotations

from gnomon.metadata.client import Compare, Event, KeyValue, LeaseId, Put, RangeResult, Revision, TxnOutcome, WatchBatch
from gnomon.metadata.request import Txn
from gnomon.testing.storms.metadata.metadata_checker import LeaseLife, MetadataHistory, Watched

LEASE = LeaseId(1)


def stored(revision: int, value: bytes = b"1", version: int = 1, lease: LeaseId | None = None) -> KeyValue:
    return KeyValue("a", value, Revision(revision + 1 - version), Revision(revision), version, lease)


def batch(revision: int, current: KeyValue | None) -> WatchBatch:
    return WatchBatch(Revision(revision), (Event("a", current),))


def told(history: MetadataHistory, txn: Txn, result: TxnOutcome | None) -> None:
    asked = history.asks(txn)
    asked.result = result
    if result is not None:
        history.tells(asked.floor, result.revision, "a transaction")


PUT = Txn((), (Put("a", b"1"),))
MADE = TxnOutcome(True, Revision(1), (stored(1),))


def test_correct_answers_and_commits_pass() -> None:
    history = MetadataHistory()
    told(history, PUT, MADE)
    told(history, Txn((), (Put("a", b"2"),)), None)
    history.committed(batch(1, stored(1)), 0.0)
    history.committed(batch(2, stored(2, b"2", 2)), 1.0)
    history.watches.append(Watched("", Revision(1), [batch(1, stored(1)), batch(2, stored(2, b"2", 2))]))
    history.ranged("", RangeResult(Revision(1), (stored(1),)))
    history.got(1, "a", stored(2, b"2", 2))
    assert history.behind() == []
    assert history.check() == []


def test_a_revision_without_a_cause_is_found() -> None:
    history = MetadataHistory()
    history.committed(batch(1, stored(1)), 0.0)
    assert "no transaction made revision 1" in history.check()[0]


def test_a_write_of_unknown_outcome_that_happens_twice_is_found() -> None:
    history = MetadataHistory()
    told(history, PUT, None)
    history.committed(batch(1, stored(1)), 0.0)
    history.committed(batch(2, stored(2, b"1", 2)), 0.0)
    assert "no transaction made revision 2" in history.check()[0]


def test_a_transaction_that_did_not_compare_is_found() -> None:
    history = MetadataHistory()
    told(history, Txn((Compare.version("a", 1),), (Put("a", b"1"),)), MADE)
    history.committed(batch(1, stored(1)), 0.0)
    assert "got TxnOutcome" in history.check()[0]


def test_a_lost_write_is_found() -> None:
    history = MetadataHistory()
    told(history, PUT, MADE)
    assert "got revision 1, 0 is the last one" in history.check()[0]


def test_an_older_revision_than_a_known_one_is_found() -> None:
    history = MetadataHistory()
    told(history, PUT, MADE)
    history.committed(batch(1, stored(1)), 0.0)
    history.tells(history.told, 0, "a range")
    history.got(history.told, "a", None)
    assert len(history.check()) == 2


def test_a_lease_that_ends_early_is_found_and_one_that_ends_in_time_is_not() -> None:
    for now, count in ((4.9, 1), (5.0, 0)):
        history = MetadataHistory()
        history.leases[LEASE] = LeaseLife(5.0, 0.0)
        item = stored(1, lease=LEASE)
        told(history, Txn((), (Put("a", b"1", LEASE),)), TxnOutcome(True, Revision(1), (item,)))
        history.committed(batch(1, item), 0.0)
        history.committed(batch(2, None), now)
        assert len(history.check()) == count


def test_a_watch_that_lost_a_batch_is_found_and_one_that_ended_before_is_not() -> None:
    for ended, count in ((False, 1), (True, 0)):
        history = MetadataHistory()
        told(history, PUT, MADE)
        history.committed(batch(1, stored(1)), 0.0)
        history.watches.append(Watched("a", Revision(1), ended=ended))
        assert len(history.behind()) == count
        assert len(history.check()) == count


def test_a_range_that_shows_a_wrong_state_is_found() -> None:
    history = MetadataHistory()
    history.ranged("", RangeResult(Revision(0), (stored(1),)))
    assert "a range of '' as of 0" in history.check()[0]
