"""Makes what the tests of comparisons share importable, and pages without figures."""

import sys
from pathlib import Path

import pytest

from shoal.report.canvas import Drawing

sys.path.append(str(Path(__file__).parent))


@pytest.fixture
def without_figures(monkeypatch):
    """Figures take a second each; tests/cli/test_compare.py has a page with Chinese ones."""
    empty = Drawing(b"", b"", "<svg/>", "<svg/>")
    for module in ("comparison_report", "run_report"):
        for figure in ("loss_figure", "time_figure"):
            monkeypatch.setattr(f"shoal.compare.{module}.{figure}", lambda *_: empty)
