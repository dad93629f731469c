"""The rules of the house: which module may import which (docs/ARCHITECTURE.md, "Floors")."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # for `import_graph`: test folders are no packages

from import_graph import FLOORS, circles, graph, module_of, reaching, upward, wings

ROOT = Path(__file__).parents[2]
SPARK = ROOT / "spark"
PURE = (
    "wire",
    "runtime/backoff.py",
    "runtime/state_table.py",
    "runtime/settings/endpoint.py",
    "metadata/messages.py",
    "metadata/draft.py",
    "metadata/state.py",
    "metadata/records.py",
    "metadata/etcd/json.py",
    "bookie/digest.py",
    "bookie/entry.py",
    "bookie/placement.py",
    "bookie/record.py",
    "bookie/copies/compared_copies.py",
    "bookie/ledgers/writer.py",
    "bookie/ledgers/reader.py",
    "bookie/ledgers/recovery.py",
    "broker/admin/names.py",
    "broker/admin/tables/key_condition.py",
    "broker/admin/tables/merged_page.py",
    "broker/admin/tables/table_answers.py",
    "broker/admin/tables/table_path.py",
    "broker/admin/tables/table_query.py",
    "broker/admin/tables/transaction_body.py",
    "broker/admin/tables/unfit_request.py",
    "broker/authorization",
    "broker/kafka/guards",
    "broker/topics/creation_budget.py",
    "broker/topics/replicas.py",
    "broker/placement/leadership.py",
    "broker/partition/appends.py",
    "broker/partition/unpacking/batch_client.py",
    "log/audit/audited_batch.py",
    "log/audit/audited_chain.py",
    "log/audit/audited_entries.py",
    "log/audit/audited_shadow.py",
    "log/audit/fault_runs.py",
    "log/audit/finding.py",
    "log/chain_image.py",
    "broker/partition/state.py",
    "log/cut.py",
    "log/entry.py",
    "log/plans/read_hold.py",
    "log/plans/planned_entries.py",
    "log/plans/read_plan.py",
    "broker/partition/log.py",
    "broker/partition/producers.py",
    "broker/partition/conditions/terms.py",
    "broker/partition/refused_batches.py",
    "broker/partition/log_view.py",
    "broker/tables/batch_entries.py",
    "broker/tables/engines/layers.py",
    "broker/tables/engines/memory_engine.py",
    "broker/tables/kept_batches.py",
    "broker/tables/recent_operations.py",
    "broker/tables/stored/store_forms.py",
    "broker/tables/engines/table_image.py",
    "broker/tables/table_state.py",
    "broker/tables/transaction.py",
    "broker/tables/watches/watched_batch.py",
    "log/tables",
    "log/segment_record.py",
    "broker/shadow/image.py",
    "broker/shadow/state.py",
    "broker/coordination/state_machine.py",
    "broker/coordination/state_log.py",
    "broker/groups/group_shard.py",
    "broker/replication/outbox.py",
    "broker/retention/holdups.py",
    "broker/replication/protocol.py",
    "broker/replication/stats.py",
    "broker/groups/call.py",
    "broker/groups/expiry.py",
    "broker/groups/group.py",
    "broker/groups/group_admin.py",
    "broker/groups/member.py",
    "broker/groups/membership.py",
    "broker/groups/offsets.py",
    "broker/groups/rebalance.py",
    "broker/groups/stored_groups.py",
    "broker/groups/records.py",
    "broker/groups/turn.py",
    "broker/topics/topic_image.py",
    "log/dlsn.py",
    "log/sn.py",
    "broker/subscriptions/cursor.py",
    "broker/subscriptions/runs.py",
    "broker/subscriptions/subscription.py",
    "broker/subscriptions/cohort.py",
    "broker/subscriptions/allowance.py",
    "broker/subscriptions/channel.py",
    "broker/subscriptions/key_slots.py",
    "broker/subscriptions/record_slots.py",
    "broker/subscriptions/stations.py",
    "broker/subscriptions/dispatcher.py",
    "broker/subscriptions/positions/record.py",
    "broker/subscriptions/positions/record_changes.py",
    "client/addresses.py",
    "client/consumer_options.py",
    "client/delivered_batch.py",
    "client/kafka/topic_partition.py",
    "client/described_subscription.py",
    "client/protocol.py",
    "client/writes/arguments.py",
    "client/writes/write_pipeline.py",
    "client/writes/client_write.py",
    "client/tables/compared.py",
    "client/tables/numbers.py",
    "spark/writing/applying.py",
    "spark/batches.py",
    "spark/columns.py",
    "spark/decisions.py",
    "spark/formats/avro_schema.py",
    "spark/formats/avro_values.py",
    "spark/formats/csv_values.py",
    "spark/formats/ddl.py",
    "spark/formats/decoder.py",
    "spark/formats/json_inference.py",
    "spark/formats/json_values.py",
    "spark/formats/plain_values.py",
    "spark/given_options.py",
    "spark/offsets.py",
    "spark/options.py",
    "spark/partitioner.py",
    "spark/pipelines/files/next_files.py",
    "spark/pipelines/progress.py",
    "spark/pipelines/settings",
    "spark/pipelines/tasks/decoding.py",
    "spark/pipelines/tasks/spark_schema.py",
    "spark/writing/row_encoder.py",
    "spark/writing/sink_options.py",
    "spark/splits.py",
    "spark/writing/target.py",
    "spark/row_count.py",
    "spark/tables/data_files/data_file.py",
    "spark/tables/delta_rules.py",
    "spark/tables/data_files/file_statistics.py",
    "spark/tables/manifest.py",
    "spark/tables/data_files/partition_values.py",
    "spark/tables/schema_fit.py",
    "spark/tables/table.py",
    "spark/task.py",
    "broker/kafka/connections/connection.py",
    "broker/kafka/connections/exchange.py",
    "broker/kafka/fetch_sessions.py",
    "broker/kafka/connections/request_memory.py",
)
"""Modules without effects: no Trio, no clock, no disk. The same holds for the modules that they import."""
WINGS = (
    "errors",
    "limits",
    "storage",
    "authorization",
    "producer_ids",
    "partition",
    "configs",
    "placement",
    "tables",
    "coordination",
    "groups",
    "subscriptions",
    "topics",
    "shadow",
    "in_use",
    "state_logs",
    "replication",
    "retention",
    "kafka",
    "native",
    "topic_metrics",
    "admin",
    "broker",
    "node",
    "clustered",
    "stores",
    "standalone",
)
"""The wings of the broker, and its loose files, from the bottom up: each may import those before it."""
ASSEMBLY = ("broker.node", "broker.clustered", "broker.standalone")
"""The modules that see all parts of a broker, beside `broker.broker` itself."""
NOT_PURE = {"trio", "lmdb", "time", "os", "socket", "threading", "asyncio", "random"}
PURE_SPARK_MAY_IMPORT = {
    *("numpy", "pyarrow", "msgpack", "crc32c", "fastavro"),
    *("__future__", "array", "base64", "collections", "dataclasses", "datetime", "decimal", "difflib", "enum", "io"),
    *("itertools", "json", "math", "pathlib", "re", "struct", "types", "typing", "urllib.parse", "uuid"),
}
"""The modules outside of gnomon that pure modules of `spark` may import: tasks load them first, in each worker."""


def sources() -> Iterator[Path]:
    for floor in FLOORS:
        yield from sorted((ROOT / floor).rglob("*.py"))


@cache
def imports(path: Path) -> list[tuple[str, bool]]:
    """Every imported module, and whether the import is for types alone."""
    tree = ast.parse(path.read_text())
    typing_only = {
        id(child)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        for child in ast.walk(node)
    }
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(alias.name, id(node) in typing_only) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found.append((node.module or "", id(node) in typing_only))
    return found


def test_imports_run_downward_only() -> None:
    assert upward(graph()) == []


def test_no_modules_import_each_other_not_even_for_types() -> None:
    assert circles(graph()) == []


def test_no_wings_import_each_other() -> None:
    assert circles(wings(graph())) == []


def test_the_storage_node_and_the_ledger_client_do_not_import_each_other() -> None:
    found = wings(graph())
    assert found["bookie.storage"] & {"bookie.ledgers", "bookie.registry", "bookie.remote", "bookie.repair"} == set()
    assert found["bookie.ledgers"] & {"bookie.storage", "bookie.local_bookie", "bookie.node", "bookie.repair"} == set()


def plant(root: Path, module: str, text: str) -> None:
    path = root / f"{module.replace('.', '/')}.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_a_planted_upward_import_and_a_planted_circle_of_types_are_found(tmp_path: Path) -> None:
    plant(tmp_path, "wire.frame", "def late() -> None:\n    from gnomon.broker import node\n")
    plant(tmp_path, "broker.node", "import gnomon.broker.topics\n")
    circle = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from gnomon.broker.node import Node\n"
    plant(tmp_path, "broker.topics", circle)
    planted = graph(tmp_path)
    assert upward(planted) == ["wire.frame imports broker.node"]
    assert circles(planted) == [("broker.node", "broker.topics")]


def broker_wings() -> dict[str, set[str]]:
    modules = {name: imported for name, imported in graph().items() if name.startswith("broker.")}
    return {
        name.removeprefix("broker."): {wing.removeprefix("broker.") for wing in imported if wing.startswith("broker.")}
        for name, imported in wings(modules).items()
    }


def test_the_wings_of_the_broker_have_an_order() -> None:
    found = broker_wings()
    assert sorted(found) == sorted(WINGS)
    wrong = [
        f"{name} imports {other}"
        for name, imported in found.items()
        for other in sorted(imported)
        if WINGS.index(other) > WINGS.index(name)
    ]
    assert wrong == []


def test_only_the_assembly_imports_the_whole_broker() -> None:
    seen_by = [name for name, imported in graph().items() if "broker.broker" in imported]
    assert [name for name in seen_by if name.startswith("broker.") and name not in ASSEMBLY] == []
    assert [name for name in seen_by if name.startswith("client.")] == []


def test_a_broker_and_spark_do_not_import_each_other() -> None:
    found = [f"{name} imports {each}" for name, imported in graph().items() for each in imported]
    assert [line for line in found if line.startswith("broker.") and " imports spark." in line] == []
    assert [line for line in found if line.startswith("spark.") and " imports broker." in line] == []


def test_a_planted_circle_between_wings_is_found(tmp_path: Path) -> None:
    plant(tmp_path, "broker.kafka.connections.server", "from gnomon.broker.native import hosts\n")
    plant(tmp_path, "broker.native.server", "from gnomon.broker.kafka.connections import server\n")
    plant(tmp_path, "broker.native.hosts", "")
    planted = graph(tmp_path)
    assert circles(planted) == []
    assert circles(wings(planted)) == [("broker.kafka", "broker.native")]


def is_pure(path: Path) -> bool:
    relative = str(path.relative_to(ROOT))
    return any(relative == pure or relative.startswith(f"{pure}/") for pure in PURE)


def touched(path: Path) -> list[str]:
    """The modules of the outside world that a module imports; imports for types do not count."""
    names = {name for name, typing_only in imports(path) if not typing_only and name != "random"}
    return sorted(name for name in names if name.split(".")[0] in NOT_PURE)


def test_pure_modules_and_their_imports_do_not_touch_the_outside_world() -> None:
    impure = {module_of(path): touched(path) for path in sources() if touched(path)}
    pure = [module_of(path) for path in sources() if is_pure(path)]
    assert reaching(graph(), pure, impure) == []


def test_a_planted_pure_module_that_reaches_the_world_through_another_is_found(tmp_path: Path) -> None:
    plant(tmp_path, "log.rules", "import gnomon.log.helped\n")
    plant(tmp_path, "log.helped", "from gnomon.runtime import clock\n")
    plant(tmp_path, "runtime.clock", "import time\n")
    assert reaching(graph(tmp_path), ["log.rules"], {"runtime.clock"}) == [
        "log.rules imports log.helped imports runtime.clock"
    ]


def foreign(path: Path) -> list[str]:
    """The modules that a pure module of Spark imports although PURE_SPARK_MAY_IMPORT does not have them."""
    names = {name for name, typing_only in imports(path) if not typing_only and not name.startswith("gnomon.")}
    return sorted(name for name in names if not {name, name.partition(".")[0]} & PURE_SPARK_MAY_IMPORT)


def test_pure_modules_of_spark_import_numpy_and_pyarrow_and_few_others() -> None:
    found = {module_of(path): foreign(path) for path in sources() if is_pure(path) and path.is_relative_to(SPARK)}
    assert len(found) > 30
    assert {module: names for module, names in found.items() if names} == {}


def test_a_planted_import_of_another_package_in_a_pure_module_of_spark_is_found(tmp_path: Path) -> None:
    text = "import numpy as np\nimport urllib.parse\nfrom pyarrow import compute\nfrom gnomon.spark import offsets\n"
    plant(tmp_path, "spark.columns", f"{text}def late() -> None:\n    import pandas\n    from urllib import request\n")
    assert foreign(tmp_path / "spark" / "columns.py") == ["pandas", "urllib"]


def test_every_module_named_pure_exists() -> None:
    assert [pure for pure in PURE if not (ROOT / pure).exists()] == []


def test_native_calls_and_shadows_do_not_import_each_other() -> None:
    imported = wings(graph())
    assert "broker.native" not in imported["broker.shadow"]
    assert "broker.shadow" not in imported["broker.native"]


def test_the_log_and_the_broker_use_storage_only_through_its_clients() -> None:
    clients = {
        "gnomon.metadata.client",
        "gnomon.metadata.cluster_id",
        "gnomon.metadata.follower",
        "gnomon.metadata.presence",
        "gnomon.bookie.ledgers.catalog",
        "gnomon.bookie.errors",
        "gnomon.bookie.ids",
        "gnomon.bookie.record",
    }
    wrong = []
    for path in [path for floor in ("log", "broker") for path in sorted((ROOT / floor).rglob("*.py"))]:
        if path.name in ("standalone.py", "stores.py", "clustered.py"):  # these build a whole node
            continue
        for name, _ in imports(path):
            if name.startswith(("gnomon.metadata", "gnomon.bookie")) and name not in clients:
                wrong.append(f"{path.relative_to(ROOT)} imports {name}")
    assert wrong == []


def test_only_the_drivers_of_spark_import_pyspark() -> None:
    found = {
        str(path.relative_to(ROOT))
        for path in sources()
        for module, typing_only in imports(path)
        if module.partition(".")[0] == "pyspark" and not typing_only
    }
    assert found == {
        "spark/source.py",
        "spark/sink.py",
        "spark/pipelines/files/file_rows.py",
        "spark/pipelines/frames.py",
        "spark/pipelines/runner.py",
        "spark/pipelines/session.py",
    }
