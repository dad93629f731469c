"""The names of topics, groups and configs, for a shell that completes them.

A broker is asked with a short time-out. Any failure means no names: a shell that completes shows no errors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

import click
from confluent_kafka.admin import AdminClient

from gnomon.cli.kafka.kafka_client import client_config
from gnomon.cli.names.completion import ANSWER_SECONDS
from gnomon.cli.options import bootstrap_of

Complete: TypeAlias = Callable[[click.Context, click.Parameter, str], list[str]]


def _from_broker(names: Callable[[AdminClient], Iterable[str]]) -> Complete:
    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
        given = ctx.params.get(param.name or "") or ()
        try:
            found = names(AdminClient(client_config(bootstrap_of(ctx))))
        except Exception:
            return []
        return [name for name in sorted(found) if name.startswith(incomplete) and name not in given]

    return complete


def _topics(admin: AdminClient) -> Iterable[str]:
    return list(admin.list_topics(timeout=ANSWER_SECONDS).topics)


def _groups(admin: AdminClient) -> Iterable[str]:
    found = admin.list_consumer_groups(request_timeout=ANSWER_SECONDS).result(ANSWER_SECONDS)
    return [str(listed.group_id) for listed in found.valid]


topic_names = _from_broker(_topics)
"""Completes the name of a topic."""
group_names = _from_broker(_groups)
"""Completes the name of a consumer group."""


def config_names(_ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Completes the name of a topic config, with the `=` that precedes a value unless the option takes no value."""
    from gnomon.broker.configs.topic_configs import TOPIC_CONFIGS

    end = "=" if "=" in str(getattr(param, "metavar", "")) else ""
    return [name + end for name in TOPIC_CONFIGS if name.startswith(incomplete)]
