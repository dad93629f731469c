"""The sources of shadows, which brokers show as a config of each shadow."""

from __future__ import annotations

from collections.abc import Sequence

from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from gnomon.broker.topics.cast import SHADOW_SOURCE
from gnomon.cli.exit import Exit, Failure
from gnomon.cli.kafka.kafka_client import ANSWER_SECONDS, answer, kafka_errors

ASKED_AT_ONCE = 500
"""Topics of one request: a broker describes all configs of each."""


def all_topics(admin: AdminClient) -> list[str]:
    """The names of all topics, in order.

    Raises:
        Failure: no answer.
    """
    with kafka_errors("list topics"):
        return sorted(admin.list_topics(timeout=ANSWER_SECONDS).topics)


def shadow_sources(admin: AdminClient, names: Sequence[str]) -> dict[str, str]:
    """The source of each of the topics that is a shadow.

    Raises:
        Failure: no answer.
    """
    found = {}
    for at in range(0, len(names), ASKED_AT_ONCE):
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in names[at : at + ASKED_AT_ONCE]]
        for resource, future in admin.describe_configs(resources, request_timeout=ANSWER_SECONDS).items():
            try:
                source = answer(future, f"read the configs of topic {resource.name!r}").get(SHADOW_SOURCE)
            except Failure as failure:
                if failure.code != Exit.CONFLICT:
                    raise
                continue  # it was deleted meanwhile
            if source is not None:
                found[str(resource.name)] = str(source.value)
    return found


def shadows_of(sources: dict[str, str], topic: str) -> list[str]:
    """The shadows of a topic, in order of name."""
    return sorted(shadow for shadow, source in sources.items() if source == topic)
