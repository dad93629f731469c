"""Many shadows with the metadata in etcd: a real broker, a real etcd and a real Kafka client."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from etcd_needed import etcd_or_skip

from gnomon.broker.topics.cast import SHADOW_SOURCE
from gnomon.log.topic import Topic, topic_key
from gnomon.testing.daemon import Daemon
from gnomon.testing.etcd_server import EtcdServer

ANSWER_SECONDS = 60


@contextmanager
def broker_on(etcd: EtcdServer, tmp_path: Path) -> Iterator[tuple[AdminClient, str]]:
    """A client of a broker, and the address of the broker's admin API."""
    at = ("--metadata", f"etcd://{etcd.endpoint}", "--kafka-port", "0", "--native-port", "0", "--admin-port", "0")
    daemon = Daemon(["broker", "--id", "1", *at], tmp_path / "broker.log").wait_ready()
    try:
        yield AdminClient({"bootstrap.servers": daemon.ready["kafka"]}), daemon.ready["admin"]
    finally:
        daemon.kill()


@pytest.fixture
def started(tmp_path: Path) -> Iterator[list[EtcdServer]]:
    servers: list[EtcdServer] = []
    yield servers
    for server in servers:
        server.kill()


def start_etcd(tmp_path: Path, started: list[EtcdServer], options: Sequence[str] = ()) -> EtcdServer:
    etcd_or_skip()
    etcd = EtcdServer(tmp_path / "etcd", options=options)
    started.append(etcd)
    etcd.start()
    etcd.wait_ready()
    return etcd


def refused(change: dict[str, Future[None]]) -> str:
    """The error text of a change that is refused with a final error."""
    (future,) = change.values()
    with pytest.raises(KafkaException) as raised:
        future.result(ANSWER_SECONDS)
    error: KafkaError = raised.value.args[0]
    assert error.code() == KafkaError.POLICY_VIOLATION, error
    return error.str()


def test_a_source_with_300_shadows_grows_on_an_etcd(tmp_path: Path, started: list[EtcdServer]) -> None:
    etcd = start_etcd(tmp_path, started)
    with broker_on(etcd, tmp_path) as (admin, _):
        admin.create_topics([NewTopic("orders", 1)])["orders"].result(ANSWER_SECONDS)
        config = {SHADOW_SOURCE: "orders"}
        new = [NewTopic(f"copy-{number}", -1, -1, config=config) for number in range(300)]
        for created in admin.create_topics(new, request_timeout=ANSWER_SECONDS).values():
            created.result(ANSWER_SECONDS)
        admin.create_partitions([NewPartitions("orders", 3)])["orders"].result(ANSWER_SECONDS)
        topics = admin.list_topics(timeout=ANSWER_SECONDS).topics
        found = {name: len(topic.partitions) for name, topic in topics.items() if not name.startswith("__")}
        assert found == {"orders": 3, **{topic.topic: 3 for topic in new}}


def test_a_change_that_etcd_refuses_is_refused_with_its_reason(tmp_path: Path, started: list[EtcdServer]) -> None:
    etcd = start_etcd(tmp_path, started, ["--max-txn-ops", "1"])
    record = Topic("orders", UUID(int=7), 1, {}).encode()
    key = f"gnomon/default/{topic_key('orders')}".encode()
    etcd.ask("kv/put", {"key": b64encode(key).decode(), "value": b64encode(record).decode()})
    with broker_on(etcd, tmp_path) as (admin, api):
        for change in (
            admin.create_topics([NewTopic("new", 1)]),
            admin.create_topics([NewTopic("copy", -1, -1, config={SHADOW_SOURCE: "orders"})]),
            admin.create_partitions([NewPartitions("orders", 3)]),
        ):
            text = refused(change)
            assert text.startswith("The metadata service refused the change: ")
            assert "start etcd with a higher --max-txn-ops" in text
        url = f"http://{api}/admin/v2/persistent/public/default/orders/shadowTopics"
        asked = urllib.request.Request(url, b'["copy"]', {"Content-Type": "application/json"}, method="PUT")
        with pytest.raises(urllib.error.HTTPError) as answered:
            urllib.request.urlopen(asked, timeout=ANSWER_SECONDS)
        assert answered.value.code == 412
        assert "start etcd with a higher --max-txn-ops" in json.load(answered.value)["reason"]
        assert set(admin.list_topics(timeout=ANSWER_SECONDS).topics) == {"orders"}
