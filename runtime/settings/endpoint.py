"""Addresses in the form of Kafka's `listeners`: NAME://HOST:PORT. Pure.

1. Names are compared without regard to case, and are unique in a list.
2. An address to listen on may have no host, which means all addresses; an advertised one has a host and a port that
   clients can connect to.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

PORT_MAX: Final = 65535
EVERY_ADDRESS: Final = ("0.0.0.0", "::")
"""Hosts that listen on all addresses: other machines cannot connect to such a name."""
PLAINTEXT: Final = "PLAINTEXT"
"""The name of the listener that is there unless others are given, and the only protocol that is built."""
ENDPOINTS_MAX: Final = 16
"""Each broker's registration holds the addresses of its listeners."""

_ENDPOINT = re.compile(r"([A-Za-z0-9_.-]{1,100})://\[?([0-9A-Za-z.:%_-]*)\]?:([0-9]{1,5})")


class Endpoint(NamedTuple):
    """One address, and the name of its listener."""

    name: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


def listening(text: str) -> list[Endpoint]:
    """The elements of `listeners`.

    Raises:
        ValueError: the text has another form.
    """
    return [one if one.host else one._replace(host=EVERY_ADDRESS[0]) for one in _endpoints(text)]


def advertising(text: str) -> list[Endpoint]:
    """The elements of `advertised.listeners`.

    Raises:
        ValueError: the text has another form, or an address is not one to connect to.
    """
    found = _endpoints(text)
    for one in found:
        if one.host in ("", *EVERY_ADDRESS):
            raise ValueError(f"{one} is no address that clients can connect to: give a host name or an address")
        if one.port == 0:
            raise ValueError(f"{one} is no address that clients can connect to: give the port that they use")
    return found


def _endpoints(text: str) -> list[Endpoint]:
    found: list[Endpoint] = []
    for item in map(str.strip, text.split(",")):
        matched = _ENDPOINT.fullmatch(item)
        if matched is None:
            raise ValueError(f"{item!r} is no address of the form NAME://HOST:PORT[,NAME://HOST:PORT…]")
        name, host, port = matched[1].upper(), matched[2], int(matched[3])
        if port > PORT_MAX:
            raise ValueError(f"port {port} of {name} is larger than {PORT_MAX}")
        if name in {one.name for one in found}:
            raise ValueError(f"listener {name} is named twice")
        found.append(Endpoint(name, host, port))
    if len(found) > ENDPOINTS_MAX:
        raise ValueError(f"{len(found)} listeners: at most {ENDPOINTS_MAX} are possible")
    return found
