"""Programs of torch's that are profiled: unchanged results, and the cause of slow steps is named first."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest
from launching import HERE, command, environment

from shoal.compare.comparison import compare
from shoal.compare.one_run import findings
from shoal.report.timeline import read_timeline
from shoal.report.words import page_words

PROGRAM = str(HERE / "profile_program.py")
LAUNCH = command("launch", "--workers", "2")


def run(tmp_path, *words):
    return subprocess.run(
        words, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=110, check=False
    )


def hashes(said):
    return {line for line in said.splitlines() if len(line) == 64}


def profile_in(tmp_path):
    (folder,) = (tmp_path / "runs").iterdir()
    return folder


@pytest.mark.long
def test_a_profile_leaves_every_bit_and_joins_the_calls_of_ddp(tmp_path):
    plain = run(tmp_path, *LAUNCH, PROGRAM, "none", "12")
    assert not (tmp_path / "runs").exists()
    profiled = run(tmp_path, *LAUNCH, "--profile", PROGRAM, "none", "12")
    assert (plain.returncode, profiled.returncode) == (0, 0), plain.stderr + profiled.stderr
    assert len(hashes(plain.stdout)) == 1
    assert hashes(plain.stdout) == hashes(profiled.stdout)
    folder = profile_in(tmp_path)
    assert f"shoal report {folder.relative_to(tmp_path)}" in profiled.stdout
    step = read_timeline(folder).median
    assert {join.name for join in step.joins} == {"all_reduce", "broadcast"}
    names = {interval.name for row in step.rows for interval in row.intervals}
    assert {"data", "forward", "backward", "step", "all_reduce"} <= names
    assert run(tmp_path, *command("trace", str(folder))).returncode == 0
    assert json.loads((folder / "trace.json").read_text())["traceEvents"]
    said = run(tmp_path, *command("report", str(folder), "--out", "page"))
    assert said.returncode == 0, said.stderr
    assert "profile_program.py none 12" in (tmp_path / "page" / "report.html").read_text()


@pytest.mark.long
@pytest.mark.parametrize(("cause", "kind"), [("rank", "waits"), ("data", "loads")])
def test_the_cause_of_slow_steps_is_named_first(tmp_path, cause, kind):
    ended = run(tmp_path, *LAUNCH, "--profile", PROGRAM, cause, "40")
    assert ended.returncode == 0, ended.stderr
    found = compare([profile_in(tmp_path)])
    (entry,) = found.entries
    idle = replace(found, entries=(replace(entry, not_scheduled=0.0),))
    first, *_ = findings(idle, page_words("en", "shoal.compare"))
    assert first.kind == kind
    if cause == "rank":
        assert "rank 1 is slow" in first.claim


@pytest.mark.long
def test_under_torchrun_the_same_folder_is_written(tmp_path):
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2", "--standalone"]
    ended = run(tmp_path, *torchrun, "-m", "shoal.profile", PROGRAM, "none", "6")
    assert ended.returncode == 0, ended.stderr
    assert len(read_timeline(profile_in(tmp_path)).median.rows) == 2


@pytest.mark.long
@pytest.mark.parametrize(("cause", "code"), [("failure", 1), ("no step", 2)])
def test_without_steps_or_after_a_failure_nothing_is_left(tmp_path, cause, code):
    ended = run(tmp_path, *LAUNCH, "--profile", PROGRAM, cause, "4")
    assert ended.returncode == code
    assert "No profile was written." in ended.stderr
    assert not list(tmp_path.glob("runs/*"))
