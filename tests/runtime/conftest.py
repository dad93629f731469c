from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # for the modules beside these tests: test folders are no packages

import pytest
import socket_handlers

from gnomon.runtime.loop.poller import EPOLL, SELECTORS


@pytest.fixture(params=[EPOLL, SELECTORS])
def each_poller(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs a test of the socket loop with each poller."""
    monkeypatch.setattr(socket_handlers, "POLLER", request.param)
