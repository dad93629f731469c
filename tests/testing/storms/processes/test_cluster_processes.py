"""The states that a cluster of processes reports."""

from __future__ import annotations

from pathlib import Path

from gnomon.testing.storms.processes.cluster_processes import ClusterProcesses


def test_a_node_that_was_asked_to_end_does_not_serve_until_it_was_started_again(tmp_path: Path) -> None:
    cluster = ClusterProcesses(tmp_path, None, bookies=0, brokers=1, disk_bytes=1 << 20, settings={})
    node = cluster.nodes["broker-1"]
    node.serves = True
    assert cluster.serves(node)
    cluster.stop(node)  # a broker that ends still answers metadata requests for a while, and so is ready
    assert not cluster.serves(node)
