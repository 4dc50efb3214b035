"""Makes importable, here and in processes that tests start: the gallery and its pool of workers."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
