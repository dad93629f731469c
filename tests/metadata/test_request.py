"""The refusals that need no store: the same for every metadata store."""

from __future__ import annotations

import pytest

from gnomon.metadata.client import Delete, DeletePrefix, Get, Operation, Put
from gnomon.metadata.request import Txn, refusal


@pytest.mark.parametrize("more", [(), (Put("a", b""),), (Delete("a"), Get("a"))])
def test_no_transaction_deletes_every_key(more: tuple[Operation, ...]) -> None:
    branch = (*more, DeletePrefix(""))
    for refused in (Txn((), branch, ()), Txn((), (), branch), Txn((), branch[::-1], ())):
        assert refusal(refused) == "it deletes every key: name a prefix"
    assert refusal(Txn((), (*more, DeletePrefix("b")), ())) is None
