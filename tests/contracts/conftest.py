"""Makes the cases of this folder and of `bench/`, and the worlds of processes, importable, here and in the processes they start."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parent.parent / "processes"))
sys.path.append(str(Path(__file__).parent.parent.parent / "bench"))
