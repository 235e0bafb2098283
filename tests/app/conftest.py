"""Small language models of the tests of roles, and the wrong values of the hostile ones."""

import sys
from pathlib import Path

for room in ("behaviour", "hostile"):
    sys.path.insert(0, str(Path(__file__).parent.parent / room))
