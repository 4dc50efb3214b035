"""Makes the modules of the suite importable."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
import sibling_folders  # noqa: F401
