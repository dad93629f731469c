"""Errors of calls between processes, and how a service's own errors cross the wire."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gnomon.runtime.world import Unreachable, WorldError


class RpcFailed(WorldError):
    """The other side answered with an error that this side has no class for; its text is all there is."""


class NotSent(Unreachable):
    """The call never left this process, or was turned away unread: it had no effect, for certain."""


class RpcRefused(NotSent):
    """The other side is not the one that was meant: another service, cluster or version; the text says both sides."""


class ErrorTable:
    """The errors of one service, by name, on both sides.

    Args:
        fields: for each class the attributes from which it is rebuilt: its constructor's arguments, in their order, as
            msgpack has them. A class without any is rebuilt from its text.
    """

    def __init__(self, fields: Mapping[type[Exception], Sequence[str]]) -> None:
        self.classes = tuple(fields)
        """What a method may raise instead of calling `fail`."""
        self._fields = {kind: tuple(names) for kind, names in fields.items()}
        self._by_name = {kind.__name__: kind for kind in fields}
        assert len(self._by_name) == len(self._fields), "two errors of one name"

    def encode(self, error: Exception) -> tuple[str, list[Any], str]:
        """Name, fields and text; an error that is not in the table goes by the nearest base that is, or by its text."""
        for kind in type(error).__mro__:
            names = self._fields.get(kind)
            if names is not None:
                return kind.__name__, [getattr(error, name) for name in names], str(error)
        text = str(error) if isinstance(error, RpcFailed) else f"{type(error).__name__}: {error}"
        return RpcFailed.__name__, [], text

    def decode(self, name: str, fields: list[Any], text: str) -> Exception:
        """The error that `encode` was given, or RpcFailed with its text."""
        kind = self._by_name.get(name)
        if kind is None:
            return RpcFailed(text if name == RpcFailed.__name__ else f"{name}: {text}")
        if not self._fields[kind]:
            return kind(text)
        try:
            return kind(*fields)
        except (TypeError, ValueError):  # another version's
            return RpcFailed(f"{name}: {text}")
