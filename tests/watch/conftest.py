"""Makes what the tests of growing run folders share importable."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
