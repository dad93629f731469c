from __future__ import annotations

import sys
from pathlib import Path

import pytest

from gnomon.broker.kafka import fetch

sys.path.insert(0, str(Path(__file__).parent))  # for the modules beside these tests: test folders are no packages


@pytest.fixture(params=["Poll", "LongPoll"])
def either_poll(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs the test twice: fetches are answered in one turn, or all over several turns."""
    if request.param == "LongPoll":
        monkeypatch.setattr(fetch, "ELEMENTS_AT_ONCE", 0)
