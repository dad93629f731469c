"""What a shadow's broker makes of what it is told, be it senseless, stale or made up."""

from __future__ import annotations

import pytest
import trio
from shadowed_cluster import Shadowed, run

from gnomon.bookie.entry import encode_entry
from gnomon.bookie.ids import EntryId
from gnomon.broker.native.errors import ERRORS, SERVICE, InvalidCall
from gnomon.broker.partition.entry import LeaderEpoch, Offset, pack_header
from gnomon.broker.shadow.hearing import unpacked
from gnomon.runtime.rpc_client import RpcClient
from gnomon.testing.broker_cluster import NATIVE_PORT
from gnomon.testing.wire_client import KafkaCluster

SENSELESS: list[list[object]] = [
    [],
    ["one", []],
    [1, "nothing"],
    [1, [[]]],
    [1, [["copy", 0, [], []]]],
    [1, [[[b"short"], 0, [], []]]],
    [1, [[[bytes(16)], -1, [], []]]],
    [1, [[[bytes(16)], 0, [[0, 1, 0, 0]], []]]],
    [1, [[[bytes(16)], 0, [[0, 1, 5, 4, 0, 0, 0, 4]], []]]],
    [1, [[[bytes(16)], 0, [[0, 1, 0, 1 << 63, 0, 0, 0, 4]], []]]],
    [1, [[[bytes(16)], 0, [], ["text"]]]],
    [1, [[[bytes(16)], 0, [[0, 1, 1, 1, 1, 2, 10, 1]] * 65, []]]],
]


def test_what_makes_no_sense_ends_the_stream_with_a_reason_and_stops_nobody() -> None:
    async def scenario(shadowed: Shadowed) -> None:
        await shadowed.start()

        async def lie(client: KafkaCluster) -> None:
            async with trio.open_nursery() as nursery:
                rpc = RpcClient(client.world, f"broker-{shadowed.reader}", NATIVE_PORT, SERVICE, ERRORS)
                nursery.start_soon(rpc.run)
                for args in SENSELESS:
                    async with rpc.stream("replicate") as stream:
                        assert await anext(stream) == [0, []]
                        rpc.tell("told", *args)
                        with pytest.raises(InvalidCall, match="makes no sense"):
                            await anext(stream)
                with pytest.raises(InvalidCall, match="open it"):
                    await rpc.call("replicate")
                with pytest.raises(InvalidCall, match="first"):
                    await rpc.call("told", 1, [])
                nursery.cancel_scope.cancel()

        await shadowed.cluster.run_client("liar", lie)

    run(10, scenario)


def test_made_up_and_stale_ids_are_refused_by_name_and_change_nothing() -> None:
    async def scenario(shadowed: Shadowed) -> None:
        await shadowed.start()
        await shadowed.trickle("some", 0.1)
        log = await shadowed.shadow.opened()
        assert log is not None
        await shadowed.clock.sleep(2)
        copy = shadowed.cluster.serving[shadowed.owner].broker.find_topic("copy").id.bytes
        ledger = shadowed.shadow.segments[-1].ledger
        session = ledger.record.session
        short = encode_entry(ledger.id, EntryId(10), session, EntryId(9), 0, [b"short"])

        def entry_from(base_offset: int, kind: int = 1) -> bytes:
            header = pack_header(kind, LeaderEpoch(1), Offset(base_offset), Offset(21), 0, 0)
            return encode_entry(ledger.id, EntryId(10), session, EntryId(9), 0, [header, b"records"])

        def told(entry: int, confirmed: int, *stored: bytes, said: int = session, segment: int = 0) -> list[object]:
            return [[copy], 0, [[segment, said, entry, entry, 2 * entry, 2 * entry + 1, 10, confirmed]], [*stored]]

        async def lie(client: KafkaCluster) -> None:
            async with trio.open_nursery() as nursery:
                rpc = RpcClient(client.world, f"broker-{shadowed.reader}", NATIVE_PORT, SERVICE, ERRORS)
                nursery.start_soon(rpc.run)
                async with rpc.stream("replicate") as stream:
                    await anext(stream)
                    for frame, (item, why) in enumerate(
                        [
                            (told(20, 12), "not confirmed"),
                            (told(12, 12, said=session - 1), "is over"),
                            (told(10, 10, short), "none of a partition"),
                            (told(10, 10, entry_from(-1)), "says what no entry of it says"),
                            (told(10, 10, entry_from(22)), "says what no entry of it says"),
                            (told(10, 10, entry_from(20, kind=77)), "says what no entry of it says"),
                            ([[bytes(16)], 0, [], []], "not heard of"),
                            ([[copy], 7, [], []], "not heard of"),
                        ],
                        1,
                    ):
                        rpc.tell("told", frame, [item])
                        number, ((_, _, _, text),) = await anext(stream)
                        assert number == frame
                        assert why in text
                    rpc.tell("told", 9, [told(1000, 1000), told(0, 0, segment=5000)])
                    assert await anext(stream) == [9, []], "whether there is such an entry its bookies are asked"
                nursery.cancel_scope.cancel()

        await shadowed.cluster.run_client("liar", lie)
        await shadowed.clock.sleep(1)
        assert log.high_watermark == 10
        assert shadowed.shadow.segments[-1].ledger.last_add_confirmed == 9
        await shadowed.trickle("more", 0.1)
        await shadowed.caught_up(20, 1)
        assert await shadowed.read_all("copy") == await shadowed.read_all("orders")

    run(11, scenario)


def test_a_shadow_that_a_frame_names_often_hears_it_once() -> None:
    shadows, _, told = unpacked([[bytes(16)] * 1000, 0, [[0, 1, 1, 1, 1, 2, 10, 1]], []])
    assert (list(shadows), len(told)) == ([bytes(16)], 1)
