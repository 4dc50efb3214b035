"""Makes what the tests of timelines share importable."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
