"""Storm clients over one topic with rich producers and a rich reader: a topic that is created again and again, and one
whose records are deleted in every way while a shadow shows them.

    scenario = LogScenario(..., beside={"lives": live_again, "kept": keep_and_cast})

`rich_producer`, `rich_reader` and `log_truth` have the rules.
"""

from __future__ import annotations

from functools import partial
from random import Random

import trio

from gnomon.testing.storms.kafka.log_clients import ProduceRefused
from gnomon.testing.storms.kafka.storm_clients import (
    create_topic,
    delete_topic,
    expect_gone,
)
from gnomon.testing.storms.kafka.wire_client import WireCluster
from gnomon.testing.storms.logs.log_truth import LogTruth
from gnomon.testing.storms.logs.rich_producer import LARGE_BYTES, RichProducer
from gnomon.testing.storms.logs.rich_reader import RichReader, read_whole
from gnomon.testing.storms.shadows.shadow_clients import read_shadow
from gnomon.wire.kafka.compression import Codec

PARTITIONS_MAX = 3
LIFE_SECONDS_MEAN = 5.0
ROUNDS_A_SECOND = 1.5
RETENTION_BYTES = (4096, 16384)
CODECS = ("producer", "producer", "uncompressed", "gzip", "snappy", "lz4", "zstd")


async def live_again(
    cluster: WireCluster, seconds: float, *, name: str = "lives", several: bool = False, lag_seconds: float = 0.0
) -> None:
    """Creates a topic, writes and reads it, and deletes it, again and again; the reader keeps its connection.

    Args:
        several: whether there may be several brokers.
        lag_seconds: the time for which brokers may still show a topic that another broker has deleted.
    """
    clock, stream = cluster.world.clock, cluster.world.random(f"rich/{name}")
    end, life, topic = clock.monotonic() + seconds, 0, f"{name}-0"
    reader = RichReader(cluster, stream, several=several)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(reader.run)
        while clock.monotonic() < end or not life:
            life += 1
            lasts = min(stream.expovariate(1 / LIFE_SECONDS_MEAN), max(0.5, end - clock.monotonic()))
            rich = RichTopic(cluster, topic, f"{name}/{life}", stream)
            doubtful = await rich.create({})
            reader.follow(topic, rich.truths)
            await rich.write(lasts)
            await reader.leave()
            await rich.judge()
            doubtful |= await delete_topic(cluster, topic)
            await expect_gone(cluster, topic, lag_seconds)
            if doubtful:
                topic = f"{name}-{life}"  # a late deletion or creation would affect the next life
            await clock.sleep(stream.expovariate(2.0))
        nursery.cancel_scope.cancel()


async def keep_and_cast(cluster: WireCluster, seconds: float, *, name: str = "kept", several: bool = False) -> None:
    """Writes to one topic whose records retention and DeleteRecords delete, and reads a shadow of it.

    Args:
        several: whether there may be several brokers.
    """
    clock, stream = cluster.world.clock, cluster.world.random(f"rich/{name}")
    reader = RichReader(cluster, stream, several=several)
    rich = RichTopic(cluster, name, f"{name}/1", stream)
    retained = {"retention.bytes": str(stream.choice(RETENTION_BYTES))} if stream.random() < 0.7 else {}
    await rich.create(retained)
    reader.follow(name, rich.truths)
    until = clock.monotonic() + seconds
    async with trio.open_nursery() as nursery:
        nursery.start_soon(reader.run)
        async with trio.open_nursery() as working:
            working.start_soon(rich.write, seconds)
            working.start_soon(partial(read_shadow, cluster, seconds, source=name, shadow=f"{name}-shadow"))
        await clock.sleep(max(0.0, until - clock.monotonic()))
        await reader.leave()
        nursery.cancel_scope.cancel()
    await rich.judge()


class RichTopic:
    """One life of a topic, with drawn configs and a producer or two for each partition.

    Args:
        life: unique among the lives of all topics.
    """

    def __init__(self, cluster: WireCluster, topic: str, life: str, stream: Random) -> None:
        self.topic = topic
        self._cluster = cluster
        self._life = life
        self._stream = stream
        append_time, codec = stream.random() < 0.3, stream.choice(CODECS)
        self._configs = {
            "retention.ms": "-1",  # odd timestamps are years old
            "max.message.bytes": str(LARGE_BYTES + 1000),
            "compression.type": codec,
            "message.timestamp.type": "LogAppendTime" if append_time else "CreateTime",
        }
        number = {"producer": None, "uncompressed": Codec.NONE}.get(codec, getattr(Codec, codec.upper(), None))
        count = stream.randint(1, PARTITIONS_MAX)
        self.truths = {index: LogTruth(append_time=append_time, codec=number) for index in range(count)}

    async def create(self, configs: dict[str, str]) -> bool:
        """Creates the topic; returns as `create_topic`."""
        return await create_topic(self._cluster, self.topic, {**self._configs, **configs}, len(self.truths))

    async def write(self, seconds: float) -> None:
        """Writes for `seconds` and until all batches are acknowledged."""
        async with trio.open_nursery() as nursery:
            for index, truth in self.truths.items():
                for number in range(self._stream.choice([1, 1, 2])):
                    name = f"{self._life}/{index}/{number}"
                    producer = RichProducer(self._cluster, self.topic, index, truth, name, self._stream)
                    nursery.start_soon(producer.run, seconds, ROUNDS_A_SECOND)

    async def judge(self) -> None:
        """Reads all that is left, and compares it with all that was seen.

        Raises:
            ProduceRefused: a rule does not hold.
        """
        wrong = []
        for index, truth in self.truths.items():
            records, start = await read_whole(self._cluster, self.topic, index)
            wrong += [f"{self.topic}-{index}: {text}" for text in truth.judge(records, start)]
        if wrong:
            raise ProduceRefused(f"{self._life}: " + "; ".join(wrong))
