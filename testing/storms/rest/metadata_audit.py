"""Judges the keys of the metadata at rest. Pure.

1. A key that names a topic by its id names one that exists: ledgers, subscriptions, holds, readers, replicators, read
   holds, cuts, shadows.
2. No deletion is unfinished, no ledger is reported to lack entries, and no store is an older copy without repair.
3. A key that names a node names one that exists, and its lease lives. No lease is without a key.
4. There are no keys of other prefixes than those of PREFIXES.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final
from uuid import UUID

from gnomon.bookie.missing_report import MISSING
from gnomon.bookie.record import LEDGERS
from gnomon.bookie.registration import AGES, BOOKIES, COOKIES, DISMISSED, DRAINING, OLDER, REPAIRED
from gnomon.bookie.repair.auditor import ELECTION
from gnomon.broker.configs.stored_configs import CONFIGS_PREFIX
from gnomon.broker.placement.brokers import BROKERS
from gnomon.broker.producer_ids import PRODUCER_IDS_KEY
from gnomon.log.cut import CUTS
from gnomon.log.plans.read_hold import READS
from gnomon.log.subscription_keys import HOLDS, READERS, REPLICATORS, SUBSCRIPTIONS
from gnomon.log.topic import DELETED_PREFIX, SHADOWS_PREFIX, TOPICS_PREFIX
from gnomon.metadata.cluster_id import CLUSTER_KEY
from gnomon.metadata.state import State
from gnomon.testing.storms.rest.finding import Facts, StateFinding

_TOPIC_ID = re.compile(r"[0-9a-f]{32}")

Explains = Callable[[str, Collection[UUID]], bool]
"""Whether a key, without its prefix, is explained by the topics that exist."""


def _named(rest: str, topics: Collection[UUID]) -> bool:
    """Whether the key names topics by their ids, and all of them exist."""
    ids = _TOPIC_ID.findall(rest)
    return bool(ids) and all(UUID(each) in topics for each in ids)


def _always(rest: str, topics: Collection[UUID]) -> bool:
    return True


def _never(rest: str, topics: Collection[UUID]) -> bool:
    return False


PREFIXES: Final[Mapping[str, Explains]] = {
    TOPICS_PREFIX: _always,
    **dict.fromkeys((LEDGERS, SUBSCRIPTIONS, HOLDS, READERS, REPLICATORS, READS, CUTS, SHADOWS_PREFIX), _named),
    DELETED_PREFIX: _never,
    MISSING: _never,
    **dict.fromkeys((BOOKIES, COOKIES, AGES, OLDER, DRAINING, DISMISSED, BROKERS, CONFIGS_PREFIX), _always),
    **dict.fromkeys((ELECTION, CLUSTER_KEY, PRODUCER_IDS_KEY), _always),
}
"""The prefixes of all keys; the longest that fits decides."""


def audit_metadata(state: State, facts: Facts) -> Iterator[StateFinding]:
    """The findings about all keys and leases."""
    prefixes = sorted(PREFIXES, key=len, reverse=True)
    for key in state.keys_under(""):
        prefix = next((each for each in prefixes if key.startswith(each)), None)
        if prefix is None:
            yield StateFinding(key, f"the metadata has {key}, and no key of a broker or bookie begins like this")
        elif not PREFIXES[prefix](key.removeprefix(prefix), facts.topics):
            yield StateFinding(key, f"the metadata has {key}, and no topic or deletion explains it")
    members = {key.removeprefix(COOKIES) for key in state.keys_under(COOKIES)}
    for item in state.range(OLDER).items:
        if item.value != REPAIRED:
            yield StateFinding(item.key, f"the metadata has {item.key}: the store is an older copy, and not repaired")
    for prefix in (BOOKIES, AGES, OLDER):
        for key in state.keys_under(prefix):
            if key.removeprefix(prefix) not in members:
                yield StateFinding(key, f"the metadata has {key}, and the bookie is no member")
    if len(state.keys_under(BROKERS)) != facts.brokers and state.keys_under(BROKERS):
        yield StateFinding(BROKERS, f"{len(state.keys_under(BROKERS))} brokers are registered, {facts.brokers} run")
    for lease in state.leases:
        if not list(state.lease_keys(lease)):
            yield StateFinding(f"lease {lease}", f"lease {lease} is kept alive without a key")
