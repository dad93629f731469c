from __future__ import annotations

from uuid import UUID

import pytest

from gnomon.log.topic import Topic, topic_key
from gnomon.metadata.client import Put
from gnomon.metadata.request import Txn
from gnomon.metadata.state import State
from gnomon.testing.storms.rest.finding import Facts
from gnomon.testing.storms.rest.metadata_audit import audit_metadata

LIVE, GONE = UUID(int=1), UUID(int=2)


def state_with(*keys: str) -> State:
    state = State()
    topic = Topic("__consumer_offsets", LIVE, 1, {})
    puts = (Put(topic_key(topic.name), topic.encode()), *(Put(key, b"") for key in keys))
    state.apply(Txn((), puts, ()), 0.0)
    return state


def findings(state: State) -> list[str]:
    return [place for place, _ in audit_metadata(state, Facts.of(state, 0, 0))]


@pytest.mark.parametrize(
    "key",
    [
        "deleted/orders",
        "missing/17",
        f"holds/{GONE.hex}",
        f"readers/{LIVE.hex}/{GONE.hex}",
        f"cuts/topics/{GONE.hex}/0/",
        f"subscriptions/{GONE.hex}/0/reader",
        "ages/bookie-1",
        "forgotten",
    ],
)
def test_a_key_that_no_topic_and_no_node_explains_is_found(key: str) -> None:
    assert findings(state_with(key)) == [key]


def test_an_older_copy_is_found_until_it_is_repaired() -> None:
    key = "bookies-older/bookie-1"
    state = state_with("cookies/bookie-1", key)
    assert not findings(state)
    state.apply(Txn((), (Put(key, b"the store is older than the metadata"),), ()), 0.0)
    assert findings(state) == [key]


def test_keys_of_topics_and_nodes_are_explained() -> None:
    keys = (
        f"holds/{LIVE.hex}",
        f"cuts/topics/{LIVE.hex}/0/",
        "cookies/bookie-1",
        "ages/bookie-1",
        "cluster",
        "auditor",
    )
    assert not findings(state_with(*keys))
