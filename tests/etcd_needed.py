"""Tests that need a real etcd."""

from __future__ import annotations

import pytest

from gnomon.testing.etcd_server import etcd_missing


def etcd_or_skip() -> None:
    """Skips the test, with the reason, if no etcd can be started."""
    missing = etcd_missing()
    if missing is not None:
        pytest.skip(f"NOT TESTED ON ETCD: {missing}")
