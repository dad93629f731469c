"""Functions of the product, wrapped from outside by those that look inside: the product has no trace of it.

with ExitStack() as stack:
    patch = Patches(stack)
    patch(Ledger, "append", followed)    # followed(before) is called in its place
    ...
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from typing import Any, TypeAlias

from gnomon.metadata.client import Operation, TxnResult
from gnomon.metadata.embedded import EmbeddedMetadata
from gnomon.metadata.state import State

Told: TypeAlias = Callable[[Sequence[Operation], TxnResult, State], None]
"""Called with what a transaction did, its result, and the keys as they are by now."""


class Patches:
    """Wraps functions of the product until the stack is closed."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack

    def __call__(self, owner: Any, name: str, wrap: Callable[[Any], Any]) -> None:
        before = getattr(owner, name)
        setattr(owner, name, wrap(before))
        self._stack.callback(setattr, owner, name, before)


def follow_transactions(patch: Patches, told: Told) -> None:
    """Tells of each transaction on the metadata that took effect with its `then`.

    Of one whose service died before it answered, or whose caller was cancelled, nobody is told: the keys know.
    """

    def txn(before: Callable[..., Awaitable[TxnResult]]) -> Any:
        async def followed(metadata: EmbeddedMetadata, compare: Any, then: Any, otherwise: Any = ()) -> TxnResult:
            result = await before(metadata, compare, then, otherwise)
            if result.succeeded:
                told(then, result, metadata._state)
            return result

        return followed

    patch(EmbeddedMetadata, "txn", txn)
