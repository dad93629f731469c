"""Tables over HTTP at a real broker process, beside the native client."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

import gnomon
from gnomon.testing import KafkaBroker

SETTINGS = "/kv/v1/settings"
WRITERS = 20


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    with KafkaBroker() as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        admin.create_topics([NewTopic("settings", 1, config={"gnomon.view": "kv"})])["settings"].result(30)
        yield broker


def connect(broker: KafkaBroker) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(broker.admin_host, broker.admin_port, timeout=30)


def test_of_20_concurrent_puts_of_an_absent_key_one_is_done(broker: KafkaBroker) -> None:
    def put(number: int) -> tuple[int, str | None, int]:
        connection = connect(broker)
        connection.request("PUT", f"{SETTINGS}/lock", b"%d" % number, {"If-None-Match": "*"})
        response = connection.getresponse()
        response.read()
        return response.status, response.getheader("ETag"), number

    with ThreadPoolExecutor(WRITERS) as threads:
        answers = list(threads.map(put, range(WRITERS)))
    assert sorted(status for status, _, _ in answers) == [204] + [412] * (WRITERS - 1)
    assert len({tag for _, tag, _ in answers}) == 1, "a refusal shows the entry that is there"
    (winner,) = (number for status, _, number in answers if status == 204)
    with gnomon.connect_blocking(broker.native_address) as client:
        entry = client.table("settings").get(b"lock")
        assert entry is not None
        assert (entry.value, entry.version) == (b"%d" % winner, 1)


def test_keys_of_any_bytes_and_head_requests_pass_a_real_server(broker: KafkaBroker) -> None:
    connection = connect(broker)
    for method, body in (("PUT", b"\x00\xff"), ("GET", None), ("HEAD", None), ("DELETE", None), ("GET", None)):
        connection.request(method, f"{SETTINGS}/%00a%2F%FF", body)
        response = connection.getresponse()
        found = response.read()
        if method == "GET" and response.status == 200:
            assert found == b"\x00\xff"
        if method == "HEAD":
            assert (response.status, response.getheader("Content-Length"), found) == (200, "2", b"")
    assert response.status == 404


def test_a_watch_is_sent_as_it_happens(broker: KafkaBroker) -> None:
    writer, reader = connect(broker), connect(broker)
    reader.request("GET", f"{SETTINGS}?watch&initial=false&prefix=watched")
    response = reader.getresponse()
    assert (response.status, response.getheader("Content-Type")) == (200, "application/jsonl")
    for number in range(3):
        writer.request("PUT", f"{SETTINGS}/watched", b"%d" % number)
        put = writer.getresponse()
        put.read()
        assert str(json.loads(response.readline())["revision"]) == put.getheader("Gnomon-Revision")
    reader.close()
