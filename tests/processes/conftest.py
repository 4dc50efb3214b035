"""Makes the helpers of this folder importable, here and in the processes that tests start."""

import os
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parent.parent / "contracts"))


@pytest.fixture
def launching_here(monkeypatch):
    """What workers that this process launches need; at the end none of them may be left."""
    from launching import HERE, orphan_killers_of, workers_of

    monkeypatch.setenv("PYTHONPATH", str(HERE))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    yield
    assert workers_of(os.getpid()) + orphan_killers_of(os.getpid()) == [], "nothing may be left behind"
