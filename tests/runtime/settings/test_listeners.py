from __future__ import annotations

import re

import pytest

from gnomon.runtime.settings.listeners import KafkaListener, kafka_listeners, protocols
from gnomon.runtime.settings.settings import BrokerSettings

HERE = BrokerSettings(kafka_host="0.0.0.0", kafka_port=9092, advertised_host="broker.example")
INSIDE_AND_OUTSIDE = {
    "listeners": "INSIDE://10.0.0.1:9092, outside://:19092",
    "advertised.listeners": "OUTSIDE://public.example:32000",
    "listener.security.protocol.map": "inside:plaintext,OUTSIDE:PLAINTEXT",
}


def test_without_listeners_the_section_broker_gives_one_named_plaintext() -> None:  # invariant 2
    assert kafka_listeners(HERE, {}) == (KafkaListener("PLAINTEXT", "0.0.0.0", 9092, "broker.example"),)


def test_each_listener_has_an_address_to_listen_on_and_an_advertised_one() -> None:  # invariant 1
    inside, outside = kafka_listeners(BrokerSettings(), INSIDE_AND_OUTSIDE)
    assert inside == KafkaListener("INSIDE", "10.0.0.1", 9092)
    assert outside == KafkaListener("OUTSIDE", "0.0.0.0", 19092, "public.example", 32000)
    assert inside.bound("10.0.0.1", 9092).advertised == "INSIDE://10.0.0.1:9092"
    assert outside.bound("0.0.0.0", 19092).address == "OUTSIDE://0.0.0.0:19092"
    assert outside.bound("0.0.0.0", 19092).advertised == "OUTSIDE://public.example:32000"


def test_a_free_port_is_advertised_once_it_is_bound() -> None:
    assert KafkaListener("L", "::1", 0).bound("::1", 4711).advertised == "L://[::1]:4711"


def test_an_advertised_address_alone_gives_the_one_listener_another_port() -> None:
    (only,) = kafka_listeners(BrokerSettings(), {"advertised.listeners": "PLAINTEXT://localhost:19092"})
    assert only == KafkaListener("PLAINTEXT", "127.0.0.1", 9092, "localhost", 19092)


@pytest.mark.parametrize(
    ("kafka", "problem"),
    [
        ({"listeners": "SSL://:9093"}, "listener SSL asks for SSL: TLS and SASL are not built yet"),
        (
            {"listeners": "L://:1", "listener.security.protocol.map": "L:SASL_PLAINTEXT"},
            "listener L asks for SASL_PLAINTEXT: TLS and SASL",
        ),
        ({"listeners": "INSIDE://:1"}, "listener INSIDE has no protocol: add INSIDE:PLAINTEXT to listener.security"),
        ({"listener.security.protocol.map": "L:PLAINTEXT"}, "listener PLAINTEXT has no protocol"),
        ({"advertised.listeners": "X://h:1"}, "advertised.listeners names X, which listeners does not: it has PLAIN"),
    ],
)
def test_listeners_that_cannot_be_served_are_refused_in_words(kafka: dict[str, str], problem: str) -> None:
    with pytest.raises(ValueError, match=re.escape(problem)):  # invariant 3
        kafka_listeners(BrokerSettings(), kafka)


def test_the_map_takes_the_names_of_kafkas_protocols_only() -> None:
    assert protocols("a:SSL, B:sasl_ssl") == {"A": "SSL", "B": "SASL_SSL"}
    for text, problem in [("A", "no NAME:PROTOCOL"), ("A:TLS", "none of PLAINTEXT"), ("A:SSL,a:SSL", "named twice")]:
        with pytest.raises(ValueError, match=problem):
            protocols(text)
