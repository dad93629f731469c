"""Errors of calls between processes, and the encoding of a service's own errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gnomon.runtime.world import Unreachable, WorldError


class RpcFailed(WorldError):
    """The other side answered with an error that this side has no class for; only its text is known."""


class NotSent(Unreachable):
    """The call never left this process, or was refused unread: it certainly had no effect."""


class RpcRefused(NotSent):
    """The other side is not the expected one: another service, cluster or version; the text names both sides."""


class ErrorTable:
    """The errors of one service, by name, on both sides.

    Args:
        fields: for each class the attributes from which it is rebuilt: its constructor's arguments, in order, as
            msgpack values. A class without any is rebuilt from its text.
    """

    def __init__(self, fields: Mapping[type[Exception], Sequence[str]]) -> None:
        self.classes = tuple(fields)
        """The errors that a method may raise instead of calling `fail`."""
        self._fields = {kind: tuple(names) for kind, names in fields.items()}
        self._by_name = {kind.__name__: kind for kind in fields}
        assert len(self._by_name) == len(self._fields), "two errors of one name"

    def encode(self, error: Exception) -> tuple[str, list[Any], str]:
        """Name, fields and text; an error outside the table is encoded as its nearest base in the table, or by its
        text."""
        for kind in type(error).__mro__:
            names = self._fields.get(kind)
            if names is not None:
                return kind.__name__, [getattr(error, name) for name in names], str(error)
        text = str(error) if isinstance(error, RpcFailed) else f"{type(error).__name__}: {error}"
        return RpcFailed.__name__, [], text

    def decode(self, name: str, fields: list[Any], text: str) -> Exception:
        """The error that was encoded, or RpcFailed with its text."""
        kind = self._by_name.get(name)
        if kind is None:
            return RpcFailed(text if name == RpcFailed.__name__ else f"{name}: {text}")
        if not self._fields[kind]:
            return kind(text)
        try:
            return kind(*fields)
        except (TypeError, ValueError):  # from another version
            return RpcFailed(f"{name}: {text}")
