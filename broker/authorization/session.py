"""The session of a client: its principal, and the listener and address of its connection. Pure."""

from __future__ import annotations

from typing import Final, NamedTuple

ANONYMOUS: Final = "User:ANONYMOUS"
"""The principal of every client while there is no authentication, by Kafka's name."""


class Session(NamedTuple):
    """The principal, listener, name and address of a client; every question to the authorizer names it."""

    principal: str
    listener: str
    """The name of the listener: one of Kafka's protocol (`PLAINTEXT` unless named otherwise), `NATIVE` or `ADMIN`."""
    client_id: str
    """The name that the client gives itself; it proves nothing."""
    address: str
    """The address of the client, without the port."""
