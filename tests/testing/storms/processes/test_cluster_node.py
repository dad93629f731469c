"""A process of a cluster over its starts: an etcd, which prints no ready line."""

from __future__ import annotations

import signal
from pathlib import Path

from etcd_needed import etcd_or_skip

from gnomon.testing.storms.processes.cluster_node import EtcdNode
from gnomon.testing.storms.processes.ledger_processes import wait_until


def test_an_etcd_is_paused_and_killed_and_serves_again_at_the_same_address(tmp_path: Path) -> None:
    etcd_or_skip()
    node = EtcdNode("metadata", None, tmp_path / "metadata.log", tmp_path / "metadata")

    def served() -> bool:
        node.look()
        return node.serves

    try:
        node.start()
        wait_until(served, "it serves", 30)
        where = node.ready["metadata"]
        assert where.startswith("etcd://127.0.0.1:")
        node.signal(signal.SIGSTOP)
        wait_until(lambda: node.page("/readyz") == "", "its threads stop, one after the other", 30)
        node.signal(signal.SIGCONT)
        assert "true" in node.page("/readyz")
        node.kill()
        assert not node.running
        node.start()
        wait_until(served, "it serves again", 30)
        assert node.ready["metadata"] == where
        node.signal(signal.SIGTERM)
        code = node.wait(30)
        assert code is not None
        assert node.ended_well(code)
        assert not node.ended_well(1)
    finally:
        node.kill()
