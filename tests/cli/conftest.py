"""A terminal of one width for every test, whatever the one is that they are started from."""

import sys
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "110")


sys.path.append(str(Path(__file__).parent))
