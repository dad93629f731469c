"""Counts of flights, and their differences (bench/flights/tally.py)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.flights.flight import Flight
from bench.flights.tally import Census, Difference, Tally, differences

FLIGHTS = [
    Flight("UA", b'{"flight":1}'),
    Flight("B6", b'{"flight":2}'),
    Flight("UA", b'{"flight":3}'),
    Flight("B6", b'{"flight":4}'),
]


def counted(*flights: Flight, partition: int = 0) -> Tally:
    tally = Tally(Census(FLIGHTS))
    for flight in flights:
        tally.add(partition, flight.carrier.encode(), flight.document)
    return tally


def test_flights_read_exactly_once_have_no_differences() -> None:
    assert differences(Census(FLIGHTS), counted(*FLIGHTS)) == []


def test_a_lost_flight_is_reported_for_its_carrier_alone() -> None:
    assert differences(Census(FLIGHTS), counted(*FLIGHTS[1:])) == [Difference("UA", 2, 1, 1, 0, 0, 0)]


def test_a_flight_read_twice_is_reported() -> None:
    found = differences(Census(FLIGHTS), counted(*FLIGHTS, FLIGHTS[3]))
    assert found == [Difference("B6", 2, 3, 0, 1, 0, 0)]


def test_a_loss_is_not_hidden_by_a_repetition_of_the_same_carrier() -> None:
    """The carrier's count alone would be right (invariant 1)."""
    found = differences(Census(FLIGHTS), counted(FLIGHTS[0], FLIGHTS[0], FLIGHTS[1], FLIGHTS[3]))
    assert found == [Difference("UA", 2, 2, 1, 1, 0, 0)]


def test_an_altered_flight_is_foreign_and_lost() -> None:
    found = differences(Census(FLIGHTS), counted(*FLIGHTS[:3], Flight("B6", b'{"flight":5}')))
    assert found == [Difference("B6", 2, 2, 1, 0, 1, 0)]


def test_a_flight_under_the_wrong_key_makes_both_carriers_differ() -> None:
    """Invariant 2: the count goes by the record's key, the expectation by the data set's column."""
    found = differences(Census(FLIGHTS), counted(*FLIGHTS[:3], Flight("UA", FLIGHTS[3].document)))
    assert [(difference.carrier, difference.expected, difference.counted) for difference in found] == [
        ("B6", 2, 1),
        ("UA", 2, 3),
    ]


def test_a_record_without_key_or_value_is_foreign() -> None:
    tally = counted(*FLIGHTS)
    tally.add(0, None, None)
    assert differences(Census(FLIGHTS), tally) == [Difference("", 0, 1, 0, 0, 1, 0)]


def test_flights_out_of_order_within_a_partition_are_reported() -> None:
    found = differences(Census(FLIGHTS), counted(FLIGHTS[0], FLIGHTS[2], FLIGHTS[1], FLIGHTS[3]))
    assert found == [Difference("B6", 2, 2, 0, 0, 0, 1)]


def test_flights_of_different_partitions_have_no_order() -> None:
    tally = counted(FLIGHTS[2], FLIGHTS[3], partition=1)
    tally.add(0, b"UA", FLIGHTS[0].document)
    tally.add(0, b"B6", FLIGHTS[1].document)
    assert differences(Census(FLIGHTS), tally) == []


def test_equal_flights_are_refused() -> None:
    with pytest.raises(ValueError, match="1 flights equal others"):
        Census([*FLIGHTS, FLIGHTS[0]])


@given(readings=st.lists(st.tuples(st.sampled_from(FLIGHTS), st.integers(0, 2))))
def test_readers_of_separate_partitions_add_up_to_one_reader_of_all(readings: list[tuple[Flight, int]]) -> None:
    census = Census(FLIGHTS)
    one, several = Tally(census), [Tally(census) for _ in range(3)]
    for flight, partition in readings:
        for tally in (one, several[partition]):
            tally.add(partition, flight.carrier.encode(), flight.document)
    whole = Tally.sum(census, several)
    assert whole.records == len(readings)
    assert differences(census, whole) == differences(census, one)
