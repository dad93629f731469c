from __future__ import annotations

import trio

from gnomon.broker.configs.broker_configs import BrokerConfigs
from gnomon.broker.configs.config_key import ConfigSource
from gnomon.broker.configs.stored_configs import StoredConfigs
from gnomon.testing.simulation.simulation import Simulation, simulate
from gnomon.testing.storms.ledgers.ledger_cluster import LedgerClient, LedgerCluster

NAME = "log.retention.ms"
FOR_ALL = ConfigSource.DYNAMIC_DEFAULT_BROKER


def test_an_older_change_by_another_broker_does_not_replace_this_brokers_newer_one() -> None:
    async def scenario(simulation: Simulation) -> None:
        cluster = LedgerCluster(simulation, bookies=1)
        await cluster.start()

        async def work(client: LedgerClient) -> None:
            seen: list[str | None] = []
            mine, others = BrokerConfigs({}), BrokerConfigs({})
            world = client.world

            def stored(configs: BrokerConfigs, number: int) -> StoredConfigs:
                return StoredConfigs(
                    client.metadata, world.clock, world.logger, configs, number, lambda: seen.append(mine.text(NAME))
                )

            here, there = stored(mine, 1), stored(others, 2)
            await here.follower.load()
            await there.change(FOR_ALL, lambda layer: {**layer, NAME: "1000"})
            await here.change(FOR_ALL, lambda layer: {**layer, NAME: "2000"})
            seen.clear()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(here.follower.run)
                await there.change(ConfigSource.DYNAMIC_BROKER, lambda layer: {NAME: "3000"})
                last = await client.metadata.range("configs/")
                await here.follower.reached(last.items[0].mod_revision)
                await here.follower.reached(last.items[1].mod_revision)
                nursery.cancel_scope.cancel()
            assert len(seen) > 2
            assert set(seen) == {"2000"}

        with trio.fail_after(60):
            await cluster.run_client("client", work)

    simulate(1, scenario)
