"""Conditional writes by header, with the clients of PyPI: one request per refused batch, and what the client shows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pytest
from conditional_writes import EXPECTED, MESSAGE, create_conditional_topic
from refused_batches import (
    CODES,
    ENDS,
    INVALID_RECORD,
    SHOWS_THE_MESSAGE,
    next_write,
    note_refusal,
    produced,
    refusal_of,
    values,
)

if TYPE_CHECKING:
    from conftest import Broker

    from families.family import Family


@pytest.mark.parametrize("idempotent", [False, True])
def test_a_refused_batch_is_one_request(
    family: Family, broker: Broker, topic: str, idempotent: bool, request: pytest.FixtureRequest
) -> None:
    create_conditional_topic(broker.bootstrap_servers, topic)
    producer = family.producer(idempotent=idempotent, linger_ms=200, give_up_seconds=5)
    producer.send(topic, b"first", headers=((EXPECTED, b"0"),), partition=0)
    assert producer.flush() == [0]
    errors: list[BaseException] = []

    def send() -> Sequence[str]:
        for number in range(3):
            producer.send(topic, b"refused", headers=((EXPECTED, b"9"),) if number == 2 else (), partition=0)
        errors.extend(answer for answer in producer.answers() if isinstance(answer, BaseException))
        return [str(error) for error in errors]

    refusal = refusal_of(send, lambda: next_write(producer, topic), lambda: produced(broker))
    note_refusal(request.config, family.name, idempotent, refusal)
    assert [family.code(error) for error in errors] == [CODES.get(family.name, INVALID_RECORD)] * 3
    assert refusal.shows(MESSAGE) == (family.name in SHOWS_THE_MESSAGE), refusal
    assert refusal.goes_on == ((family.name, idempotent) not in ENDS), refusal
    if not refusal.goes_on:
        other = family.producer(idempotent=idempotent)
        other.send(topic, b"next", headers=((EXPECTED, b"1"),), partition=0)
        assert other.flush() == [1]
        other.close()
    assert values(broker.bootstrap_servers, topic) == [b"first", b"next"]
