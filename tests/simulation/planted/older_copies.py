"""Bugs in the use of an older copy of a bookie's store; a sweep over ledgers with older copies looks for them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gnomon.bookie import errors, node
from gnomon.bookie.ids import ANY_SESSION
from gnomon.bookie.repair import repair
from gnomon.bookie.storage import older_store
from gnomon.bookie.storage.entry_store import EntryStore

from planted.ledgers import BURSTS
from planted.planted_bug import ScenarioBugs

OLDER = replace(BURSTS, older=1.0)
"""One bookie's disk is replaced by older copies of itself, while ledgers are claimed repeatedly."""
OLDER_COPY_BUGS = ScenarioBugs(OLDER)
planted = OLDER_COPY_BUGS.planted


@planted(
    "an older copy of a disk makes no promise again",
    breaks="bookie.older_copy 1",
    found_by="tests/bookie/test_older_copy.py::"
    "test_an_older_copy_refuses_the_writer_that_the_lost_store_may_have_fenced",
)
def no_promise_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(older_store, "promise_again", lambda record, version, bookie: ANY_SESSION)


@planted(
    "an older copy of a disk promises the session of the record",
    breaks="bookie.older_copy 1",
    found_by="tests/bookie/test_older_copy.py::"
    "test_an_older_copy_refuses_the_writer_that_the_lost_store_may_have_fenced",
)
def promise_too_low(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(older_store, "promise_again", lambda record, version, bookie: record.session)


@planted(
    "copies that nothing proves come back with an older copy",
    breaks="bookie.older_copy 2",
    found_by="tests/bookie/test_older_copy.py::"
    "test_an_orphan_that_records_exclude_no_more_does_not_come_back_with_an_older_copy",
)
def unproved_kept(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(older_store, "has_orphans", lambda record: False)


@planted("an older copy says that entries that it lacks do not exist", breaks="bookie.older_copy 3")
def lacking_denied(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(EntryStore, "why_absent", lambda store, ledger, entry: errors.NoSuchEntry(ledger, entry))


@planted(
    "an older copy forgets at its next start what it lacks",
    breaks="bookie.older_copy 5",
    found_by="tests/bookie/test_older_copy.py::"
    "test_a_bookie_in_repair_stays_so_over_a_restart_and_begins_again_with_another_older_copy",
)
def lacking_forgotten(patch: pytest.MonkeyPatch) -> None:
    async def forgotten(metadata: Any, bookie: Any) -> None:
        return None

    patch.setattr(node, "copy_in_repair", forgotten)


@planted(
    "an older copy counts as repaired before it has its entries",
    breaks="bookie.older_copy 4",
    found_by="tests/bookie/test_older_copy.py::test_the_auditor_repairs_an_older_copy_which_then_answers_as_any_bookie",
)
def repaired_at_once(patch: pytest.MonkeyPatch) -> None:
    async def nothing(repair: Any, name: Any) -> None:
        pass

    patch.setattr(repair.LedgerRepair, "fill_gaps_of", nothing)


@planted(
    "a repair of an older copy does not claim open ledgers",
    breaks="bookie.older_copy 4",
    found_by="tests/bookie/test_older_copy.py::test_the_auditor_repairs_an_older_copy_which_then_answers_as_any_bookie",
)
def repaired_unclaimed(patch: pytest.MonkeyPatch) -> None:
    async def never(repair: Any, name: Any) -> bool:
        return False

    patch.setattr(repair.LedgerRepair, "is_refused_by", never)
