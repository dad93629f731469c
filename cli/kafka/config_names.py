"""The names of topic configs: suggestions for those that a broker does not know."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from gnomon.broker.configs.topic_configs import TOPIC_CONFIGS
from gnomon.cli.exit import KafkaFailure
from gnomon.cli.names.suggestion import did_you_mean
from gnomon.wire.kafka.errors import ErrorCode


@contextmanager
def config_suggestions(names: Iterable[str]) -> Iterator[None]:
    """Within the block, an error because of a config names the config that is nearest to the unknown one of `names`.

    The broker judges, since it may be of a version with other configs.
    """
    try:
        yield
    except KafkaFailure as failure:
        if failure.kafka_code != ErrorCode.INVALID_CONFIG:
            raise
        near = "".join(did_you_mean(name, TOPIC_CONFIGS) for name in names if name not in TOPIC_CONFIGS)
        raise KafkaFailure(f"{failure}{'.' * bool(near)}{near}", failure.kafka_code) from None
