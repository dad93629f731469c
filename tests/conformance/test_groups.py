"""Groups that grow, shrink, return, and continue after a kill of the broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from families.group import Member, Stream, read, settle, wait_until

if TYPE_CHECKING:
    from gnomon.testing import KafkaBroker

    from families.family import Admin, Family

PARTITIONS = 6


@pytest.mark.parametrize("cooperative", [False, True], ids=["eager", "cooperative"])
def test_a_group_grows_to_three_and_shrinks_to_two_without_a_loss(
    family: Family, admin: Admin, topic: str, cooperative: bool
) -> None:
    if cooperative and "cooperative" in family.lacks:
        pytest.skip(f"{family.name} has no cooperative assignor")
    admin.create_topic(topic, PARTITIONS)

    def join() -> Member:
        return Member(lambda: family.member(topic, topic, cooperative=cooperative))

    stream = Stream(family, topic, PARTITIONS)
    members = [join()]
    try:
        settle(members, PARTITIONS)
        members += [join(), join()]
        settle(members, PARTITIONS)
        assert [len(member.owned[-1]) for member in members] == [2, 2, 2]
        grown = [len(member.records) for member in members]
        wait_until(lambda: all(len(m.records) > n for m, n in zip(members, grown, strict=True)), "all three consume")
        members[0].close()
        settle(members[1:], PARTITIONS)
        sent = stream.close()
        expected = {b"%d" % number for number in range(sent)}

        def consumed() -> set[bytes | None]:
            return {record.value for member in members for record in member.records}

        wait_until(lambda: consumed() == expected, f"all of {sent} records are consumed")
    finally:
        for member in members:
            member.close()
    places = {(record.partition, record.offset) for member in members for record in member.records}
    assert len(places) == sent


def test_a_group_continues_from_its_last_commit(family: Family, admin: Admin, topic: str) -> None:
    admin.create_topic(topic, 1)
    producer = family.producer()
    for number in range(20):
        producer.send(topic, b"%d" % number)
    producer.flush()
    first = family.member(topic, topic)
    assert [record.offset for record in read(first, 20)] == list(range(20))
    first.commit()
    first.close()
    for number in range(20, 30):
        producer.send(topic, b"%d" % number)
    producer.flush()
    producer.close()
    second = family.member(topic, topic)
    assert [record.offset for record in read(second, 10)] == list(range(20, 30))
    second.close()
    assert admin.committed(topic, topic) == {0: 20}


def test_a_static_member_returns_without_a_rebalance(family: Family, admin: Admin, topic: str) -> None:
    admin.create_topic(topic, 4)

    def join(instance: str) -> Member:
        return Member(lambda: family.member(topic, topic, instance=instance, session_ms=20_000))

    goes, stays = join("goes"), join("stays")
    settle([goes, stays], 4)
    owned, history = goes.owned[-1], len(stays.owned)
    goes.close()
    back = join("goes")
    settle([back, stays], 4)
    assert back.owned[-1] == owned
    assert len(stays.owned) == history
    back.close()
    stays.close()


def test_a_group_continues_after_a_kill_of_the_broker(own_broker: KafkaBroker, own_family: Family, topic: str) -> None:
    admin = own_family.admin()
    admin.create_topic(topic, 1)
    admin.close()
    producer = own_family.producer()

    def produce(numbers: range) -> None:
        for number in numbers:
            producer.send(topic, b"%d" % number)
        assert sorted(producer.flush()) == list(numbers)

    produce(range(20))
    member = own_family.member(topic, topic)
    assert [record.offset for record in read(member, 20)] == list(range(20))
    member.commit()
    own_broker.kill()
    own_broker.start()
    produce(range(20, 40))
    assert [record.offset for record in read(member, 20)] == list(range(20, 40))
    member.commit()
    member.close()
    own_broker.kill()
    own_broker.start()
    produce(range(40, 60))
    producer.close()
    later = own_family.member(topic, topic)
    assert [record.offset for record in read(later, 20)] == list(range(40, 60))
    later.close()


def test_an_idempotent_producer_survives_kills_of_the_broker(
    own_broker: KafkaBroker, own_family: Family, topic: str
) -> None:
    admin = own_family.admin()
    admin.create_topic(topic, 2)
    admin.close()
    stream = Stream(own_family, topic, 2, idempotent=True)
    for _ in range(2):
        begun = stream.sent
        wait_until(lambda begun=begun: stream.sent > begun + 100, "the producer goes on")
        own_broker.kill()
        own_broker.start()
    begun = stream.sent
    wait_until(lambda: stream.sent > begun + 50, "the producer goes on")
    sent = stream.close()
    for partition in range(2):
        numbers = range(partition, sent, 2)
        reader = own_family.reader(topic, partition, "earliest")
        found = read(reader, len(numbers))
        found += reader.poll(0.2)
        reader.close()
        assert [record.value for record in found] == [b"%d" % number for number in numbers]
