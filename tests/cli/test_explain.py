"""`shoal explain`: what a student sees of a strategy, a codec, a rule, a schedule or an algorithm."""

import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import pytest

from shoal.cli import text
from shoal.cli.main import main
from shoal.explain.names import KINDS, all_rows


@pytest.mark.parametrize("row", all_rows(), ids=lambda row: row.name)
def test_every_name_can_be_explained_and_drawn(row, tmp_path, capsys):
    picture = tmp_path / "picture.svg"
    assert main(["explain", row.name, "--svg", str(picture)]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"{row.name} ({KINDS[row.kind].title})")
    assert all(
        f"  {label} " in out
        for label in ("what it is", "one step", "use it when", "not when", "result", "read")
    )
    assert f"  try   {row.to_try}\n" in out
    assert out.endswith(f"wrote {picture}\n")
    assert ElementTree.fromstring(picture.read_text()).tag.endswith("svg")


def test_an_algorithm_is_shown_by_rounds(capsys):
    assert main(["explain", "ring", "--workers", "3", "--params", "3e6"]) == 0
    out = capsys.readouterr().out
    assert "round 4" in out
    assert "sent by rank 2: 4 messages, 1.33333 buffers" in out
    assert "3,000,000 parameters" in out
    assert " a worker sends 16 MB" in out


def test_a_schedule_is_shown_by_stages(capsys):
    assert main(["explain", "gpipe", "--stages", "4", "--microbatches", "8"]) == 0
    out = capsys.readouterr().out
    assert "gpipe, 4 stages, 8 micro-batches: " in out
    assert "stage 3  · · · F0" in out
    assert "formula: " in out


def test_a_strategy_shows_bytes_and_memory_of_every_case(capsys):
    assert main(["explain", "zero", "--workers", "8", "--params", "7e9"]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "For 7,000,000,000 parameters in float32 with Adam, 8 workers:" in lines
    assert "stage 1 sends 49 GB in a step: reduce-scatter n + all-gather n" in lines
    assert any(line.startswith("stage 3 memory 14 GB and activations: parameters 4Ψ/N") for line in lines)


def test_a_strategy_without_a_formula_says_so(capsys):
    assert main(["explain", "server"]) == 0
    assert "no formula for the memory of sync server" in capsys.readouterr().out


def test_names_and_drawings_of_strategies_do_not_load_torch():
    code = (
        "import sys; from shoal.cli.main import main; "
        "code = main(['explain']) + main(['explain', 'zero', '--svg', '-']); "
        "sys.exit('loaded torch' if 'torch' in sys.modules else code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["ring", "1f1b"])
def test_a_drawing_that_cannot_be_written_is_an_error_after_the_explanation(name, capsys):
    assert main(["explain", name, "--svg", "/proc/nothing.svg"]) == 2
    captured = capsys.readouterr()
    assert captured.out.startswith(f"{name} ")
    assert "/proc/nothing.svg" in captured.err


def test_without_a_name_all_are_listed(capsys):
    assert main(["explain"]) == 0
    words = re.split(r"[\s,]+", capsys.readouterr().out)
    assert all(row.name in words for row in all_rows())


@pytest.mark.parametrize("name", ["ring", "1f1b", "ddp", "topk", "krum"])
def test_a_dash_writes_the_drawing_alone_to_standard_output(name, capsys):
    assert main(["explain", name, "--svg", "-"]) == 0
    assert ElementTree.fromstring(capsys.readouterr().out).tag.endswith("svg")


def test_weight_gradients_once_per_step_are_drawn(capsys):
    assert main(["explain", "1f1b", "--weights-once", "--microbatches", "2", "--stages", "2"]) == 0
    assert "stage 1  · F0I0F1I1W*──" in capsys.readouterr().out


def test_a_terminal_has_colours(capsys, monkeypatch):
    monkeypatch.setattr(text, "has_styles", lambda stream: True)
    assert main(["explain", "zero-bubble"]) == 0
    out = capsys.readouterr().out
    assert "\033[97;44mF0F1F2F3\033[0m" in out
    assert "\033[30;102mW0\033[0m" in out
