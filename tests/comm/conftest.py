"""Makes the cases of the contract importable, for a wrapped group must keep it too, and what processes suffer."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent / "contracts"))
sys.path.append(str(Path(__file__).parent.parent / "processes"))
