"""The seconds of a run and of its steps: compiling is not training."""

import time
from pathlib import Path

import pytest
import torch

from shoal.config.read import read
from shoal.errors import DivergedError
from shoal.events.file import EventFile, read_events
from shoal.events.folder import RunFolder
from shoal.events.spans import HostClock, SpanRecorder
from shoal.events.steps import steps_of
from shoal.strategies.not_finite import Remedies
from shoal.strategies.strategy import StepResult
from shoal.training import worker
from shoal.training.observer import Silent
from shoal.training.progress import Progress
from shoal.training.steplog import StepLog

FLAGS = "--data synthetic --data.samples 80 --data.shape 1,4,4 --data.classes 3 --model mlp --model.hidden 8 "
FLAGS += "--batch-size 32 --epochs 2 --threads 1 --device cpu --engine static"


@pytest.mark.parametrize("by", ["", "--strategy ddp --workers 1"], ids=["single", "ddp"])
def test_compiling_does_not_count_as_training(tmp_path, by):
    result = worker.run(read(None, [*FLAGS.split(), *by.split(), "--runs-dir", str(tmp_path)]))
    events = read_events(RunFolder(Path(result.run)).events())
    steps = [event for event in events if event["event"] == "step"]
    compiling = [event["step"] for event in steps if "compile" in event["totals_ns"]]
    assert compiling == [0, 2]  # 32 samples, then the 16 that an epoch ends with
    compile_s = sum(event["totals_ns"].get("compile", 0) for event in steps) / 1e9
    compute_s = sum(event["totals_ns"]["compute"] for event in steps) / 1e9
    assert compile_s > 0
    assert compute_s <= result.seconds  # compiling is in neither
    # The wall time of the run's steps is at least both together: what is reported leaves compiling out.
    assert result.seconds + compile_s <= (events[-1]["time_ns"] - events[0]["time_ns"]) / 1e9


def test_compiling_is_measured_in_steps_whose_spans_are_not():
    spans = SpanRecorder(HostClock())
    spans.active = False
    with spans("forward", "compute"), spans("compile", "compile"):
        pass
    assert [name for name, *_ in spans.marks] == ["compile"]


@pytest.mark.parametrize(("clips", "hint"), [(True, "try 0.01, or --clip-norm 1."), (False, "try 0.01.")])
def test_clipping_is_offered_only_where_the_run_supports_it(tmp_path, clips, hint):
    span = SpanRecorder(HostClock())
    with EventFile(tmp_path / "events.jsonl") as events:
        log = StepLog(events, span, [], Silent(), False, False, Remedies(clips=clips))
        with pytest.raises(DivergedError) as raised:
            log.step(Progress().after_step(8), StepResult(torch.tensor(torch.nan)), 8, 0.1)
    assert raised.value.hint == f"The learning rate was 0.1: {hint}"


def test_on_a_gpu_a_traced_step_has_its_own_seconds(tmp_path):
    """Losses are read together there; a first step that loads kernels must not make the others look slow."""
    now_ns = 0
    span = SpanRecorder(HostClock(lambda: now_ns))
    progress = Progress()
    with EventFile(tmp_path / "events.jsonl") as events:
        log = StepLog(events, span, [], Silent(), True, keep_all_spans=True)
        for milliseconds in (800, 100, 100):
            now_ns += milliseconds * 10**6
            progress = log.step(progress.after_step(8), StepResult(torch.tensor(1.0)), 8, 0.1)
        time.sleep(0.03)
        progress = log.settle(progress)
    first, second, third = (step.seconds for step in steps_of(read_events(tmp_path / "events.jsonl")))
    assert first + second + third == pytest.approx(progress.seconds, abs=1e-4)
    assert first == pytest.approx(0.8 * progress.seconds, abs=1e-4)
    assert second == pytest.approx(third, abs=1e-4)
