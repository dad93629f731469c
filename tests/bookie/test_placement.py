"""The choice of bookies (numbers: invariants of `placement`)."""

from __future__ import annotations

from collections import Counter

import pytest

from gnomon.bookie.ids import BookieId
from gnomon.bookie.placement import ensemble_for, place
from gnomon.bookie.record import Quorum

DOMAINS = {BookieId(f"b{index}"): f"rack-{index % 3}" for index in range(9)}
PLAIN = {BookieId(f"b{index}"): "" for index in range(5)}
NAMES = [f"topics/orders/{index}" for index in range(200)]


def racks(chosen: list[BookieId]) -> list[str]:
    return sorted(DOMAINS[name] for name in chosen)


@pytest.mark.parametrize("ledger", NAMES[:20])
def test_bookies_are_spread_over_all_domains_before_any_domain_is_used_twice(ledger: str) -> None:  # 1
    assert racks(place(ledger, DOMAINS, 3)) == ["rack-0", "rack-1", "rack-2"]
    assert sorted(Counter(racks(place(ledger, DOMAINS, 5))).values()) == [1, 2, 2]
    assert len(set(place(ledger, DOMAINS, 9))) == 9
    assert len(place(ledger, DOMAINS, 20)) == 9


def test_copies_that_exist_count_for_their_domains_and_are_not_chosen_again() -> None:  # 1
    beside = [(BookieId("b0"), "rack-0"), (BookieId("gone"), "rack-1")]
    for ledger in NAMES[:20]:
        assert racks(place(ledger, DOMAINS, 1, beside=beside)) == ["rack-2"]
        assert BookieId("b0") not in place(ledger, DOMAINS, 9, beside=beside)
        assert BookieId("b1") not in place(ledger, DOMAINS, 9, without=[BookieId("b1")])
        assert len(place(ledger, DOMAINS, 9, beside=beside, without=[BookieId("b1")])) == 7


def test_a_domain_with_two_copies_gets_the_next_one_after_all_others_have_two() -> None:  # 1
    beside = [(BookieId("x"), "rack-0"), (BookieId("y"), "rack-0")]
    for ledger in NAMES[:20]:
        assert racks(place(ledger, DOMAINS, 4, beside=beside)) == ["rack-1", "rack-1", "rack-2", "rack-2"]


def test_the_name_of_a_ledger_decides_and_spreads_ledgers_evenly() -> None:  # 2
    first = [place(ledger, PLAIN, 2) for ledger in NAMES]
    assert first == [place(ledger, dict(reversed(PLAIN.items())), 2) for ledger in NAMES]
    used = Counter(name for chosen in first for name in chosen)
    assert min(used.values()) > 2 * len(NAMES) / len(PLAIN) / 2


def test_a_new_bookie_takes_its_share_and_moves_nothing_else() -> None:  # 2
    grown = {**PLAIN, BookieId("new"): ""}
    moved = 0
    for ledger in NAMES:
        before, after = place(ledger, PLAIN, 1), place(ledger, grown, 1)
        assert after in (before, ["new"])
        moved += after != before
    assert 0 < moved < len(NAMES) / 3


@pytest.mark.parametrize(
    ("quorum", "available", "formed"),
    [
        (Quorum(3, 3, 2), 3, True),
        (Quorum(3, 3, 2), 2, True),
        (Quorum(3, 3, 2), 1, False),
        (Quorum(3, 2, 2), 2, False),
        (Quorum(3, 2, 1), 2, True),
        (Quorum(3, 3, 1), 1, True),
        (Quorum(3, 3, 1), 0, False),
    ],
)
def test_an_ensemble_is_formed_if_each_entry_can_reach_an_ack_quorum(  # 3
    quorum: Quorum, available: int, formed: bool
) -> None:
    accepting = dict(list(PLAIN.items())[:available])
    for ledger in NAMES[:20]:
        ensemble = ensemble_for(ledger, quorum, accepting, PLAIN)
        assert (ensemble is not None) == formed
        if ensemble is not None:
            assert len(ensemble) == len(set(ensemble)) == 3
            assert set(accepting) <= set(ensemble)


def test_an_ensemble_is_filled_up_with_known_bookies_of_other_domains_first() -> None:  # 1, 3
    accepting = {BookieId("b0"): "rack-0", BookieId("b1"): "rack-1"}
    for ledger in NAMES[:20]:
        ensemble = ensemble_for(ledger, Quorum(3, 3, 2), accepting, DOMAINS)
        assert ensemble is not None
        assert racks(list(ensemble)) == ["rack-0", "rack-1", "rack-2"]


def test_there_is_no_ensemble_of_fewer_bookies_than_it_needs() -> None:  # 3
    known = dict(list(PLAIN.items())[:2])
    assert ensemble_for("l", Quorum(3, 3, 2), known, known) is None


def test_the_choice_for_a_name_never_changes() -> None:  # 2
    assert place("topics/orders/0", PLAIN, 5) == ["b3", "b0", "b2", "b1", "b4"]
    assert place("topics/orders/1", PLAIN, 5) == ["b3", "b2", "b4", "b1", "b0"]
    assert ensemble_for("topics/orders/0", Quorum(3, 3, 2), PLAIN, PLAIN) == ("b3", "b0", "b2")
    accepting = {BookieId("b3"): "", BookieId("b0"): ""}
    assert ensemble_for("topics/orders/0", Quorum(3, 3, 2), accepting, PLAIN) == ("b3", "b0", "b2")
    more = dict.fromkeys([BookieId(f"b{index}") for index in range(9)], "")
    assert place("topics/orders/1", more, 9)[:4] != place("topics/orders/0", more, 9)[:4]
