"""The shadow's broker under frames that are malformed, stale or forged."""

from __future__ import annotations

import pytest
import trio
from shadowed_cluster import Shadowed, run

from gnomon.bookie.entry import encode_entry
from gnomon.bookie.ids import EntryId
from gnomon.client.errors import ERRORS, InvalidCall
from gnomon.client.protocol import SERVICE
from gnomon.log.entry import NO_ABORT, LeaderEpoch, Offset, pack_header
from gnomon.runtime.rpc.client import RpcClient
from gnomon.testing.storms.kafka.broker_cluster import NATIVE_PORT
from gnomon.testing.storms.kafka.wire_client import WireCluster

MALFORMED: list[list[object]] = [
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


def test_a_malformed_frame_ends_the_stream_with_a_reason_and_stops_no_broker() -> None:
    async def scenario(shadowed: Shadowed) -> None:
        await shadowed.start()

        async def forge(client: WireCluster) -> None:
            async with trio.open_nursery() as nursery:
                rpc = RpcClient(client.world, f"broker-{shadowed.reader}", NATIVE_PORT, SERVICE, ERRORS)
                nursery.start_soon(rpc.run)
                for args in MALFORMED:
                    async with rpc.stream("open_replication") as stream:
                        assert await anext(stream) == [0, []]
                        rpc.tell("replicate", *args)
                        with pytest.raises(InvalidCall, match="a frame is malformed"):
                            await anext(stream)
                with pytest.raises(InvalidCall, match="open it"):
                    await rpc.call("open_replication")
                with pytest.raises(InvalidCall, match="first"):
                    await rpc.call("replicate", 1, [])
                nursery.cancel_scope.cancel()

        await shadowed.cluster.run_client("forger", forge)

    run(10, scenario)


def test_forged_and_stale_ids_are_refused_by_name_and_change_nothing() -> None:
    async def scenario(shadowed: Shadowed) -> None:
        await shadowed.start()
        await shadowed.trickle("some", 0.1)
        log = await shadowed.shadow.opened()
        assert log is not None
        await shadowed.clock.sleep(2)
        copy = shadowed.cluster.serving[shadowed.owner].broker.topics.find("copy").id.bytes
        ledger = shadowed.shadow.segments[-1].ledger
        session = ledger.record.session
        short = encode_entry(ledger.id, EntryId(10), session, EntryId(9), 0, [b"short"])

        def entry_from(base_offset: int, kind: int = 1) -> bytes:
            header = pack_header(kind, LeaderEpoch(1), Offset(base_offset), Offset(21), Offset(21), 0, 0, NO_ABORT)
            return encode_entry(ledger.id, EntryId(10), session, EntryId(9), 0, [header, b"records"])

        def message(entry: int, confirmed: int, *stored: bytes, said: int = session, segment: int = 0) -> list[object]:
            return [[copy], 0, [[segment, said, entry, entry, 2 * entry, 2 * entry + 1, 10, confirmed]], [*stored]]

        async def forge(client: WireCluster) -> None:
            async with trio.open_nursery() as nursery:
                rpc = RpcClient(client.world, f"broker-{shadowed.reader}", NATIVE_PORT, SERVICE, ERRORS)
                nursery.start_soon(rpc.run)
                async with rpc.stream("open_replication") as stream:
                    await anext(stream)
                    for frame, (item, why) in enumerate(
                        [
                            (message(20, 12), "not confirmed"),
                            (message(12, 12, said=session - 1), "is over"),
                            (message(10, 10, short), "has 5 bytes, the header of a partition's entry has 54"),
                            (message(10, 10, entry_from(-1)), "has a header that no entry of it has"),
                            (message(10, 10, entry_from(22)), "has a header that no entry of it has"),
                            (
                                message(10, 10, entry_from(20, kind=77)),
                                "is of kind 77, which this gnomon does not read",
                            ),
                            ([[bytes(16)], 0, [], []], "does not know this shadow"),
                            ([[copy], 7, [], []], "does not know this shadow"),
                        ],
                        1,
                    ):
                        rpc.tell("replicate", frame, [item])
                        number, ((_, _, _, text),) = await anext(stream)
                        assert number == frame
                        assert why in text
                    rpc.tell("replicate", 9, [message(1000, 1000), message(0, 0, segment=5000)])
                    assert await anext(stream) == [9, []], "the bookies are asked whether these entries exist"
                nursery.cancel_scope.cancel()

        await shadowed.cluster.run_client("forger", forge)
        await shadowed.clock.sleep(1)
        assert log.high_watermark == 10
        assert shadowed.shadow.segments[-1].ledger.last_add_confirmed == 9
        await shadowed.trickle("more", 0.1)
        await shadowed.caught_up(20, 1)
        assert await shadowed.read_all("copy") == await shadowed.read_all("orders")

    run(11, scenario)
