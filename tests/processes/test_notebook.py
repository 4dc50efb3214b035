"""The notebook among the examples: stored with its outputs, which it gives again when it is executed.

    cd examples; python -m nbconvert --execute --to notebook --inplace --ExecutePreprocessor.record_timing=False \\
      --CoalesceStreamsPreprocessor.enabled=True notebook.ipynb
"""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).parents[2] / "examples" / "notebook.ipynb"
SIZE = 64_000
"""Bytes: its outputs are short, its figure is small."""


def code_cells(notebook):
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


def outputs(notebook):
    """What each cell gives, without the digits of its numbers: its text, and the kinds of other data.

    The kernel sends a stream in as many pieces as the moment wants, so pieces are not told apart.
    """
    found = []
    for cell in code_cells(notebook):
        text = "".join("".join(output.get("text", ())) for output in cell["outputs"])
        kinds = [sorted(output["data"]) for output in cell["outputs"] if "data" in output]
        found.append([*([re.sub(r"\d", "0", text)] if text else []), *kinds])
    return found


def test_it_is_stored_as_it_was_executed_from_top_to_bottom():
    cells = code_cells(NOTEBOOK)
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    assert len([output for cell in cells for output in cell["outputs"]]) >= 5
    assert not [cell for cell in cells if "print(" in "".join(cell["source"][-1:]) and not cell["outputs"]]
    assert NOTEBOOK.stat().st_size < SIZE


@pytest.mark.long
def test_it_trains_by_two_workers_plots_compares_and_gives_the_stored_outputs(tmp_path):
    shutil.copy(NOTEBOOK, tmp_path)
    words = [sys.executable, "-m", "nbconvert", "--execute", "--to", "notebook", "--inplace", NOTEBOOK.name]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stderr
    found = outputs(tmp_path / NOTEBOOK.name)
    assert found == outputs(NOTEBOOK), "execute it again with the command above"
    texts = "".join(text for cell in found for text in cell if isinstance(text, str))
    assert "ddp, workers: 0" in texts
    assert "the same on both workers: True" in texts
    assert [["image/png", "text/plain"]] in found
