"""The shadows of a topic over HTTP, each answer also checked against the document of the API."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gnomon.broker.authorization.operation import Operation, ResourceType
from gnomon.broker.errors import KafkaError
from gnomon.metadata.client import MetadataUnavailable
from gnomon.testing.storms.metadata.counting_metadata import CountingMetadata
from gnomon.wire.kafka.errors import ErrorCode

Run = Callable[..., None]
SOURCE = "gnomon.shadow.source"
DONE = (204, "")


def test_put_replaces_the_list_and_keeps_shadows_that_are_in_both(administer: Run) -> None:
    async def scenario(admin: Any) -> None:
        assert await admin.shadows() == []
        assert await admin.change("PUT", names=["a", "b"]) == DONE
        assert await admin.shadows() == ["a", "b"]
        kept = admin.asked.topics.image.get("b").id
        assert await admin.change("PUT", names=["b", "c"]) == DONE
        assert await admin.shadows() == ["c", "b"], "in the order of places: what is new takes the first that is free"
        assert admin.asked.topics.image.get("b").id == kept, "what was to stay was not made anew"
        assert admin.asked.topics.image.get("a") is None
        assert await admin.change("PUT", names=[]) == DONE
        assert await admin.shadows() == []

    administer(scenario)


def test_post_adds_and_may_be_repeated(administer: Run) -> None:
    async def scenario(admin: Any) -> None:
        assert await admin.change("POST", names=["a"]) == DONE
        assert await admin.change("POST", names=["b", "a", "b"]) == DONE
        assert await admin.change("POST", names=[]) == DONE
        assert await admin.shadows() == ["a", "b"]

    administer(scenario)


def test_each_form_of_a_name_names_the_same_topic_and_another_namespace_another_topic(administer: Run) -> None:
    async def scenario(admin: Any) -> None:
        ways = ["persistent://public/default/a", "public/default/a", "a"]
        assert await admin.change("PUT", names=[*ways, "eu/sales/a", "persistent://eu/sales/a"]) == DONE
        assert await admin.shadows() == ["a", "eu/sales/a"]
        response = await admin.ask("GET", "/admin/v2/persistent/public/default/orders/shadowTopics")
        assert response.json() == ["persistent://public/default/a", "persistent://eu/sales/a"]
        response = await admin.ask("GET", "/admin/v2/persistent/eu/sales/a/stats")
        assert response.json()["source"] == "persistent://public/default/orders"

    administer(scenario)


def test_delete_removes_the_named_shadows_or_all(administer: Run) -> None:
    async def scenario(admin: Any) -> None:
        await admin.change("PUT", names=["a", "b", "c", "d", "e", "f", "g"])
        assert await admin.change("DELETE", params={"shadow": "persistent://public/default/a"}) == DONE
        assert await admin.change("DELETE", params=[("shadow", "b"), ("shadow", "b")]) == DONE
        assert await admin.change("DELETE", names=["c"]) == DONE
        assert await admin.shadows() == ["d", "e", "f", "g"]
        assert await admin.change("DELETE", names=["f"], params={"shadow": "g"}) == DONE
        assert await admin.change("DELETE", names=[]) == DONE
        assert await admin.shadows() == ["d", "e"], "an empty list names none"
        assert await admin.change("DELETE", params={"authoritative": "false"}) == DONE  # as Pulsar's clients do
        assert await admin.shadows() == []
        assert admin.asked.topics.image.get("orders") is not None

    administer(scenario)


def test_a_delete_with_a_misspelt_name_or_a_topic_that_is_no_shadow_deletes_nothing(administer: Run) -> None:
    async def scenario(admin: Any) -> None:
        await admin.change("PUT", names=["a", "b"])
        status, reason = await admin.change("DELETE", params={"shadwo": "a"})
        assert (status, reason) == (400, "parameter 'shadwo' is unknown: the only one is 'shadow'")
        assert (await admin.change("DELETE", params={"shadow": ""}))[0] == 400
        assert await admin.change("DELETE", names=["a", "nobody"]) == (
            404,
            "persistent://public/default/nobody is not a shadow of persistent://public/default/orders",
        )
        assert (await admin.change("DELETE", names=["orders"]))[0] == 404
        assert await admin.shadows() == ["a", "b"]

    administer(scenario)


def test_a_source_that_does_not_exist_is_404(administer: Run) -> None:
    async def scenario(admin: Any) -> None:
        for method in ("PUT", "POST", "DELETE"):
            status, reason = await admin.change(method, "nothing", None if method == "DELETE" else ["a"])
            assert (status, reason) == (404, "topic persistent://public/default/nothing does not exist")
        for path in ("nothing/shadowTopics", "nothing/stats", "n%C3%B6/stats", "..%20/stats", "%00/shadowTopics"):
            assert (await admin.ask("GET", f"/admin/v2/persistent/public/default/{path}")).status_code == 404

    administer(scenario)


def test_a_name_that_is_taken_is_409_and_nothing_is_changed(administer: Run) -> None:
    async def scenario(admin: Any) -> None:
        client = await admin.node.connect()
        await client.create_topic("plain")
        await client.create_topic("plain.old")
        await client.create_topic("other")
        await client.create_topic("others-copy", -1, {SOURCE: "other"})
        await admin.change("PUT", names=["a"])
        for taken, reason in (
            ("plain", "persistent://public/default/plain exists, and is not a shadow: choose another name"),
            ("orders", "persistent://public/default/orders exists, and is not a shadow: choose another name"),
            (
                "others-copy",
                "persistent://public/default/others-copy is a shadow of persistent://public/default/other already: "
                "choose another name",
            ),
            ("plain_old", "Topic 'plain_old' collides with existing topic: plain.old"),
        ):
            for method in ("PUT", "POST"):
                status, answered = await admin.change(method, names=["new", taken])
                assert (status, answered) == (409, reason)
        assert await admin.shadows() == ["a"]
        assert admin.asked.topics.image.get("new") is None

    administer(scenario)


def test_names_of_one_request_that_collide_are_refused_before_any_is_created(administer: Run) -> None:
    async def scenario(admin: Any) -> None:
        await admin.change("PUT", names=["a"])
        for method in ("PUT", "POST"):
            assert await admin.change(method, names=["new.old", "new_old"]) == (
                409,
                "persistent://public/default/new_old and persistent://public/default/new.old differ in '.' and '_' "
                "alone: choose another name",
            )
        assert await admin.shadows() == ["a"]

    administer(scenario)


def test_a_shadow_has_no_shadows(administer: Run) -> None:
    async def scenario(admin: Any) -> None:
        await admin.change("PUT", names=["a"])
        for method, names in (("PUT", ["b"]), ("POST", ["b"]), ("PUT", []), ("DELETE", None)):
            assert await admin.change(method, "a", names) == (
                412,
                "persistent://public/default/a is itself a shadow: make shadows of its source, "
                "persistent://public/default/orders",
            )
        assert await admin.shadows("a") == []

    administer(scenario)


def test_the_brokers_own_topics_neither_have_nor_are_shadows(administer: Run) -> None:
    async def scenario(admin: Any) -> None:
        for _ in ("before it is there", "when it is"):
            for method, names in (("PUT", ["a"]), ("DELETE", None)):
                status, reason = await admin.change(method, "__consumer_offsets", names)
                assert (status, "broker's own state" in reason) == (405, True)
            assert (await admin.change("POST", names=["a", "__consumer_offsets"]))[0] == 405
            await admin.asked.offsets_topic.made()
        assert await admin.shadows("__consumer_offsets") == []
        assert await admin.shadows() == []

    administer(scenario)


def test_without_cast_on_the_source_nothing_is_changed(administer: Run) -> None:
    async def scenario(admin: Any) -> None:
        await admin.change("PUT", names=["a"])
        admin.deciding.refuse({(Operation.CAST, ResourceType.TOPIC)}, {"orders"})
        for method, names in (("PUT", ["b"]), ("POST", ["b"]), ("DELETE", None), ("DELETE", ["a"])):
            status, reason = await admin.change(method, names=names)
            assert (status, "is not authorized for CAST on topic 'orders'" in reason) == (403, True)
        assert await admin.shadows() == ["a"]

    administer(scenario)


def test_no_shadow_is_deleted_while_topic_deletion_is_disabled(administer: Run) -> None:
    async def scenario(admin: Any) -> None:
        await admin.change("PUT", names=["a"])
        for method, names in (("PUT", ["b"]), ("DELETE", None)):
            status, reason = await admin.change(method, names=names)
            assert (status, reason) == (403, "no topic is deleted while delete.topic.enable is false")
        assert await admin.change("PUT", names=["a", "b"]) == DONE
        assert await admin.shadows() == ["a", "b"]

    administer(scenario, {"delete.topic.enable": "false"})


def test_a_method_that_is_not_served_is_405_and_the_answer_lists_the_served_methods(administer: Run) -> None:
    async def scenario(admin: Any) -> None:
        response = await admin.ask("PATCH", "/admin/v2/persistent/public/default/orders/shadowTopics")
        assert (response.status_code, response.headers["allow"]) == (405, "DELETE, GET, HEAD, POST, PUT")
        assert "PATCH is not served" in response.json()["reason"]
        response = await admin.ask("GET", "/admin/v2/persistent/public/default/orders/")
        assert (response.status_code, "openapi.json" in response.json()["reason"]) == (404, True)

    administer(scenario)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (KafkaError(ErrorCode.INVALID_CONFIG, "deleted meanwhile"), 412),
        (KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "no room"), 503),
        (MetadataUnavailable("no answer"), 503),
        (ZeroDivisionError("a bug"), 500),
    ],
)
def test_a_failed_change_is_answered_with_its_status_and_reason(
    administer: Run, monkeypatch: pytest.MonkeyPatch, error: Exception, status: int
) -> None:
    async def scenario(admin: Any) -> None:
        async def fail(*_: Any) -> None:
            raise error

        monkeypatch.setattr(admin.asked.topic_admin, "create", fail)
        send = admin._client.request if status == 500 else admin.ask  # a bug is not described
        response = await send("PUT", "/admin/v2/persistent/public/default/orders/shadowTopics", json=["a"])
        assert response.status_code == status
        known = str(error) if status != 500 else "the broker failed at this request"
        assert known in response.json()["reason"]
        assert [event for event, _ in admin.node.events if event == "admin_request_failed"] == (
            ["admin_request_failed"] if status == 500 else []
        )

    administer(scenario)


def test_a_shadow_that_another_client_creates_meanwhile_is_kept(
    administer: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(admin: Any) -> None:
        topics = admin.asked.topic_admin
        create = topics.create

        async def late(topic: Any) -> Any:
            monkeypatch.undo()
            for name in ("a", "theirs"):
                await create(topics.check_new(name, -1, {SOURCE: "orders"}))
            return await create(topic)

        monkeypatch.setattr(topics, "create", late)
        assert await admin.change("PUT", names=["a", "b"]) == DONE
        assert sorted(await admin.shadows()) == ["a", "b", "theirs"]

    administer(scenario)


def test_a_delete_succeeds_if_a_shadow_was_deleted_meanwhile(administer: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(admin: Any) -> None:
        await admin.change("PUT", names=["a", "b"])
        topics = admin.asked.topic_admin
        delete = topics.delete

        async def twice(topic: Any) -> None:
            await delete(topic)
            await delete(topic)

        monkeypatch.setattr(topics, "delete", twice)
        assert await admin.change("DELETE") == DONE
        assert await admin.shadows() == []

    administer(scenario)


def test_the_cost_of_an_unchanged_list_does_not_depend_on_its_length(administer: Run) -> None:
    async def scenario(admin: Any) -> None:
        names = [f"copy-{number}" for number in range(50)]
        costs = []
        for asked in (names[:1], names):
            assert await admin.change("PUT", names=asked) == DONE
            before = admin.asked.storage.metadata
            admin.asked.storage.metadata = counting = CountingMetadata(before)
            with counting.measure() as cost:
                assert await admin.change("PUT", names=asked) == DONE
            admin.asked.storage.metadata = before
            costs.append((cost.reads, cost.writes))
        assert costs == [costs[0]] * 2
        assert costs[0] <= (2, 0)

    administer(scenario)
