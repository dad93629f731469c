"""The image of the topics, updated by any events."""

from __future__ import annotations

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from gnomon.broker.topics.topic_image import TopicImage
from gnomon.log.topic import SourceRef, Topic, topic_key
from gnomon.metadata.client import Event, KeyValue, RangeResult, Revision

SOURCES = ("orders", "visits")


def id_of(name: str, life: int) -> UUID:
    return UUID(int=life << 64 | int.from_bytes(name.encode()))


LIVES = st.integers(1, 3)
PLAIN = st.builds(
    lambda name, life, partitions: Topic(name, id_of(name, life), partitions, {}),
    st.sampled_from(SOURCES),
    LIVES,
    st.integers(1, 5),
)
SHADOWS = st.builds(
    lambda name, life, source, source_life: Topic(
        name, id_of(name, life), 0, {}, source=SourceRef(source, id_of(source, source_life), 1)
    ),
    st.sampled_from(["a", "copy", "z"]),
    LIVES,
    st.sampled_from(SOURCES),
    LIVES,
)


@given(st.lists(st.tuples(PLAIN | SHADOWS, st.booleans()), max_size=30))
def test_a_shadow_has_the_partitions_of_its_source_at_every_revision_and_none_without_it(
    changes: list[tuple[Topic, bool]],
) -> None:  # topics 5
    """A change puts a topic, or deletes the topic of that name."""
    image, records = TopicImage(), dict[str, KeyValue]()
    for number, (topic, puts) in enumerate(changes, 1):
        key, revision = topic_key(topic.name), Revision(number)
        records.pop(key, None)
        if puts:
            records[key] = KeyValue(key, topic.encode(), revision, revision, 1)
        image.apply(Event(key, records.get(key)))
        stored = {item.name: item for item in map(Topic.decode, records.values())}
        for shown in image:
            expected = stored[shown.name]
            if shown.source is not None:
                source = stored.get(shown.source.name)
                lives = source is not None and source.id == shown.source.id
                assert image.has_ended(shown) != lives
                assert not lives or source is None or shown in image.shadows_of(source)
                expected = expected.with_partitions(source.partitions if lives and source is not None else 0)
            assert shown == expected
            assert image.get(shown.name) is image.get_by_id(shown.id) is shown
        assert len(image) == len(stored)
        read_again = TopicImage()
        read_again.replace(RangeResult(revision, tuple(item for _, item in sorted(records.items()))))
        assert {*map(repr, read_again)} == {*map(repr, image)}
