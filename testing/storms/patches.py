"""Wraps functions of the product for checkers that look inside the product: it has no hooks for them.

with ExitStack() as stack:
    patch = Patches(stack)
    patch(Ledger, "append", followed)    # replaced by followed(before)
    ...
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from typing import Any, TypeAlias

from gnomon.metadata.client import Operation, TxnOutcome
from gnomon.metadata.embedded import EmbeddedMetadata
from gnomon.metadata.state import State

TransactionFollower: TypeAlias = Callable[[Sequence[Operation], TxnOutcome, State], None]
"""Called with the operations of a transaction, its result, and the current state of the keys."""


class Patches:
    """Wraps functions of the product until the stack is closed."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack

    def __call__(self, owner: Any, name: str, wrap: Callable[[Any], Any]) -> None:
        before = getattr(owner, name)
        setattr(owner, name, wrap(before))
        self._stack.callback(setattr, owner, name, before)


def follow_transactions(patch: Patches, notify: TransactionFollower) -> None:
    """Calls `notify` with each transaction on the metadata whose `then` took effect.

    A transaction is not reported if the service died before it answered, or if its caller was cancelled; the state of
    the keys shows it.
    """

    def txn(before: Callable[..., Awaitable[TxnOutcome]]) -> Any:
        async def followed(metadata: EmbeddedMetadata, compare: Any, then: Any, otherwise: Any = ()) -> TxnOutcome:
            result = await before(metadata, compare, then, otherwise)
            if result.succeeded:
                notify(then, result, metadata._state)
            return result

        return followed

    patch(EmbeddedMetadata, "txn", txn)
