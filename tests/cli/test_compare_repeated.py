"""`shoal compare --seeds --sweep` as a user runs it: the example, and a comparison that was stopped and goes on."""

import json
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import shoal
from shoal.cli.main import main
from shoal.errors import ShoalError

EXAMPLE = Path(__file__).parents[2] / "examples/topk_ratio.toml"
SMALL = shlex.split(
    "--data synthetic --data.samples 200 --data.shape 1,4,4 --data.classes 3 --validation 0.2 --model mlp "
    "--model.hidden 8 --batch-size 32 --epochs 2 --launcher threads --threads 1"
)
OF_EXAMPLE = ["--seeds", "2", "--sweep", "exchange.ratio=0.5,0.1"]

pytestmark = pytest.mark.long


def test_the_example_makes_a_table_figures_and_latex_and_is_taken_over(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    command = ["compare", str(EXAMPLE), *SMALL, *OF_EXAMPLE]
    assert main([*command, "--out", "first", "--latex", "paper/table.tex"]) == 0
    printed = capsys.readouterr().out
    assert printed.splitlines()[-1].startswith(
        "next  shoal compare first/runs/single first/runs/topk,ratio=0.5"
    )
    names = ["single", "topk,ratio=0.5", "topk,ratio=0.1"]
    assert {path.name for path in Path("first/runs").iterdir()} == {
        *names,
        *(f"{name},seed=1" for name in names),
    }
    assert "topk ratio=0.1" in Path("paper/table.tex").read_text()
    assert len(list(Path("first/figures").glob("*.pdf"))) == 5
    events = {name: Path("first/runs", name, "events.rank0.jsonl").read_bytes() for name in names}

    # More seeds and values: only these are trained.
    more = ["--seeds", "3", "--sweep", "exchange.ratio=0.5,0.1,0.9", "--runs", "first", "--out", "second"]
    assert main(["compare", str(EXAMPLE), *SMALL, *more, "--json", "--quiet"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(row["name"], row["seeds"]) for row in found["rows"]] == [
        ("single", 3), ("topk ratio=0.5", 3), ("topk ratio=0.1", 3), ("topk ratio=0.9", 3),
    ]  # fmt: skip
    assert sum(row["tuned"] for row in found["rows"]) == 1
    assert {run["seed"] for run in found["runs"]} == {0, 1, 2}
    for name, before in events.items():
        assert Path("second/runs", name, "events.rank0.jsonl").read_bytes() == before

    swept = {"exchange.ratio": [0.5, 0.1]}
    again = shoal.compare(
        EXAMPLE, runs="second", out="third", seeds=2, sweep=swept, progress=False, batch_size=32, epochs=2, threads=1,
        data={"name": "synthetic", "samples": 200, "shape": [1, 4, 4], "classes": 3, "validation": 0.2},
        model={"name": "mlp", "hidden": [8]}, launcher="threads",
    )  # fmt: skip
    assert [row["name"] for row in again.rows] == ["single", "topk ratio=0.5", "topk ratio=0.1"]
    assert Path("third/runs/topk,ratio=0.1/events.rank0.jsonl").read_bytes() == events["topk,ratio=0.1"]
    assert r"\toprule" in again.latex


def test_after_a_run_that_diverges_the_others_are_trained(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine.toml").write_text('[variants]\nplain = "--strategy single --optimizer sgd"\n')
    command = ["compare", "mine.toml", *SMALL, "--seeds", "2", "--json", "--quiet"]
    assert main([*command, "--sweep", "lr=1e30,0.1,0.01", "--out", "out"]) == ShoalError.exit_code
    found = json.loads(capsys.readouterr().out)
    assert [(row["name"], row["seeds"]) for row in found["rows"]] == [
        ("plain lr=0.1", 2),
        ("plain lr=0.01", 2),
    ]
    (failed,) = found["failed"]
    assert (failed["name"], failed["run"]) == ("plain lr=1e30", "plain,lr=1e30")
    assert "diverged" in failed["reason"]
    # Nothing is complete.
    assert main([*command, "--sweep", "lr=1e30", "--out", "none"]) == ShoalError.exit_code
    assert "diverged" in capsys.readouterr().err
    assert not Path("none/report.html").exists()


def test_one_seed_has_the_table_of_one_seed_and_latex_of_it(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert (
        main(["compare", str(EXAMPLE), *SMALL, "--seeds", "1", "--out", "out", "--latex", "-", "--quiet"])
        == 0
    )
    captured = capsys.readouterr()
    assert captured.out.startswith("% \\usepackage{booktabs}")
    assert "equals one machine &" not in captured.out
    assert "equals one machine \\\\" in captured.out
    assert "equals one" in captured.err
    assert not Path("out/tables/rows.csv").exists()


def test_a_stopped_comparison_says_how_to_go_on_with_its_seeds_and_values(tmp_path):
    flags = [
        *SMALL,
        "--epochs",
        "100000",
        "--sweep",
        "exchange.ratio=0.5,0.1",
        "--seeds",
        "2",
        "--latex",
        "t.tex",
    ]
    command = [sys.executable, "-m", "shoal", "compare", str(EXAMPLE), *flags, "--out", "out"]
    process = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    events = tmp_path / "out/runs/single/events.rank0.jsonl"
    while not (events.exists() and events.stat().st_size > 2000):
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGINT
    again = shlex.split(err.split("continue with: ")[1].splitlines()[0])
    for name, value in (
        ("--seeds", "2"),
        ("--sweep", "exchange.ratio=0.5,0.1"),
        ("--latex", "t.tex"),
        ("--out", "out-2"),
    ):
        assert again[again.index(name) + 1] == value
    assert not (tmp_path / "t.tex").exists()
    assert not (tmp_path / "out/report.html").exists()
