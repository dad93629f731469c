"""Addresses of brokers, as users write them. Pure."""

from __future__ import annotations

from typing import TypeAlias

Address: TypeAlias = tuple[str, int]
"""Host and port."""


def parse_addresses(text: str) -> list[Address]:
    """Parses `HOST:PORT[,HOST:PORT…]`; an IPv6 host may be in brackets.

    Raises:
        ValueError: the text has another form.
    """
    addresses = []
    for each in text.split(","):
        host, colon, port = each.strip().rpartition(":")
        if not (colon and host and port.isdecimal() and 0 < int(port) < 65536):
            raise ValueError(f"address {text!r}: give HOST:PORT[,HOST:PORT…] of the brokers' native ports")
        addresses.append((host.removeprefix("[").removesuffix("]"), int(port)))
    return addresses
