"""The options of the sink; numbers cite the invariants of `sink_options`."""

from __future__ import annotations

import pytest

from gnomon.spark.offsets import BadOption
from gnomon.spark.writing.sink_options import SinkOptions
from gnomon.wire.kafka.compression import Codec


def parse(*, streaming: bool = False, **given: str) -> SinkOptions:
    options = {"kafka.bootstrap.servers": "broker-1:9092", **given}
    return SinkOptions.parse({name.lower(): value for name, value in options.items()}, streaming=streaming)


def test_only_the_address_is_needed() -> None:
    assert parse() == SinkOptions(
        addresses=(("broker-1", 9092),),
        topic=None,
        writer=None,
        version=None,
        takes_over=False,
        compression=Codec.LZ4,
        batch_bytes=None,
        staging_partitions=4,
    )


def test_a_job_has_a_name_and_a_number() -> None:  # 1
    job = parse(txnAppId="nightly", txnVersion="7")
    assert (job.writer, job.version) == ("nightly", 7)
    assert parse(streaming=True, writer="copy").writer == "copy"


def test_the_codec_of_the_connector_counts_unless_there_is_our_own() -> None:
    assert parse(**{"kafka.compression.type": "zstd"}).compression == Codec.ZSTD
    assert parse(**{"kafka.compression.type": "zstd", "compression": "none"}).compression == Codec.NONE


@pytest.mark.parametrize(
    ("given", "streaming", "text"),
    [
        ({"topics": "x"}, False, "topics: no such option; is it topic?"),
        ({"topic": "a b"}, False, "topic='a b': this is no name of a topic"),
        ({"txnAppId": "a"}, False, "give both of txnAppId and txnVersion"),
        ({"txnVersion": "1"}, False, "give both of txnAppId and txnVersion"),
        ({"txnAppId": "a", "txnVersion": "1"}, True, "txnAppId and txnVersion are for batch jobs"),
        ({"writer": "w"}, False, "writer is for streams"),
        ({"writer": "w/x"}, True, "writer='w/x': expected 1 to 200 characters"),
        ({"writer": "w" * 201}, True, "expected 1 to 200 characters"),
        ({"writer": ""}, True, "expected 1 to 200 characters"),
        ({"compression": "brotli"}, False, "compression='brotli': expected lz4 or none or gzip or snappy or zstd"),
        ({"batchBytes": "0"}, False, "batchBytes='0': expected a whole number from 1 to 16777216"),
        ({"stagingPartitions": "-1"}, False, "stagingPartitions='-1': expected a whole number from 1 to 1000"),
        ({"kafka.security.protocol": "SSL"}, False, "connections with TLS or SASL are not built yet"),
    ],
)
def test_an_option_that_cannot_be_used_is_named(given: dict[str, str], streaming: bool, text: str) -> None:
    with pytest.raises(BadOption, match=text.replace("?", r"\?")):
        parse(streaming=streaming, **given)
