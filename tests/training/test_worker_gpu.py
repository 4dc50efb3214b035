"""The same promises on a GPU. These tests exist only where one is."""

import re
import signal
from pathlib import Path

import pytest

from shoal.config.read import read
from shoal.errors import DivergedError
from shoal.events.file import read_events
from shoal.events.folder import RunFolder
from shoal.training import worker
from shoal.training.observer import Silent

pytestmark = pytest.mark.gpu

LENET = "--device cuda --model lenet --data digits --epochs 1"


def config(tmp_path, flags="", name=""):
    return read(None, [*LENET.split(), *flags.split(), "--runs-dir", str(tmp_path), "--name", name])


class StopAt(Silent):
    """Presses Ctrl-C at the first report from this step on: on a GPU steps are reported in groups."""

    def __init__(self, step):
        self.step = step

    def stepped(self, progress, loss):
        if progress.step >= self.step:
            signal.raise_signal(signal.SIGINT)
            self.step = 10**9


@pytest.mark.parametrize("flags", ["", "--optimizer sgd --momentum 0.9 --clip-norm 1", "--micro-batch 20"])
def test_the_same_command_gives_the_same_bits(tmp_path, flags):
    first, second = worker.run(config(tmp_path, flags)), worker.run(config(tmp_path, flags))
    assert first.device == "cuda:0"
    assert first.weights_sha256 == second.weights_sha256
    assert first.test_accuracy > 0.8


@pytest.mark.parametrize("step", [1, 21, 50, 130])
def test_stopped_and_resumed_nothing_has_changed(tmp_path, step):
    whole = worker.run(config(tmp_path))
    stopped = worker.run(config(tmp_path, name="cut"), StopAt(step))
    assert stopped.status == "interrupted"
    resumed = worker.run(config(tmp_path, name="cut"), resumed=RunFolder(Path(stopped.run)))
    assert resumed.weights_sha256 == whole.weights_sha256
    assert resumed.final_loss == pytest.approx(whole.final_loss, rel=1e-12)


def test_the_first_steps_are_those_of_the_cpu(tmp_path):
    runs = [
        worker.run(config(tmp_path, f"--steps 5 --device {device}", device)) for device in ("cpu", "cuda")
    ]
    losses = [
        [
            event["loss"]
            for event in read_events(RunFolder(Path(run.run)).events())
            if event["event"] == "step"
        ]
        for run in runs
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)


def test_spans_are_measured_on_the_device_in_the_steps_that_keep_them(tmp_path):
    run = worker.run(config(tmp_path, "--steps 45"))
    steps = [event for event in read_events(RunFolder(Path(run.run)).events()) if event["event"] == "step"]
    assert [event["step"] for event in steps if event.get("spans")] == [0, 20, 40]
    for name, _, lane, start, end, *_ in steps[20]["spans"]:
        assert lane == "cuda"
        assert 0 <= end - start < 1e9, name


def test_a_loss_that_is_no_number_is_traced_to_its_step(tmp_path):
    with pytest.raises(DivergedError, match="is (nan|inf)") as caught:
        worker.run(config(tmp_path, "--optimizer sgd --lr 1e20", "wild"))
    assert int(re.search(r"step (\d+)", str(caught.value))[1]) < 20
    assert not (tmp_path / "wild/checkpoints").exists()
