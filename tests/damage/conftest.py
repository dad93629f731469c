"""Damaged stores, and what a broker or a bookie in a process of its own makes of them: `make damage`."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
