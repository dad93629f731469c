from __future__ import annotations

import json
import subprocess
from collections.abc import Callable

import pytest
import trio
import yaml

import gnomon
from gnomon.testing import KafkaBroker

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def test_a_topic_is_created_described_altered_and_deleted(ask: Run) -> None:
    asked = ("--partitions", 3, "--replication-factor", 1, "--config", "retention.ms=5000")
    created = ask("topic", "create", "one", *asked)
    assert (created.returncode, created.stdout) == (0, "")
    assert created.stderr == "created topic 'one' with 3 partitions\n"

    altered = ask(
        *("topic", "alter", "one", "--partitions", 4),
        *("--set", "segment.bytes=2000000", "--set", "max.message.bytes=9999", "--unset", "retention.ms"),
    )
    assert altered.returncode == 0, altered.stderr

    described = json.loads(ask("topic", "describe", "one", "--output", "json").stdout)
    assert described["partitions"][3] == {
        "partition": 3,
        "leader": 1,
        "earliest": 0,
        "latest": 0,
        "records": 0,
        "bytes": 0,
    }
    assert {row["config"]: row["source"] for row in described["configs"]} == {
        "max.message.bytes": "dynamic_topic_config",
        "segment.bytes": "dynamic_topic_config",
    }
    assert len(described["id"]) == 22

    deleted = ask("topic", "delete", "one")
    assert deleted.returncode == 0, deleted.stderr
    assert ask("topic", "describe", "one").returncode == 5


def test_topics_are_listed_in_every_format(ask: Run) -> None:
    ask("topic", "create", "listed")
    table = ask("topic", "list").stdout.splitlines()
    assert table[0].split() == ["TOPIC", "PARTITIONS", "INTERNAL", "SOURCE", "ID"]
    as_json = json.loads(ask("topic", "list", "--output", "json").stdout)
    assert yaml.safe_load(ask("topic", "list", "--output", "yaml").stdout) == as_json
    (row,) = [row for row in as_json if row["topic"] == "listed"]
    assert (row["partitions"], row["internal"], row["source"]) == (2, False, None)


def test_a_missing_or_existing_topic_ends_with_5_in_one_line(ask: Run) -> None:
    ask("topic", "create", "twice")
    again = ask("topic", "create", "twice")
    assert (again.returncode, again.stderr.count("\n")) == (5, 1)
    for missing in (("describe", "nope"), ("alter", "nope", "--set", "retention.ms=1"), ("delete", "nope")):
        done = ask("topic", *missing)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (5, "", 1), done.stderr
        assert "`gnomon topic list` shows all topics" in done.stderr
    both = ask("topic", "delete", "nope", "twice", "twice")
    assert both.returncode == 5
    assert "deleted topic 'twice'" in both.stderr


def test_a_value_that_the_broker_refuses_ends_with_2(ask: Run) -> None:
    ask("topic", "create", "valued")
    for wrong in (
        ("create", "refused", "--replication-factor", 2),
        ("create", "refused", "--config", "no.such.config=1"),
        ("create", "refused", "--config", "retention.ms=soon"),
        ("alter", "valued", "--set", "no.such.config=1"),
        ("alter", "valued", "--partitions", 1),
    ):
        done = ask("topic", *wrong)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr


def test_an_invalid_topic_name_ends_with_2_and_the_rule_for_names(inside: Run) -> None:
    for command in ("create", "create-shadow source", "describe", "stats", "alter --unset x", "delete", "truncate"):
        done = inside("topic", *command.split(), "b!d")
        assert (done.returncode, done.stdout) == (2, ""), done.stderr
        assert "topic name 'b!d': only letters, digits, '.', '_' and '-' are allowed" in done.stderr
    assert inside("produce", "a/b").returncode == 2
    assert inside("group", "reset-offsets", "g", "--to-latest", "--topic", "a/b").returncode == 2


def test_a_topic_of_the_default_namespace_may_be_given_by_its_full_name(ask: Run) -> None:
    created = ask("topic", "create", "public/default/whole")
    assert (created.returncode, created.stderr) == (0, "created topic 'whole' with 2 partitions\n")
    assert ask("topic", "delete", "public/default/whole").returncode == 0


def test_a_shadow_of_a_missing_source_and_a_colliding_name_end_with_5(ask: Run) -> None:
    ask("topic", "create", "like.another")
    lost = ask("topic", "create-shadow", "nope", "like-nothing")
    assert (lost.returncode, lost.stderr.count("\n")) == (5, 1), lost.stderr
    assert "`gnomon topic list` shows all topics" in lost.stderr
    for alike in (("create", "like_another"), ("create-shadow", "like.another", "like_another")):
        done = ask("topic", *alike)
        assert (done.returncode, done.stderr.count("\n")) == (5, 1), done.stderr
        assert "collides with existing topic: like.another" in done.stderr


def test_changes_of_an_internal_topic_end_with_5_and_the_reason(ask: Run) -> None:
    own = "__consumer_offsets"
    ask("topic", "create", "kept")
    for change in (
        ("topic", "create", own),
        ("topic", "alter", own, "--partitions", 60),
        ("topic", "truncate", own),
        ("topic", "delete-records", own, "--before", "end"),
        ("topic", "delete", "kept", own),
        ("produce", own),
    ):
        done = ask(*change, stdin="x\n")
        assert (done.returncode, done.stdout) == (5, ""), done.stderr
        assert done.stderr == (
            "Error: topic '__consumer_offsets' is the broker's own, which keeps its state there: leave it alone\n"
        )
    assert ask("topic", "describe", "kept").returncode == 0


def test_a_refused_connection_ends_with_3_and_advice(gnomon: Run) -> None:
    done = gnomon("topic", "list", "--bootstrap-server", "127.0.0.1:1")
    assert (done.returncode, done.stdout) == (3, "")
    assert "Connection refused" in done.stderr
    assert "gnomon standalone" in done.stderr
    assert done.stderr.count("\n") == 1


def test_bad_usage_ends_with_2(inside: Run) -> None:
    assert inside("topic", "create").returncode == 2
    assert inside("topic", "alter", "x").returncode == 2
    assert inside("topic", "create", "x", "--config", "novalue").returncode == 2
    assert inside("topic", "list", "--bootstrap-server", "host:port").returncode == 2


def test_a_shadow_is_created_described_and_deleted_before_its_source(ask: Run) -> None:
    ask("topic", "create", "cast", "--partitions", 3, "--config", "retention.ms=5000")
    created = ask("topic", "create-shadow", "cast", "cast-copy")
    assert (created.returncode, created.stderr) == (0, "created shadow 'cast-copy' of topic 'cast'\n")
    described = json.loads(ask("topic", "describe", "cast-copy", "--output", "json").stdout)
    assert len(described["partitions"]) == 3
    assert (described["source"], described["shadows"]) == ("cast", [])
    of_source = json.loads(ask("topic", "describe", "cast", "--output", "json").stdout)
    assert (of_source["source"], of_source["shadows"]) == (None, ["cast-copy"])
    listed = {row["topic"]: row["source"] for row in json.loads(ask("topic", "list", "--output", "json").stdout)}
    assert (listed["cast"], listed["cast-copy"]) == (None, "cast")
    assert {row["config"]: row["value"] for row in described["configs"]} == {
        "gnomon.shadow.source": "cast",
        "retention.ms": "5000",
    }
    early = ask("topic", "delete", "cast")
    assert early.returncode == 1
    assert early.stderr.splitlines()[0] == "topic 'cast' has shadows that show its records: delete cast-copy first"
    chained = ask("topic", "create-shadow", "cast-copy", "third")
    assert chained.returncode == 2
    assert "is itself a shadow" in chained.stderr
    assert ask("topic", "delete", "cast-copy").returncode == 0
    assert ask("topic", "delete", "cast").returncode == 0


def test_a_topic_is_truncated_and_its_shadow_refuses_with_the_name_of_the_source(ask: Run) -> None:
    ask("topic", "create", "cut", "--partitions", 2)
    ask("topic", "create-shadow", "cut", "cut-copy")
    for number in range(3):
        assert ask("produce", "cut", "--partition", 1, stdin=f"{number}\n").returncode == 0
    refused = ask("topic", "truncate", "cut-copy")
    assert (refused.returncode, refused.stderr.strip()) == (
        1,
        "Error: topic 'cut-copy' is a shadow of 'cut': truncate the source",
    )
    done = ask("topic", "truncate", "cut")
    assert (done.returncode, sorted(done.stderr.splitlines())) == (
        0,
        ["truncated partition 0 of topic 'cut'", "truncated partition 1 of topic 'cut'"],
    )
    described = json.loads(ask("topic", "describe", "cut", "--output", "json").stdout)
    assert [(row["earliest"], row["latest"]) for row in described["partitions"]] == [(0, 0), (3, 3)]
    assert ask("topic", "truncate", "nope").returncode == 5


@pytest.mark.parametrize("command", [("truncate",), ("delete-records", "--before", "1")])
def test_the_refusal_to_delete_records_of_a_table_names_the_command_for_a_snapshot(
    ask: Run, command: tuple[str, ...]
) -> None:
    name, (verb, *options) = f"table-{command[0]}", command
    assert ask("topic", "create", name, "--partitions", 1, "--config", "gnomon.view=kv").returncode == 0
    assert ask("produce", name, "--key-separator", ":", stdin="k:v\n").returncode == 0
    refused = ask("topic", verb, name, *options)
    assert ask("topic", "delete", name).returncode == 0  # other tests list the tables of this broker
    assert refused.returncode != 0
    assert f"`gnomon kv snapshot {name}`" in refused.stderr


def starts(ask: Run, topic: str) -> list[tuple[int, int]]:
    described = json.loads(ask("topic", "describe", topic, "--output", "json").stdout)
    return [(row["earliest"], row["latest"]) for row in described["partitions"]]


def test_records_before_an_offset_a_time_or_the_end_are_deleted(ask: Run) -> None:
    ask("topic", "create", "trimmed", "--partitions", 2, "--config", "retention.ms=-1")
    ask("topic", "create-shadow", "trimmed", "trimmed-copy")
    lines = [{"value": str(at), "partition": 1, "timestamp_ms": 1000 * at + 1} for at in range(9)]
    assert ask("produce", "trimmed", "--format", "json", stdin="\n".join(map(json.dumps, lines))).returncode == 0

    def trim(before: str, *more: object) -> list[tuple[int, int, int]]:
        done = ask("topic", "delete-records", "trimmed", "--before", before, *more, "--output", "json")
        assert done.returncode == 0, done.stderr
        return [(row["partition"], row["before"], row["after"]) for row in json.loads(done.stdout)]

    assert trim("3", "--partition", 1, "--dry-run") == [(1, 0, 3)]
    assert starts(ask, "trimmed") == [(0, 0), (0, 9)]
    assert trim("3", "--partition", 1) == [(1, 0, 3)]
    assert trim("2", "--partition", 1) == [(1, 3, 3)]
    assert starts(ask, "trimmed") == [(0, 0), (3, 9)]
    assert trim("1970-01-01T00:00:05Z") == [(0, 0, 0), (1, 3, 5)]
    assert ask("consume", "trimmed", "--to", "end").stdout.split() == ["5", "6", "7", "8"]
    assert trim("end") == [(0, 0, 0), (1, 5, 9)]
    assert starts(ask, "trimmed-copy") == [(0, 0), (9, 9)]


def test_a_deletion_of_records_that_cannot_be_is_refused_with_the_way_on(ask: Run) -> None:
    ask("topic", "create", "untrimmed", "--partitions", 2)
    ask("topic", "create-shadow", "untrimmed", "untrimmed-copy")
    ask("produce", "untrimmed", "--partition", 0, stdin="one\ntwo\n")
    for code, problem, *given in (
        (5, "partition 0 of topic 'untrimmed' ends at offset 2: give no later one", "untrimmed", "--partition", 0),
        (2, "an offset counts in one partition, and 'untrimmed' has several: give one --partition", "untrimmed"),
        (5, "topic 'untrimmed' has no partition 2: it has 0 to 1", "untrimmed", "--partition", 2),
        (1, "'untrimmed-copy' is a shadow of 'untrimmed': delete the records of the source", "untrimmed-copy"),
        (5, "`gnomon topic list` shows all topics", "nope"),
    ):
        before = "latest" if given == ["untrimmed-copy"] else "3"
        done = ask("topic", "delete-records", *given, "--before", before)
        assert (done.returncode, done.stdout) == (code, ""), done.stderr
        assert problem in done.stderr
    assert starts(ask, "untrimmed") == [(0, 2), (0, 0)]


def test_stats_shows_the_replication_to_each_shadow_and_reports_a_missing_topic(ask: Run, broker: KafkaBroker) -> None:
    def stats(topic: str) -> list[dict[str, object]]:
        found = ask("topic", "stats", topic, "--native-address", broker.native_address, "--output", "json")
        assert found.returncode == 0, found.stderr
        shown = json.loads(found.stdout)
        assert (shown["topic"], shown["holds"]) == (topic, [])
        rows: list[dict[str, object]] = shown["shadows"]
        return rows

    ask("topic", "create", "told", "--partitions", 1)
    ask("topic", "create-shadow", "told", "told-copy")
    assert stats("told") == []
    ask("produce", "told", stdin="one\ntwo\n")
    (row,) = stats("told")
    assert (row["shadow"], row["partition"], row["connected"]) == ("told-copy", 0, True)
    assert (row["backlog_entries"], row["last_segment"], row["refused"]) == (0, 0, 0)
    ask("topic", "create-shadow", "told", "told-twice")
    ask("produce", "told", stdin="three\n")
    assert [row["shadow"] for row in stats("told-copy")] == ["told-copy"]
    assert {row["shadow"] for row in stats("told")} == {"told-copy", "told-twice"}
    missing = ask("topic", "stats", "nothing", "--native-address", broker.native_address)
    advice = "`gnomon topic list` shows all topics"
    assert (missing.returncode, missing.stderr) == (5, f"Error: topic 'nothing' does not exist: {advice}\n")
    nobody = ask("topic", "stats", "told", "--native-address", "127.0.0.1:1")
    assert nobody.returncode == 3
    assert "--native-address" in nobody.stderr
    deleted = ask("topic", "delete", "told", "told-copy", "told-twice")
    assert deleted.returncode == 0, deleted.stderr


def test_stats_shows_the_number_and_the_lowest_offset_of_the_holds_of_readers(ask: Run, broker: KafkaBroker) -> None:
    def holds() -> list[dict[str, object]]:
        found = ask("topic", "stats", "planned", "--native-address", broker.native_address, "--output", "json")
        assert found.returncode == 0, found.stderr
        rows: list[dict[str, object]] = json.loads(found.stdout)["holds"]
        return rows

    async def plan(name: str, offset: int) -> None:
        async with gnomon.connect(broker.native_address) as client:
            await client.read_plans.plan("planned", {0: (offset, 3)}, hold=name, hold_seconds=600)

    ask("topic", "create", "planned", "--partitions", 2)
    ask("produce", "planned", "--partition", 0, stdin="one\ntwo\nthree\n")
    assert holds() == []
    trio.run(plan, "nightly", 2)
    trio.run(plan, "hourly", 1)
    assert holds() == [{"partition": 0, "holds": 2, "offset": 1}]
    assert ask("topic", "delete", "planned").returncode == 0


def test_several_topics_are_created_described_and_deleted_each_with_its_own_result(ask: Run) -> None:
    created = ask("topic", "create", "many-a", "many-b", "--partitions", 2)
    assert (created.returncode, created.stderr) == (
        0,
        "created topic 'many-a' with 2 partitions\ncreated topic 'many-b' with 2 partitions\n",
    )
    partly = ask("topic", "create", "many-b", "many-c")
    assert (partly.returncode, partly.stderr.count("\n")) == (5, 2)
    assert "created topic 'many-c'" in partly.stderr
    assert "cannot create topic 'many-b': Topic 'many-b' already exists" in partly.stderr

    described = ask("topic", "describe", "many-a", "absent", "many-c", "--output", "json")
    assert [record["topic"] for record in json.loads(described.stdout)] == ["many-a", "many-c"]
    assert (described.returncode, "cannot describe topic 'absent'" in described.stderr) == (5, True)
    assert ask("topic", "describe", "many-a", "many-c").stdout.count("PARTITION  LEADER") == 2

    deleted = ask("topic", "delete", "many-a", "absent", "many-b", "many-c")
    assert deleted.returncode == 5
    assert sorted(deleted.stderr.splitlines())[1:] == [f"deleted topic 'many-{letter}'" for letter in "abc"]


def test_a_topic_that_exists_or_is_missing_is_no_error_on_request(ask: Run) -> None:
    for line in ("created topic 'once' with 2 partitions", "topic 'once' exists already: it is left as it is"):
        done = ask("topic", "create", "once", "--if-not-exists")
        assert (done.returncode, done.stderr) == (0, f"{line}\n")
    for line in ("deleted topic 'once'", "there is no topic 'once'"):
        done = ask("topic", "delete", "once", "--if-exists")
        assert (done.returncode, done.stderr) == (0, f"{line}\n")
    refused = ask("topic", "create", "once", "--if-not-exists", "--config", "retention.ms=never")
    assert refused.returncode == 2


def test_a_misspelt_config_is_answered_with_the_nearest_one(ask: Run) -> None:
    ask("topic", "create", "spelt")
    for words in (
        ("create", "spelled", "--config", "retention.mss=1"),
        ("alter", "spelt", "--set", "retention.mss=1"),
        ("alter", "spelt", "--unset", "retention.mss"),
    ):
        done = ask("topic", *words)
        assert done.returncode == 2
        assert done.stderr.endswith("Unknown topic config name: retention.mss. Did you mean 'retention.ms'?\n")
    assert "Did you mean" not in ask("topic", "alter", "spelt", "--set", "xyzzy=1").stderr
    assert "Did you mean" not in ask("topic", "alter", "spelt", "--set", "retention.ms=x").stderr


def test_describe_shows_records_bytes_and_on_request_every_config(ask: Run) -> None:
    ask("topic", "create", "sized", "--partitions", 2, "--config", "retention.ms=5000000")
    ask("produce", "sized", "--partition", 1, stdin="a\n" * 10)
    described = json.loads(ask("topic", "describe", "sized", "--all-configs", "--output", "json").stdout)
    empty, full = described["partitions"]
    assert (empty["records"], empty["bytes"], full["records"]) == (0, 0, 10)
    assert 10 * len("a") < full["bytes"] < 2000
    assert (described["records"], described["bytes"]) == (10, full["bytes"])
    configs = {row["config"]: (row["value"], row["source"]) for row in described["configs"]}
    assert configs["retention.ms"] == ("5000000", "dynamic_topic_config")
    assert configs["cleanup.policy"] == ("delete", "default_config")
    few = json.loads(ask("topic", "describe", "sized", "--output", "json").stdout)["configs"]
    assert [row["config"] for row in few] == ["retention.ms"]
