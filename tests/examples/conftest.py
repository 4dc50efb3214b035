"""Makes importable: the programs of 100 lines, and the strategies of the contracts, with which they are compared."""

import sys
from pathlib import Path

TESTS = Path(__file__).parent.parent
for folder in ("examples", "contracts", "strategies/server", "processes", "../examples/in_100_lines"):
    sys.path.append(str((TESTS / folder).resolve()))
