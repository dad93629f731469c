from __future__ import annotations

import pytest

from gnomon.runtime.http import HttpSocket
from gnomon.runtime.world import AddressTaken


def test_the_errors_of_a_foreign_address_and_of_a_taken_port_differ() -> None:
    taken = HttpSocket("127.0.0.1", 0)
    try:
        with pytest.raises(AddressTaken, match=r"Address already in use: .*choose another port"):
            HttpSocket("127.0.0.1", taken.port)
    finally:
        taken.close()
    for host in ("192.0.2.1", "no such host"):
        with pytest.raises(AddressTaken, match="give an address of this machine"):
            HttpSocket(host, 0)
