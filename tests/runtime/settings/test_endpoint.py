from __future__ import annotations

import re

import pytest

from gnomon.runtime.settings.endpoint import Endpoint, advertising, listening


def test_an_address_without_a_host_listens_on_all_addresses() -> None:  # invariant 2
    assert listening("inside://:9092") == [Endpoint("INSIDE", "0.0.0.0", 9092)]  # invariant 1
    assert str(Endpoint("L", "::1", 1)) == "L://[::1]:1"
    assert listening("L://[::1]:1") == [Endpoint("L", "::1", 1)]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "no address of the form NAME://HOST:PORT"),
        ("localhost:9092", "no address of the form"),
        ("L://h:65536", "port 65536 of L is larger than 65535"),
        ("L://h:1,l://h:2", "listener L is named twice"),
        (",".join(f"L{number}://h:1" for number in range(17)), "at most 16"),
    ],
)
def test_a_malformed_address_is_refused_with_the_right_form(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=re.escape(problem)):
        listening(text)


@pytest.mark.parametrize("text", ["L://0.0.0.0:1", "L://[::]:1", "L://:1", "L://h:0"])
def test_an_advertised_address_is_one_that_clients_can_connect_to(text: str) -> None:
    with pytest.raises(ValueError, match="no address that clients can connect to"):
        advertising(text)
