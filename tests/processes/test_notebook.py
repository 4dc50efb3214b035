"""The notebook among the examples, executed as `jupyter nbconvert --execute` does."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

NOTEBOOK = Path(__file__).parents[2] / "examples" / "notebook.ipynb"


def test_it_trains_by_two_workers_plots_and_compares(tmp_path):
    shutil.copy(NOTEBOOK, tmp_path)
    words = [sys.executable, "-m", "nbconvert", "--execute", "--to", "notebook", "--inplace", NOTEBOOK.name]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=170, check=False)
    assert done.returncode == 0, done.stderr
    cells = json.loads((tmp_path / NOTEBOOK.name).read_text(encoding="utf-8"))["cells"]
    outputs = [output for cell in cells for output in cell.get("outputs", ())]
    printed = "".join("".join(output["text"]) for output in outputs if output.get("name") == "stdout")
    assert "ddp with 2 workers" in printed
    assert "the same on both workers: True" in printed
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert not [output for output in outputs if output.get("name") == "stderr"]
