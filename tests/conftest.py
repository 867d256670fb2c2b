"""Puts tests/support on the path: shared helpers are plain modules there."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "support"))
