"""A writer that is made from its options: each of them reaches the batches, the drivers and the writer's topic."""

from __future__ import annotations

from contextlib import aclosing

import pyarrow as pa
import pytest
from sink_client import TARGET, SinkClient, rows_of, with_sink

from gnomon.client.kafka.fetching import read_batches
from gnomon.spark.decisions import BatchVerdict
from gnomon.spark.writing.committing import WriterFenced
from gnomon.spark.writing.sink_options import SinkOptions
from gnomon.spark.writing.sink_writer import SinkWriter
from gnomon.spark.writing.staging import StagedTask
from gnomon.wire.kafka.batch import HEADER_BYTES, BatchHeader, parse_batch
from gnomon.wire.kafka.compression import Codec, decompress

VALUE = "v" * 1_000


def writer_of(sink: SinkClient, **given: str) -> SinkWriter:
    options = {"kafka.bootstrap.servers": "broker-1:9092", "topic": "others", **given}
    parsed = SinkOptions.parse({name.lower(): value for name, value in options.items()}, streaming=True)
    return SinkWriter(sink.cluster, parsed, parsed.writer or "w")


async def task(writer: SinkWriter, rows: pa.RecordBatch, query: str = "q") -> StagedTask:
    staging = writer.task(0)
    await staging.add(rows)
    return await staging.finish(writer.name, query)


async def written(sink: SinkClient) -> list[tuple[BatchHeader, int]]:
    """The batches of the target, without the five records that it begins with, and their bytes as decompressed."""
    topic_id = (await sink.cluster.topic(TARGET.topic)).id
    _, end = await sink.bounds(TARGET)
    found = []
    async with aclosing(read_batches(sink.cluster, TARGET, topic_id, 5, end)) as parts:
        async for part in parts:
            for batch in part.batches:
                header = parse_batch(batch)
                records = decompress(header.compression, batch[HEADER_BYTES:], 1 << 20)
                found.append((header, len(records)))
    return found


@pytest.mark.parametrize("codec", [None, *Codec])
def test_stored_batches_have_the_codec_of_the_options(codec: Codec | None) -> None:
    async def work(sink: SinkClient) -> None:
        writer = writer_of(sink, **({} if codec is None else {"compression": codec.name.lower()}))
        await (await writer.driver(sink.warnings.append)).commit("q", 0, [await task(writer, rows_of([VALUE] * 50))])
        assert {header.compression for header, _ in await written(sink)} == {Codec.LZ4 if codec is None else codec}

    with_sink(work)


@pytest.mark.parametrize("bytes_max", [None, 5_000])
def test_stored_batches_are_as_large_as_the_options_allow(bytes_max: int | None) -> None:
    async def work(sink: SinkClient) -> None:
        writer = writer_of(sink, **({} if bytes_max is None else {"batchBytes": str(bytes_max)}))
        await (await writer.driver(sink.warnings.append)).commit("q", 0, [await task(writer, rows_of([VALUE] * 150))])
        sizes = [size for _, size in await written(sink)]
        allowed = bytes_max or 64 << 10
        assert sum(sizes) > 150 * len(VALUE)
        assert max(sizes) <= allowed
        assert min(sizes[:-1]) > allowed - 2 * len(VALUE)

    with_sink(work)


@pytest.mark.parametrize(("given", "partitions"), [({}, 4), ({"stagingPartitions": "2"}, 2)])
def test_the_topic_of_a_new_writer_has_the_staging_partitions_of_its_options(
    given: dict[str, str], partitions: int
) -> None:
    async def work(sink: SinkClient) -> None:
        await writer_of(sink, writer="driven", **given).driver(sink.warnings.append)
        staged = await task(writer_of(sink, writer="staged", compression="none", **given), rows_of([VALUE] * 100))
        assert staged.staged
        for name in ("__gnomon_sink_driven", "__gnomon_sink_staged"):
            assert len((await sink.cluster.topics([name]))[name].leaders) == 1 + partitions

    with_sink(work)


def test_a_driver_takes_a_writer_over_if_the_options_say_so() -> None:
    async def work(sink: SinkClient) -> None:
        own, taking = writer_of(sink), writer_of(sink, writerTakeOver="true")
        await (await own.driver(sink.warnings.append)).commit("q", 0, [await task(own, rows_of(["0"]))])
        rows = await task(own, rows_of(["1"]), "other")
        with pytest.raises(WriterFenced):
            await (await own.driver(sink.warnings.append)).commit("other", 0, [rows])
        assert await (await taking.driver(sink.warnings.append)).commit("other", 0, [rows]) is BatchVerdict.OK

    with_sink(work)
