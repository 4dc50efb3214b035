"""A terminal of one width for every test, whatever the one is that they are started from."""

import pytest


@pytest.fixture(autouse=True)
def terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "110")
