from __future__ import annotations

import sys
from pathlib import Path

# The toy nodes beside these tests are modules of their own: some tests run them as scripts.
sys.path.insert(0, str(Path(__file__).parent))
