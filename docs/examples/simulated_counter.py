from contextlib import suppress
from pathlib import Path

import trio

from gnomon.runtime.rpc.client import RpcClient
from gnomon.runtime.rpc.errors import ErrorTable
from gnomon.runtime.rpc.server import RpcServer
from gnomon.runtime.world import Durability, WorldError
from gnomon.testing.simulation import Fault, Storm, seeds_to_find, sweep


async def server(world, durability):
    store = world.disk.open_environment(Path("/counter"), databases=["added"], map_bytes=2**24, durability=durability)
    added = store.databases["added"]

    def add(call):  # a repeated addition has the same key, so it is counted once
        store.submit(
            lambda transaction: transaction.put(call.args[0], b"", db=added) and transaction.stat(added)["entries"],
            lambda total, error: call.fail(error) if error else call.reply(total),  # once it is durable
        )

    rpc = RpcServer(world, "counter", {"add": add}, ErrorTable({}), world.logger)
    await rpc.listen("", 7000)
    await rpc.run()


async def client(world, totals):
    rpc = RpcClient(world, "server", 7000, "counter", ErrorTable({}), call_seconds=2.0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rpc.run)
        while len(totals) < 50:
            with suppress(WorldError):  # refused, or its outcome is unknown: the same addition is sent again
                totals.append(await rpc.call("add", b"addition %d" % len(totals)))
            await world.clock.sleep(0.2)


async def scenario(simulation, durability=Durability.SYNCED):
    machine, totals = simulation.machine("server"), []
    machine.start(lambda world: server(world, durability))
    simulation.machine("client").start(lambda world: client(world, totals))
    await (storm := Storm(simulation, [machine])).rage(seconds=10)  # ten virtual seconds of faults
    storm.calm()
    await simulation.sleep(60)  # time enough for every addition that is left
    assert totals == list(range(1, 51)), f"an addition was lost, or counted twice: {totals}"


def test_no_acknowledged_addition_is_lost_or_counted_twice():
    sweep(scenario, range(50)).coverage.assert_all_counted(fault.counter for fault in Fault)
    assert seeds_to_find(lambda simulation: scenario(simulation, Durability.NONE), range(50))  # the planted mistake
