"""Hostile requests, sent to a broker in a process of its own beside a healthy client: `make attacks`."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
