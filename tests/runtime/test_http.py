from __future__ import annotations

import socket

import pytest

from gnomon.runtime import http
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


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="this system has no such limit")
def test_a_client_that_takes_nothing_of_its_answer_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "UNTAKEN_SECONDS_MAX", 0.2)
    served = HttpSocket("127.0.0.1", 0)
    served._socket.setblocking(True)
    with (
        socket.create_connection(("127.0.0.1", served.port)),
        served._socket.accept()[0] as accepted,
        pytest.raises(TimeoutError),
    ):
        accepted.sendall(b"x" * (64 << 20))  # more than the buffers of both sides
    served.close()
