"""Nodes that are started from a folder with files named like modules."""

import subprocess
import sys

import pytest

PROGRAM = """
from pathlib import Path
from shoal_labs.check.nodes import run_nodes
from shoal_labs.check.trial import called

print(run_nodes(called, Path("solution"), 1, "mine", "five", meet=False, limit_s=60)[0].answer)
"""


@pytest.mark.long
def test_nodes_import_from_the_students_folder_and_not_from_the_current_directory(tmp_path):
    for module in ("json", "random", "select", "signal", "torch"):
        (tmp_path / f"{module}.py").write_text("open('imported', 'w').close()")
    (tmp_path / "solution").mkdir()
    (tmp_path / "solution" / "mine.py").write_text("def five(): return 5")
    done = subprocess.run(
        [sys.executable, "-Pc", PROGRAM], cwd=tmp_path, capture_output=True, text=True, timeout=200
    )
    assert done.stdout == "5\n", done.stderr
    assert not (tmp_path / "imported").exists()
