"""The broker settings that were set at run time, stored in the metadata: for one broker, and for all."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgpack

from gnomon.broker.configs.broker_configs import BrokerConfigs
from gnomon.broker.configs.config_key import ConfigSource
from gnomon.broker.errors import metadata_refusals
from gnomon.metadata.client import Compare, Metadata, Put, RangeResult, Revision, WatchBatch
from gnomon.metadata.follower import Follower
from gnomon.runtime.logs import Logger
from gnomon.runtime.world import Clock

CONFIGS_PREFIX = "configs/brokers/"
ALL_BROKERS = "default"


class StoredConfigs:
    """Keeps a broker's configs equal to the stored settings, once `follower` has loaded them."""

    def __init__(
        self,
        metadata: Metadata,
        clock: Clock,
        log: Logger,
        configs: BrokerConfigs,
        node_id: int,
        changed: Callable[[], None],
    ) -> None:
        """`changed` is called when values may have changed."""
        self.follower = Follower(metadata, clock, log, CONFIGS_PREFIX, self._replace, self._apply)
        self._metadata = metadata
        self._configs = configs
        self._changed = changed
        self._keys = {
            ConfigSource.DYNAMIC_BROKER: f"{CONFIGS_PREFIX}{node_id}",
            ConfigSource.DYNAMIC_DEFAULT_BROKER: f"{CONFIGS_PREFIX}{ALL_BROKERS}",
        }
        self._as_of = dict.fromkeys(self._keys, Revision(0))

    def _replace(self, found: RangeResult) -> None:
        stored = {item.key: item.value for item in found.items}
        for source, key in self._keys.items():
            self._take(source, _decode(stored.get(key)), found.revision)
        self._changed()

    def _apply(self, batch: WatchBatch) -> None:
        for event in batch.events:
            for source, key in self._keys.items():
                if event.key == key:
                    self._take(source, _decode(event.current.value if event.current else None), batch.revision)
        self._changed()

    def _take(self, source: ConfigSource, layer: dict[str, str], revision: Revision) -> None:
        """Takes the values of a revision, unless newer ones are known: the watch may lag after this broker's change."""
        if revision >= self._as_of[source]:
            self._as_of[source] = revision
            self._configs.set_layer(source, layer)

    async def change(self, source: ConfigSource, change: Callable[[Mapping[str, str]], dict[str, str]]) -> None:
        """Replaces the values set at run time, for this broker or for all, by the result of `change`.

        Raises:
            KafkaError: the disk is full, or `change` raised it.
        """
        key = self._keys[source]
        while True:
            item = await self._metadata.get(key)
            layer = change(_decode(item.value if item is not None else None))
            version = item.version if item is not None else 0
            with metadata_refusals():
                result = await self._metadata.txn([Compare.version(key, version)], [Put(key, msgpack.packb(layer))])
            if result.succeeded:
                break
        self._take(source, layer, result.revision)
        self._changed()


def _decode(stored: bytes | None) -> dict[str, str]:
    layer: dict[str, str] = msgpack.unpackb(stored) if stored is not None else {}
    return layer
