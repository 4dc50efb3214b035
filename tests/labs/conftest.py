"""Makes what the tests of all labs share importable."""

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path += [str(HERE), str(HERE.parent / "processes")]


@pytest.fixture(scope="session")
def nursery():
    """An interpreter that has loaded torch: programs of hand-outs are forked from it."""
    from nursery import Nursery

    from shoal_labs.check.nodes import PRELOADED

    started = Nursery({"OMP_NUM_THREADS": "1", "PATH": ""}, *PRELOADED)
    yield started
    started.close()
