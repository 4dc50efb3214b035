"""Makes the cases of the contracts importable: a strategy is tried here on the same model and batches."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent / "contracts"))
