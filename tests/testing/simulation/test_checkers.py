from __future__ import annotations

import pytest

from gnomon.testing.simulation.checkers import (
    ConditionalWrite,
    KeyRead,
    LedgerHistory,
    check_conditional_writes,
    check_copies,
    check_ledger,
    check_watch,
)


def ledger() -> LedgerHistory:
    entries = {number: b"entry %d" % number for number in range(5)}
    return LedgerHistory(
        acknowledged=list(entries.items())[:4],
        attempted={entries[4], b"never arrived"},
        confirmed={"reader": [-1, 1, 1, 3]},
        reads=list(entries.items())[:2],
        final=entries,
    )


def test_a_clean_ledger_passes() -> None:
    assert check_ledger(ledger()) == []


def test_a_shrunk_ledger_needs_no_entry_below_its_start() -> None:
    history = ledger()
    history.start_entry = 2
    del history.final[0], history.final[1]
    assert check_ledger(history) == []


def test_each_fault_of_a_ledger_is_found() -> None:
    history = ledger()
    del history.final[3]
    assert any("entry 3 was acknowledged" in text for text in check_ledger(history))
    assert any("entry 3 is missing" in text for text in check_ledger(history))
    history = ledger()
    history.final[1] = b"other"
    assert any("entry 1 was read as" in text for text in check_ledger(history))
    assert any("which nobody wrote" in text for text in check_ledger(history))
    history = ledger()
    history.acknowledged.reverse()
    assert any("acknowledged after entry" in text for text in check_ledger(history))
    history = ledger()
    history.confirmed["reader"].append(2)
    assert check_ledger(history) == ["reader saw 2 confirmed after 3"]
    history = ledger()
    history.sealed_at = 3
    assert check_ledger(history) == ["the ledger was sealed at 3 and has entry 4"]


def test_an_entry_is_stored_on_as_many_bookies_as_have_acknowledged_it() -> None:
    copies = {"a": {0: b"x", 1: b"y"}, "b": {0: b"x"}, "c": {1: b"z"}}
    assert check_copies(copies, {0: b"x"}, 2) == []
    assert check_copies(copies, {1: b"y"}, 2) == ["entry 1 lies on 1 bookies, 2 have acknowledged it"]


def test_conditional_writes_in_order_pass() -> None:
    writes = [
        ConditionalWrite("a", 0, 2, 1, expected=0),
        ConditionalWrite("b", 1, 3, 2),
        ConditionalWrite("a", 2.5, 4, 4, expected=1),
        ConditionalWrite("b", 2.5, 4, None),
        ConditionalWrite("b", 5, 6, 5, expected=3),  # the unknown write got 3
    ]
    reads = [KeyRead("a", 0, 1, 0), KeyRead("a", 0, 3, 1), KeyRead("a", 4.5, 5, 4)]
    assert check_conditional_writes(writes, reads) == []


@pytest.mark.parametrize(
    ("writes", "reads", "text"),
    [
        ([ConditionalWrite("a", 0, 1, 7), ConditionalWrite("a", 0, 1, 7)], [], "two writes got revision 7"),
        ([ConditionalWrite("a", 0, 1, 2), ConditionalWrite("a", 5, 6, 1)], [], "had returned before"),
        ([ConditionalWrite("a", 0, 1, 1), ConditionalWrite("a", 2, 3, 2, expected=0)], [], "it was at 1"),
        ([ConditionalWrite("a", 0, 1, 1), ConditionalWrite("a", 2, 3, 5, expected=4)], [], "it was at 1"),
        ([ConditionalWrite("a", 0, 1, 1)], [KeyRead("a", 2, 3, 0)], "found revision 0 after 1"),
        ([], [KeyRead("a", 0, 1, 5), KeyRead("a", 2, 3, 4)], "found revision 4 after 5"),
    ],
)
def test_each_fault_of_conditional_writes_is_found(
    writes: list[ConditionalWrite], reads: list[KeyRead], text: str
) -> None:
    assert any(text in found for found in check_conditional_writes(writes, reads))


def test_a_watch_delivers_each_event_once_in_order() -> None:
    assert check_watch("abcd", "abcd") == []
    assert check_watch("abcd", "ab", caught_up=False) == []
    assert check_watch("abcd", "ab") == ["event 2: 'c' never came"]
    assert check_watch("abcd", "abd") == ["event 2: 'c' was left out, 'd' came"]
    assert check_watch("abcd", "abb") == ["event 2: 'b' came again, 'c' was due"]
    assert check_watch("abcd", "abx") == ["event 2: 'x' was never committed, 'c' was due"]
    assert check_watch("ab", "abc") == ["event 2: 'c' came after the last committed one"]
