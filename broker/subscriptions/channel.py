"""A native client's connection, as a dispatcher uses it. Pure."""

from __future__ import annotations

from typing import Protocol, TypeVar


class Channel(Protocol):
    """One connection; a dispatcher groups its deliveries by channel."""

    ready: bool
    """Whether the connection takes deliveries now."""


ChannelT = TypeVar("ChannelT", bound=Channel)
