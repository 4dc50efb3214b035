"""A worker on a GPU and one on the CPU train one model; only where a GPU is."""

import signal
from pathlib import Path

import pytest

from shoal.config.read import read
from shoal.events.file import read_events
from shoal.launch.run import launch_run
from shoal.training.observer import Silent
from shoal.training.weights import read_model

pytestmark = pytest.mark.gpu
DEVICES = {"cuda:0", "cpu"}


def trained(folder, flags):
    """The run's folder; weights are in float32."""
    common = "--data digits --optimizer sgd --momentum 0.9 --threads 1 --steps 2"
    result = launch_run(read(None, [*common.split(), *flags.split(), "--runs-dir", str(folder)]), Silent())
    return Path(result.run)


def devices(run):
    starts = (read_events(run / f"events.rank{rank}.jsonl")[0] for rank in range(2))
    return [start["device"] for start in starts]


@pytest.mark.parametrize("devices_of_ranks", ["cuda,cpu", "cpu,cuda"])
@pytest.mark.parametrize("strategy", ["naive", "ddp", "zero", "zero --strategy.stage 3"])
def test_equals_one_machine(tmp_path, strategy, devices_of_ranks):
    single = trained(tmp_path, "--device cpu --name single")
    flags = f"--name it --workers 2 --device {devices_of_ranks} --strategy {strategy}"
    run = trained(tmp_path, flags)
    assert set(devices(run)) == DEVICES
    expected, weights = (read_model(each / "model.safetensors")[0] for each in (single, run))
    for name, tensor in expected.items():
        # float32, free-running: in the third step, rounding takes an activation to the other side of ReLU's zero.
        assert (weights[name] - tensor).abs().max() / tensor.abs().max() < 1e-4, name


@pytest.mark.parametrize("strategy", ["ddp", "zero"])
def test_the_faster_worker_gets_more_of_every_batch(tmp_path, strategy):
    """One core against a GPU, with products of matrices that are large enough for it."""
    flags = "--model mlp --model.hidden 1024,1024 --batch-size 512 --lr 0.001 --steps 31 --balance --name it"
    run = trained(tmp_path, f"{flags} --workers 2 --device cpu,cuda --strategy {strategy}")
    shares = [each["shares"] for each in read_events(run / "events.rank0.jsonl") if each["event"] == "shares"]
    on_cpu, on_gpu = shares[-1]
    assert on_cpu + on_gpu == 512
    assert on_gpu > on_cpu


class StopAt(Silent):
    """Asks to stop, as Ctrl-C does, when so many steps are logged."""

    def stepped(self, progress, loss):
        if progress.step == 3:
            signal.raise_signal(signal.SIGINT)


def test_both_stop_after_the_same_step_and_go_on(tmp_path):
    flags = "--workers 2 --device cuda,cpu --strategy ddp --data digits --epochs 1000 --threads 1"
    config = read(None, [*flags.split(), "--runs-dir", str(tmp_path)])
    result = launch_run(config, StopAt())
    assert result.status == "interrupted"
    ends = [read_events(Path(result.run) / f"events.rank{rank}.jsonl")[-1] for rank in range(2)]
    assert [end["step"] for end in ends] == [result.steps] * 2
