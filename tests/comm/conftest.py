"""Makes the cases of the contract importable: a wrapped group must keep it too."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent / "contracts"))
