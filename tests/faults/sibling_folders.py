"""Makes the modules of this folder importable, and the helpers that they share with other tests."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
for folder in (HERE, HERE.parent / "processes", HERE.parent / "cli"):
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
