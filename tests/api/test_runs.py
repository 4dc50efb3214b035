"""`shoal.runs` and `shoal.report`, without torch."""

import subprocess
import sys

import pytest
from made_runs import write_run

import shoal
from shoal.errors import ConfigError


@pytest.fixture
def folder(tmp_path):
    write_run(tmp_path / "slow", "--lr 0.1", test_metrics={"top5": 0.75}, test_accuracy=0.5)
    write_run(tmp_path / "fast", "--lr 0.2", server={"mode": "ssp"}, test_accuracy=0.9)
    return tmp_path


def test_rows_are_flat_and_selected(folder):
    rows = {row["run"]: row for row in shoal.runs(folder)}
    assert rows["slow"]["optimizer.lr"] == 0.1
    assert rows["slow"]["top5"] == 0.75
    assert rows["fast"]["server.mode"] == "ssp"
    assert rows["fast"]["path"] == str(folder / "fast")
    nested = {name for row in rows.values() for name, value in row.items() if isinstance(value, dict)}
    assert not nested, "pandas makes a column of every value"
    assert [row["run"] for row in shoal.runs(folder, sort="accuracy")] == ["slow", "fast"]
    assert [row["run"] for row in shoal.runs(str(folder), where="accuracy>0.6")] == ["fast"]
    with pytest.raises(ConfigError, match="did you mean 'accuracy'"):
        shoal.runs(folder, sort="acuracy")


def test_a_run_that_cannot_be_read_is_left_out_with_a_warning(folder):
    (folder / "fast" / "result.json").write_text("{", encoding="utf-8")
    with pytest.warns(UserWarning, match="fast"):
        assert [row["run"] for row in shoal.runs(folder)] == ["slow"]


def test_a_page_about_a_run(folder, tmp_path, without_figures):
    made = shoal.report(folder / "slow", out=tmp_path / "page", lang="zh")
    assert made.page == tmp_path / "page" / "report.html"
    assert made.page.exists()
    assert any(value.startswith("50.00") for value in made.numbers.values())
    with pytest.raises(ConfigError, match="no run folder"):
        shoal.report(tmp_path / "none")


def test_neither_needs_torch():
    program = "import shoal, sys; shoal.runs, shoal.report; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], timeout=60, check=False).returncode == 0
