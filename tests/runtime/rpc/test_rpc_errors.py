"""Errors of a method, as its caller gets them."""

from __future__ import annotations

import pytest
from rpc_bench import ERRORS, Bench, Fenced, Missing, run

from gnomon.runtime.rpc.call import Call
from gnomon.runtime.rpc.errors import RpcFailed


class MissingKey(Missing):
    pass


def test_errors_of_the_table_reach_the_caller_with_their_type() -> None:
    async def main(bench: Bench) -> None:
        def missing(call: Call) -> None:
            raise MissingKey("no key 'a'")

        def strange(call: Call) -> None:
            call.fail(OSError("the disk is gone"))

        bench.methods |= {"missing": missing, "strange": strange}
        client = bench.client(await bench.listen())
        with pytest.raises(Fenced, match="ledger 7 is fenced by session 9") as fenced:
            await client.call("fence", 7, 9)
        assert (fenced.value.ledger, fenced.value.session) == (7, 9)
        with pytest.raises(Missing, match="no key 'a'"):
            await client.call("missing")
        with pytest.raises(RpcFailed, match="OSError: the disk is gone"):
            await client.call("strange")
        with pytest.raises(RpcFailed, match="service 'test' has no method 'absent'"):
            await client.call("absent")
        with pytest.raises(RpcFailed, match=r"has no method 'a{199}: is the caller a newer gnomon") as unknown:
            await client.call("a" * 1000)
        assert len(str(unknown.value)) < 300

    run(main)


def test_an_error_of_another_type_or_with_other_fields_keeps_its_text() -> None:
    for fields in ([1], [1, 2, 3]):
        assert repr(ERRORS.decode("Fenced", fields, "text")) == repr(RpcFailed("Fenced: text"))
    assert repr(ERRORS.decode("Newer", [], "text")) == repr(RpcFailed("Newer: text"))
