"""Makes the runs of the tests of comparisons importable."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "compare"))
