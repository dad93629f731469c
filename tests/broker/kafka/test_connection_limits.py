"""Limits on connections (numbers: invariants of `connection_limits`)."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from gnomon.broker.configs.config_key import address_limits
from gnomon.broker.kafka.connections.connection_limits import ConnectionLimits
from gnomon.testing.storms.kafka.embedded_broker import EmbeddedBroker, simulate_broker
from gnomon.wire.kafka.messages.cluster import ApiVersionsRequest


class Configs:
    """Values of broker keys."""

    def __init__(self, **values: str) -> None:
        self._values = {"max.connections": "100", "max.connections.per.ip": "2", "max.connections.per.ip.overrides": ""}
        self.set(**values)

    def set(self, **values: str) -> None:
        self._values |= {name.replace("_", "."): value for name, value in values.items()}

    def text(self, name: str) -> str:
        return self._values[name]

    def number(self, name: str) -> int:
        return int(self._values[name])


@dataclass(frozen=True)
class Peer:
    address: str
    number: int = 0


def limits(configs: Configs, connections_max: int = 100) -> ConnectionLimits:
    return ConnectionLimits(configs, connections_max)


def test_connections_of_one_address_are_limited_and_a_refused_one_does_not_count() -> None:
    """1."""
    taken = limits(Configs())
    first, second = Peer("a", 1), Peer("a", 2)
    assert taken.take(first) is None
    assert taken.take(second) is None
    for number in range(3, 6):
        refused = Peer("a", number)
        assert "max.connections.per.ip" in str(taken.take(refused))
        taken.give_back(refused)
    assert taken.take(Peer("b")) is None
    taken.give_back(first)
    taken.give_back(first)
    assert taken.take(Peer("a", 7)) is None
    assert taken.take(Peer("a", 8)) is not None


@pytest.mark.parametrize(
    ("configs", "connections_max", "name"), [("3", 100, "max.connections"), ("100", 3, "broker.connections_max")]
)
def test_connections_in_all_are_limited_by_the_lower_of_two_bounds(
    configs: str, connections_max: int, name: str
) -> None:
    """1."""
    taken = limits(Configs(max_connections=configs), connections_max)
    assert [taken.take(Peer(str(number))) for number in range(3)] == [None] * 3
    assert str(taken.take(Peer("3"))).endswith(f"see {name}")


def test_an_altered_limit_holds_for_new_connections_and_an_override_comes_first() -> None:
    """2."""
    configs = Configs()
    taken = limits(configs)
    peers = [Peer("[fd00::7]", number) for number in range(5)]
    assert taken.take(peers[0]) is None
    configs.set(max_connections_per_ip="1")
    assert taken.take(peers[1]) is not None
    configs.set(max_connections_per_ip_overrides="10.0.0.1:1, [fd00::7]:2")
    assert taken.take(peers[2]) is None
    assert taken.take(peers[3]) is not None


def test_overrides_are_addresses_with_numbers() -> None:
    assert address_limits("") == {}
    assert address_limits("10.0.0.7:100,[fd00::7]:20") == {"10.0.0.7": 100, "[fd00::7]": 20}
    for wrong in ("10.0.0.7", "10.0.0.7:", "10.0.0.7:-1", ":5", "10.0.0.7:many"):
        with pytest.raises(ValueError, match="no address and number"):
            address_limits(wrong)


def test_a_host_with_too_many_connections_is_refused_and_may_come_back_when_one_is_closed() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        clients = [await broker.connect() for _ in range(2)]
        raw = await broker.connect_raw()
        await raw.ended.wait()
        assert "max.connections.per.ip" in str(broker.events[-1][1]["reason"])
        assert (await clients[0].ask(ApiVersionsRequest(), 0)).error_code == 0
        clients[1].connection.close()
        await broker.simulation.sleep(1)
        assert (await (await broker.connect()).ask(ApiVersionsRequest(), 0)).error_code == 0

    simulate_broker(scenario, kafka={"max.connections.per.ip": "2"})
