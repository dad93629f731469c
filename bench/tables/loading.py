"""The time until a table is served again: by a broker whose store is gone, or by the next one after its leader died."""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass

from confluent_kafka.admin import AdminClient, NewTopic

from bench.cluster import ClusterServer
from bench.failover import SHORT_LEASE, started_cluster
from bench.generator import Figures, GeneratorFailed
from bench.stage import ADMIN_SECONDS, Stage
from bench.tables.frames import key_of
from bench.tables.loads import DISK, fill_table, new_table, table_config
from bench.writes.loads import RECORD_BYTES
from gnomon.client.blocking import BlockingClient, connect_blocking
from gnomon.client.errors import NativeError

LOOK_SECONDS = 0.05
SERVED_SECONDS_MAX = 300.0
STORE = "tables"
"""The folder of the store in a data directory."""


def load_again(stage: Stage) -> Figures:
    """Entries a second from the log, and then from a snapshot, by a broker whose store of tables was deleted."""
    installation, keys = stage.system.install(stage.workspace), stage.scale.table_keys
    with stage.serving(installation):
        stage.await_leaders("probe")
        topic = new_table(stage, keys=keys)
    figures = {}
    for source in ("log", "snapshot"):
        shutil.rmtree(installation.data_dir / STORE)
        with stage.serving(installation) as server, connect_blocking(server.process.ready()["native"]) as client:
            figures[f"from_{source}"] = keys / _seconds_until_served(client, topic, keys)
            client.table(topic).snapshot()
    return figures


def _seconds_until_served(client: BlockingClient, topic: str, keys: int) -> float:
    """The time until a get of the last key is answered.

    Raises:
        GeneratorFailed: the key is absent, or nothing was answered in time.
    """
    began, table = time.monotonic(), client.table(topic)
    while True:
        try:
            entry = table.get(key_of(keys - 1))
            break
        except NativeError as error:
            if time.monotonic() > began + SERVED_SECONDS_MAX:
                raise GeneratorFailed(f"the table is not served: {error}") from None
    if entry is None:
        raise GeneratorFailed("the table lost its last key")
    return time.monotonic() - began


@dataclass(frozen=True, slots=True)
class TableTakeover:
    """The leader of a table is killed: the time from the end of its lease to the first get from the next leader."""

    with_shadow: bool
    """Whether the table has a shadow, whose broker is the next leader and keeps a replica."""

    def __call__(self, stage: Stage) -> Figures:
        keys = stage.scale.table_keys
        with started_cluster(stage, SHORT_LEASE) as server:
            server.start_broker(2)
            topic = stage.topic(config=table_config(DISK))
            leader = _leader(server, topic)
            fill_table(server.bootstrap, topic, keys, RECORD_BYTES)
            if self.with_shadow:
                _cast_shadow(server, topic, keys)
            heir = 3 - leader
            survivor = server.members[f"broker-{heir}"]
            server.members[f"broker-{leader}"].kill()
            server.process, server.port = survivor, int(survivor.ready()["kafka"].rpartition(":")[2])
            stage.await_leaders(topic, leader=heir)
            with connect_blocking(survivor.ready()["native"]) as client:
                return {"first_get_s": _seconds_until_served(client, topic, keys)}


def _leader(server: ClusterServer, topic: str) -> int:
    found = AdminClient({"bootstrap.servers": server.bootstrap}).list_topics(topic, timeout=ADMIN_SECONDS)
    leader: int = found.topics[topic].partitions[0].leader
    return leader


def _cast_shadow(server: ClusterServer, topic: str, keys: int) -> None:
    """Creates a shadow, and waits until it shows the last key."""
    shadow = NewTopic(f"{topic}-shadow", 1, -1, config={"gnomon.shadow.source": topic})
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    admin.create_topics([shadow], request_timeout=ADMIN_SECONDS)[shadow.topic].result()
    given_up_at = time.monotonic() + SERVED_SECONDS_MAX
    with connect_blocking(server.process.ready()["native"]) as client:
        while time.monotonic() < given_up_at:
            try:
                if client.table(shadow.topic).get(key_of(keys - 1), stale=True) is not None:
                    return
            except NativeError:  # it is being loaded
                pass
            time.sleep(LOOK_SECONDS)
    raise GeneratorFailed("the shadow does not show the last key")
