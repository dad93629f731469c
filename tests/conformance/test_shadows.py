"""A shadow with each library: it is read like its source, and refuses changes."""

from __future__ import annotations

from gnomon.testing import KafkaBroker

from families.aim import connected
from families.group import read
from families.refusal import refused

INVALID_CONFIG = 40
POLICY_VIOLATION = 44


def test_a_shadow_shows_its_source_and_refuses_changes(family_name: str, broker: KafkaBroker, topic: str) -> None:
    family = connected(family_name, broker)
    admin = family.admin()
    admin.create_topic(topic, 2)
    shadow = f"{topic}-shadow"
    admin.create_topic(shadow, 2, {"gnomon.shadow.source": topic})
    assert admin.partitions(shadow) == 2
    assert admin.configs(shadow)["gnomon.shadow.source"] == topic
    producer = family.producer()
    for number in range(20):
        producer.send(topic, b"%d" % number, partition=1, timestamp_ms=10_000 + 100 * number)
    producer.flush()

    reader = family.reader(shadow, 1, 5)
    assert [(record.offset, record.value) for record in read(reader, 15)] == [(n, b"%d" % n) for n in range(5, 20)]
    reader.close()
    member = family.member(shadow, shadow)
    assert [record.offset for record in read(member, 20)] == list(range(20))
    member.commit()
    member.close()
    assert admin.committed(shadow, shadow)[1] == 20
    assert family.offset_at(shadow, 1, 10_401) == 5

    def write() -> None:
        producer.send(shadow, b"value", partition=1)
        producer.flush()

    assert refused(family, write) == POLICY_VIOLATION
    assert refused(family, admin.grow, shadow, 3) == POLICY_VIOLATION
    assert refused(family, admin.delete_records, shadow, 1, 5) == POLICY_VIOLATION
    assert refused(family, admin.set_config, shadow, "retention.ms", "60000") == INVALID_CONFIG
    assert refused(family, admin.delete_topic, topic) == POLICY_VIOLATION
    producer.close()
    admin.delete_topic(shadow)
    admin.delete_topic(topic)
    admin.close()
    family.close()
