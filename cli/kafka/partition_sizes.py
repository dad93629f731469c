"""The stored bytes of a topic's partitions (DescribeLogDirs), for which confluent-kafka has no call.

Each broker answers for the partitions that it leads, over a plain connection.
"""

from __future__ import annotations

import socket
from collections.abc import Collection
from struct import Struct

from gnomon.wire.kafka.api import ApiKey
from gnomon.wire.kafka.messages.log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from gnomon.wire.kafka.schema import MalformedMessage, decode, encode

ANSWER_SECONDS = 5.0
VERSION = 1
"""The last one whose frames have no tagged fields; every broker since Kafka 2.0 knows it."""
ANSWER_BYTES_MAX = 16 * 1024 * 1024
_REQUEST = Struct(">ihhih")
"""Size, API, version, correlation id, and the length of the client id, which is absent."""
_RESPONSE = Struct(">ii")
_CORRELATION = 1


def partition_sizes(host: str, port: int, topic: str, partitions: Collection[int]) -> dict[int, int]:
    """Bytes of those of the partitions that the broker at an address leads.

    Raises:
        OSError: the broker gives no answer that can be read.
    """
    asked = DescribeLogDirsRequest(topics=[DescribableLogDirTopic(topic=topic, partitions=list(partitions))])
    body = encode(asked, VERSION)
    head = _REQUEST.pack(_REQUEST.size - 4 + len(body), ApiKey.DESCRIBE_LOG_DIRS, VERSION, _CORRELATION, -1)
    with socket.create_connection((host, port), ANSWER_SECONDS) as connection, connection.makefile("rb") as stream:
        connection.sendall(head + body)
        prefix = stream.read(_RESPONSE.size)
        if len(prefix) < _RESPONSE.size:
            raise ConnectionResetError("the broker ended the connection")
        size = _RESPONSE.unpack(prefix)[0] - 4
        if not 0 <= size <= ANSWER_BYTES_MAX:
            raise OSError(f"the broker announced an answer of {size} bytes")
        frame = stream.read(size)
    try:
        answer, _ = decode(DescribeLogDirsResponse, VERSION, frame)
    except MalformedMessage as error:
        raise OSError(f"the broker's answer cannot be read: {error}") from None
    return {
        part.partition_index: part.partition_size
        for directory in answer.results
        for found in directory.topics
        if found.name == topic
        for part in found.partitions
    }
