"""The options of the source: defaults, precedence and refusals."""

from __future__ import annotations

import re

import pytest

from gnomon.client.kafka.topic_partition import EARLIEST, LATEST, TopicPartition
from gnomon.spark.offsets import BadOption
from gnomon.spark.options import Bound, SourceOptions

SERVERS = {"kafka.bootstrap.servers": "one:9092,two:9093"}


def parsed(streaming: bool = False, **given: str) -> SourceOptions:
    options = {**SERVERS, "subscribe": "orders", **{name.replace("__", "."): value for name, value in given.items()}}
    return SourceOptions.parse({name.lower(): value for name, value in options.items()}, streaming=streaming)


def test_the_defaults_are_those_of_the_connector() -> None:
    batch, stream = parsed(), parsed(streaming=True)
    assert batch.addresses == (("one", 9092), ("two", 9093))
    assert (batch.topics, batch.pattern, batch.assigned) == (("orders",), None, None)
    assert (batch.starting.default, batch.ending.default, stream.starting.default) == (EARLIEST, LATEST, LATEST)
    assert (batch.fail_on_data_loss, batch.include_headers, batch.late_start_is_latest) == (True, False, False)
    assert (batch.tasks_min, batch.task_records_max, batch.task_bytes_max) == (1, None, 256 << 20)
    assert (batch.batch_bytes_max, batch.via, batch.hold_seconds) == (64 << 20, "auto", 600)
    assert (stream.batch_offsets_max, stream.batch_offsets_min, stream.batch_delay_seconds) == (None, 1, 900.0)


def test_a_number_within_its_bounds_is_taken() -> None:
    lowest = parsed(holdSeconds="1", maxBatchBytes="1", maxBytesPerTask="1", maxOffsetsPerTrigger="1")
    assert (lowest.hold_seconds, lowest.batch_bytes_max) == (1, 1)
    assert (lowest.task_bytes_max, lowest.batch_offsets_max) == (1, 1)
    highest = parsed(holdSeconds="3600", maxBatchBytes="1073741824", startingTimestamp="0" * 5_000)
    assert (highest.hold_seconds, highest.batch_bytes_max, highest.starting.default) == (3_600, 1 << 30, 0)
    assert [parsed(via=way).via for way in ("auto", "bookies", "brokers")] == ["auto", "bookies", "brokers"]


def test_several_topics_are_separated_by_commas() -> None:
    assert parsed(subscribe=" a, b,a ,").topics == ("a", "b")


def test_times_count_before_times_of_partitions_and_those_before_offsets() -> None:
    place = TopicPartition("orders", 0)
    offsets, times = '{"orders":{"0":7}}', '{"orders":{"0":1700}}'
    assert parsed(startingOffsets=offsets).starting == Bound(None, {place: 7}, False, "startingOffsets")
    both = parsed(startingOffsets=offsets, startingOffsetsByTimestamp=times)
    assert both.starting == Bound(None, {place: 1700}, True, "startingOffsetsByTimestamp")
    all_three = parsed(startingOffsets=offsets, startingOffsetsByTimestamp=times, startingTimestamp="5")
    assert all_three.starting == Bound(5, {}, True, "startingTimestamp")
    assert parsed(endingTimestamp="5").ending == Bound(5, {}, True, "endingTimestamp")


def test_settings_that_tune_a_consumer_have_no_effect() -> None:
    assert (
        parsed(kafka__max__poll__records="10", fetchOffset__numRetries="3", kafka__security__protocol="plaintext")
        == parsed()
    )


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"subscribed": "x"}, "subscribed: no such option; is it subscribe?"),
        ({"whatever": "x"}, "whatever: no such option"),
        ({"assign": '{"a":[0]}'}, "give one of subscribe, subscribePattern and assign: there is subscribe and assign"),
        ({"subscribe": ","}, "subscribe=',': give the names of topics"),
        ({"kafka__bootstrap__servers": "one"}, "kafka.bootstrap.servers='one': give HOST:PORT"),
        (
            {"kafka__security__protocol": "SSL"},
            "kafka.security.protocol: connections with TLS or SASL are not built yet",
        ),
        ({"kafka__sasl__mechanism": "PLAIN"}, "kafka.sasl.mechanism: connections with TLS or SASL"),
        ({"kafka__isolation__level": "read_all"}, "expected read_uncommitted or read_committed"),
        (
            {"startingOffsets": "latest"},
            "startingOffsets: a batch read that starts at the latest offset would be empty",
        ),
        ({"startingOffsets": '{"orders":{"0":-1}}'}, "startingOffsets: a batch read that starts at the latest"),
        ({"endingOffsets": "earliest"}, "endingOffsets: a read that ends at the earliest offset would be empty"),
        ({"startingOffsets": "soon"}, "startingOffsets='soon': expected JSON"),
        ({"startingTimestamp": "-5"}, "startingTimestamp='-5': expected a whole number from 0 to"),
        ({"startingOffsetsByTimestamp": '{"orders":{"0":-1}}'}, "-1 of partition 0 is no number from 0 on"),
        ({"startingOffsetsByTimestampStrategy": "none"}, "expected error or latest"),
        ({"minPartitions": "0"}, "minPartitions='0': expected a whole number from 1 to"),
        ({"maxRecordsPerPartition": "²"}, "expected a whole number from 1 to"),
        ({"maxBatchBytes": "1073741825"}, "expected a whole number from 1 to 1073741824"),
        ({"maxBatchBytes": "9" * 5_000}, "expected a whole number from 1 to"),
        ({"maxBatchBytes": "0" * 20 + "9" * 20}, "expected a whole number from 1 to 1073741824"),
        ({"startingTimestamp": "0" * 20 + "9" * 20}, "expected a whole number from 0 to 9223372036854775807"),
        ({"maxOffsetsPerTrigger": "-1"}, "maxOffsetsPerTrigger='-1': expected a whole number from 1 to"),
        ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger='0': expected a whole number from 1 to"),
        ({"minOffsetsPerTrigger": "-1"}, "minOffsetsPerTrigger='-1': expected a whole number from 1 to"),
        ({"maxRecordsPerPartition": "-1"}, "maxRecordsPerPartition='-1': expected a whole number from 1 to"),
        ({"maxBytesPerTask": "0"}, "maxBytesPerTask='0': expected a whole number from 1 to"),
        ({"maxBytesPerTask": "-1"}, "maxBytesPerTask='-1': expected a whole number from 1 to"),
        ({"maxBytesPerTask": "1g"}, "maxBytesPerTask='1g': expected a whole number from 1 to"),
        ({"holdSeconds": "0"}, "holdSeconds='0': expected a whole number from 1 to 3600"),
        ({"holdSeconds": "3601"}, "holdSeconds='3601': expected a whole number from 1 to 3600"),
        ({"via": "x"}, "via='x': expected auto or bookies or brokers"),
        ({"maxTriggerDelay": "soon"}, "maxTriggerDelay='soon': expected a time such as 500ms"),
        ({"maxBatchBytes": "1e6"}, "expected a whole number from 1 to"),
        ({"failOnDataLoss": "no"}, "failOnDataLoss='no': expected true or false"),
        ({"includeHeaders": "yes"}, "includeHeaders='yes': expected false or true"),
    ],
)
def test_an_option_that_cannot_be_used_is_named(given: dict[str, str], text: str) -> None:
    with pytest.raises(BadOption, match=re.escape(text)):
        parsed(**given)


def test_a_pattern_that_is_none_and_missing_ways_to_choose_topics_are_named() -> None:
    with pytest.raises(BadOption, match="subscribePattern='\\('"):
        SourceOptions.parse({**SERVERS, "subscribepattern": "("}, streaming=False)
    with pytest.raises(BadOption, match="there is none of them"):
        SourceOptions.parse(SERVERS, streaming=False)
