"""Each broker shows the address for native clients as a config that cannot be set."""

from __future__ import annotations

import pytest

from gnomon.broker.configs.broker_configs import NATIVE_ADVERTISED, BrokerConfigs
from gnomon.broker.configs.config_key import InvalidConfig
from gnomon.broker.node import host_and_port
from gnomon.testing.simulation.simulation import Simulation, simulate
from gnomon.testing.storms.kafka.broker_cluster import NATIVE_PORT, BrokerCluster
from gnomon.testing.storms.kafka.embedded_broker import HOST, BrokerClient, EmbeddedBroker, simulate_broker
from gnomon.testing.storms.kafka.wire_client import WireCluster, WireConnection
from gnomon.wire.kafka.errors import ErrorCode

BROKER = 4
SET = 0


def test_a_broker_shows_the_address_that_native_clients_connect_to() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        (shown,) = (await client.describe_configs(BROKER, "1", [NATIVE_ADVERTISED])).configs
        assert (shown.value, shown.read_only) == (f"{HOST}:{NATIVE_PORT}", True)
        code, text = await client.alter_configs(BROKER, "1", (NATIVE_ADVERTISED, SET, "elsewhere:1"))
        assert code == ErrorCode.INVALID_REQUEST
        assert "broker.native_advertised_host" in (text or "")

    simulate_broker(scenario)


def test_each_broker_of_a_cluster_shows_its_own_address() -> None:
    async def scenario(simulation: Simulation) -> None:
        cluster = BrokerCluster(simulation, 2)
        await cluster.start()

        async def work(client: WireCluster) -> None:
            for number in cluster.brokers:
                connection = BrokerClient(await WireConnection.open(client.world, f"broker-{number}", 9092))
                (shown,) = (await connection.describe_configs(BROKER, str(number), [NATIVE_ADVERTISED])).configs
                assert shown.value == f"broker-{number}:{NATIVE_PORT}"

        await cluster.run_client("client", work)

    simulate(1, scenario)


def test_the_address_is_not_taken_from_kafkas_settings() -> None:
    with pytest.raises(InvalidConfig, match=r"follows from another setting: set broker\.native_advertised_host"):
        BrokerConfigs({NATIVE_ADVERTISED: "elsewhere:1"})


@pytest.mark.parametrize(("host", "shown"), [("10.0.0.1", "10.0.0.1:6650"), ("fd00::7", "[fd00::7]:6650")])
def test_a_client_can_parse_the_address(host: str, shown: str) -> None:
    assert host_and_port(host, 6650) == shown
