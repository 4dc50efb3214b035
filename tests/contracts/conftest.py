"""Makes importable, here and in processes that tests start: the cases of this folder and of `bench/`, the worlds."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parent.parent / "processes"))
sys.path.append(str(Path(__file__).parent.parent.parent / "bench"))
