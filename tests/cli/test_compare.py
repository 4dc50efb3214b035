"""`shoal compare` as a user runs it: trained or finished, table, JSON, report, and what is left after Ctrl-C."""

import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from itertools import product
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

from shoal.cli.main import main
from shoal.compare.comparison import compare
from shoal.compare.terminal import show_table
from shoal.report.words import page_words

TINY = """flags = '''--data synthetic --data.samples 100 --data.shape 1,4,4 --data.classes 3 --model mlp
           --model.hidden 8 --batch-size 32 --epochs 3 --threads 1 --device cpu --trace'''
[variants]
"""
ONE, TWO = 'one = ""\n', 'two = "--strategy naive --workers 2 --launcher threads"\n'


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.toml").write_text(TINY + ONE + TWO)
    return tmp_path


def test_trained_compared_reported_and_compared_again(here, capsys):
    assert main(["compare", "tiny.toml", "--out", "out"]) == 0
    printed = capsys.readouterr().out
    for words in ("1/2  one", "2/2  two", "accuracy", "speed", "reference", "equal", "out/report.html"):
        assert words in printed
    assert "\x1b" not in printed  # plain where no terminal is
    assert max(map(len, printed.splitlines())) <= 80
    assert printed.splitlines()[-1] == "next  shoal compare tiny.toml --all --out out-2 --runs out"
    assert "one" in (here / "out/report.md").read_text()
    assert {path.name for path in (here / "out/runs").iterdir()} == {"one", "two"}

    comparison = compare([here / "out/runs/one", here / "out/runs/two"])
    for width, every in product((30, 60, 80, 100), (False, True)):
        console = Console(file=io.StringIO(), width=width)
        show_table(comparison, console, page_words("en", "shoal.compare"), every)
        shown = console.file.getvalue()
        assert "…" not in shown
        assert max(map(len, shown.splitlines())) <= width
        assert any(line.startswith("one ") for line in shown.splitlines())  # a name is never cut in pieces
        speed = "samples/s" if every else "speed"
        assert all(word in shown for word in ("accuracy", speed, "compute", "move", "wait", "reference"))

    before = {path: path.stat().st_mtime_ns for path in (here / "out/runs").rglob("*")}
    runs = ["out/runs/two", "out/runs/one"]
    assert main(["compare", *runs, "--all", "--lang", "zh", "--json", "--out", "again"]) == 0
    captured = capsys.readouterr()
    (line,) = captured.out.splitlines()
    found = json.loads(line)
    assert [run["name"] for run in found["runs"]] == ["two", "one"]
    two, one = found["runs"]
    assert one["first_step_difference"] == one["final_difference"] == 0
    assert two["first_step_difference"] < 1e-5
    equal = [remark for remark in found["verdict"] if remark["kind"] in ("equal", "differs")]
    assert [(remark["kind"], remark["word"]) for remark in equal] == [("equal", "等价")]
    assert (one["same_bits_as"] == ["two"]) is (one["weights_sha256"] == two["weights_sha256"])
    assert two["speed_up_over_one_core"] > 0
    assert 0.5 < sum(two[f"{kind}_share"] for kind in ("compute", "move", "wait", "other")) < 1.01
    assert found["report"] == "again/report.html"
    assert "一个核心" in captured.err
    assert "等价" in captured.err
    assert max(map(cell_len, captured.err.splitlines())) <= 120
    page = (here / "again/report.html").read_text(encoding="utf-8")
    assert '<html lang="zh' in page
    labels = set(re.findall(r"<text[^>]*>([^<]*)</text>", page))
    assert {"训练时间（s）", "按步数", "计算", "等待"} <= labels
    assert not {"by step", "compute", "wait", "steps"} & labels
    assert (here / "again/tables/runs.csv").read_text().startswith("name,how,strategy,workers")
    assert {path: path.stat().st_mtime_ns for path in (here / "out/runs").rglob("*")} == before


def test_bits_of_one_process_whatever_the_workers(here, capsys):
    (here / "tiny.toml").write_text(TINY + ONE + 'two = "--strategy onecopy --workers 2"\n')
    assert main(["compare", "tiny.toml", "--quiet", "--json", "--out", "out"]) == 0
    runs = json.loads(capsys.readouterr().out)["runs"]
    assert [run["invariant_bits"] for run in runs] == ["reference", "identical"]
    assert (
        runs[0]["weights_sha256"] != runs[0]["invariant_sha256"]
    )  # times and weights are the ordinary run's


def test_a_flag_goes_over_all_variants(here, capsys):
    assert (
        main(["compare", "tiny.toml", "--epochs", "1", "--steps", "3", "--quiet", "--json", "--out", "out"])
        == 0
    )
    found = json.loads(capsys.readouterr().out)
    for run in found["runs"]:
        assert json.loads((here / run["run"] / "result.json").read_text())["steps"] == 3


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.long)])
def test_a_signal_leaves_what_is_finished_and_says_how_to_compare_it_and_to_continue(here, number):
    (here / "long.toml").write_text(TINY + ONE + TWO + 'three = "--epochs 100000"\n')
    command = [sys.executable, "-m", "shoal", "compare", "long.toml", "--out", "out"]
    process = subprocess.Popen(command, cwd=here, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    events = here / "out/runs/three/events.rank0.jsonl"
    while not (events.exists() and events.stat().st_size > 2000):
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.01)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert "shoal compare out/runs/*" in err
    assert "continue with: shoal compare long.toml --out out-2 --runs out/runs" in err
    assert "Traceback" not in err
    assert not (here / "out/report.html").exists()


def test_a_comparison_takes_over_the_runs_of_an_earlier_one_that_were_finished_with_the_same_settings(
    here, capsys
):
    # The pipeline chooses its own cut, and writes it into its run folder.
    pipe = 'pipe = "--strategy pipeline --workers 2 --launcher threads"\n'
    (here / "two.toml").write_text(TINY + ONE + 'two = "--strategy onecopy --workers 2"\n' + pipe)
    assert main(["compare", "two.toml", "--quiet", "--out", "first"]) == 0
    assert main(["compare", "two.toml", "--quiet", "--json", "--out", "again", "--runs", "first"]) == 0
    taken = json.loads(capsys.readouterr().out.splitlines()[-1])["runs"]
    assert [run["invariant_bits"] for run in taken] == ["reference", "identical", "–"]
    assert (
        main(["compare", "two.toml", "--quiet", "--lr", "0.02", "--out", "other", "--runs", "first/runs"])
        == 0
    )

    def events(folder):
        return [
            (here / folder / "runs" / name / "events.rank0.jsonl").read_bytes()
            for name in ("one", "two", "pipe")
        ]

    assert events("again") == events("first")
    assert not set(events("other")) & set(events("first"))
    assert main(["compare", "two.toml", "--out", "x", "--runs", "nowhere"]) == 2
    assert main(["compare", "first/runs/one", "first/runs/two", "--out", "x", "--runs", "first"]) == 2
    assert not (here / "x").exists()


@pytest.mark.long
def test_a_signal_that_comes_after_the_last_step_of_a_run_ends_the_comparison(here):
    """The run is completed, and the next one does not begin; the command that is printed makes it."""
    (here / "late.toml").write_text(TINY + ONE + TWO)
    model = "--model misbehaving:blocks --model.fault SIGTERM --model.where leaving --model.proof proof"
    command = [sys.executable, "-m", "shoal", "compare", "late.toml", *model.split(), "--model.rank", "0"]
    places = {
        **os.environ,
        "PYTHONPATH": str(Path(__file__).parents[1] / "processes"),
        "OMP_NUM_THREADS": "1",
    }
    stopped = subprocess.run(
        [*command, "--out", "out"], cwd=here, env=places, capture_output=True, text=True, check=False
    )
    assert (here / "proof").exists(), stopped.stderr
    assert stopped.returncode == 128 + signal.SIGTERM, stopped.stderr
    assert (here / "out/runs/one/model.safetensors").exists()
    assert not (here / "out/runs/two").exists()
    again = re.search("continue with: shoal (.*)", stopped.stderr)[1]
    done = subprocess.run(
        [*command[:3], *shlex.split(again)], cwd=here, env=places, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "two" in done.stdout


def test_a_variant_that_fails_is_reported_with_what_is_finished(here, capsys):
    (here / "bad.toml").write_text(TINY + ONE + 'two = "--model nowhere:net"\n')
    assert main(["compare", "bad.toml", "--trust-code", "--out", "out"]) == 2
    err = capsys.readouterr().err
    assert "nowhere" in err
    assert "finished so far: out/runs/one" in err


def test_help_names_the_four_ways(capsys):
    assert main(["compare", "--help"]) == 0
    assert "shoal compare runs/*" in capsys.readouterr().out
