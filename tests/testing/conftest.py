from __future__ import annotations

import sys
from pathlib import Path

# The toy nodes in this folder are modules of their own, since other processes import them too.
sys.path.insert(0, str(Path(__file__).parent))
