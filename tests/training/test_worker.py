"""A run from beginning to end: repeatable, resumable at any step, and honest about how it ended."""

import json
import math
import platform
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from shoal.config.read import from_tree, read, read_recipe
from shoal.errors import CheckpointError, ConfigError, DivergedError
from shoal.events.file import read_events
from shoal.events.folder import RunFolder
from shoal.training import worker
from shoal.training.observer import Silent

TINY = "--data synthetic --data.samples 100 --data.shape 1,4,4 --data.classes 3 --model mlp --model.hidden 8 "
TINY += "--batch-size 32 --epochs 3 --threads 1 --device cpu"


def config(tmp_path, flags="", name=""):
    return read(None, [*TINY.split(), *flags.split(), "--runs-dir", str(tmp_path), "--name", name])


class SignalAt(Silent):
    """Presses Ctrl-C as soon as a step is done."""

    def __init__(self, step, number=signal.SIGINT):
        self.step, self.number = step, number

    def stepped(self, progress, loss):
        if progress.step == self.step:
            signal.raise_signal(self.number)


def test_a_run_leaves_a_whole_folder(tmp_path):
    result = worker.run(config(tmp_path, "--validation 0.2"))
    folder = RunFolder(Path(result.run))
    assert result.status == "completed"
    assert result.steps == 9  # 80 samples left for training, three batches an epoch
    assert folder.read_result() == json.loads(result.to_json())
    assert from_tree(read_recipe(str(folder.config))) == config(tmp_path, "--validation 0.2")
    events = read_events(folder.events())
    steps = [event for event in events if event["event"] == "step"]
    assert [event["step"] for event in steps] == list(range(9))
    assert [event["samples"] for event in steps] == [32, 32, 16] * 3
    assert [event["step"] for event in steps if "spans" in event] == [0]
    assert [event["event"] for event in events].count("validation") == 3
    assert events[-1]["status"] == "completed"
    assert events[0]["host"] == platform.node()
    assert events[0]["clock"]["offset_ns"] == events[-1]["clock"]["offset_ns"] == 0
    assert events[0]["clock"]["at_ns"] < events[-1]["clock"]["at_ns"]
    last = [event for event in steps if event["epoch"] == 2]
    mean = sum(event["loss"] * event["samples"] for event in last) / 80
    assert result.final_loss == pytest.approx(mean)


def test_it_learns(tmp_path):
    result = worker.run(config(tmp_path, "--epochs 40 --lr 0.01"))
    assert result.test_accuracy > 0.9


def test_the_same_settings_give_the_same_bits_and_another_seed_does_not(tmp_path):
    first, second = worker.run(config(tmp_path)), worker.run(config(tmp_path))
    other = worker.run(config(tmp_path, "--seed 1"))
    assert first.weights_sha256 == second.weights_sha256 != other.weights_sha256
    assert first.final_loss == second.final_loss


@pytest.mark.parametrize("flags", ["", "--optimizer sgd --momentum 0.9 --schedule cosine --clip-norm 0.5"])
def test_stopped_at_any_step_and_resumed_nothing_has_changed(tmp_path, flags):
    whole = worker.run(config(tmp_path, flags, "whole"))
    for step in range(1, whole.steps):
        stopped = worker.run(config(tmp_path, flags, f"at{step}"), SignalAt(step))
        assert (stopped.status, stopped.steps, stopped.stopped_by) == ("interrupted", step, signal.SIGINT)
        assert stopped.test_accuracy is None
        resumed = worker.run(config(tmp_path, flags, f"at{step}"), resumed=RunFolder(Path(stopped.run)))
        assert resumed.status == "completed"
        assert resumed.weights_sha256 == whole.weights_sha256
        assert resumed.final_loss == whole.final_loss
        assert resumed.test_accuracy == whole.test_accuracy


def test_stopped_five_times_in_one_epoch(tmp_path):
    settings = config(tmp_path, "--batch-size 8", "often")
    whole = worker.run(config(tmp_path, "--batch-size 8"))
    result = worker.run(settings, SignalAt(2, signal.SIGTERM))
    assert result.stopped_by == signal.SIGTERM
    for step in (3, 4, 6, 9):
        result = worker.run(settings, SignalAt(step), resumed=RunFolder(Path(result.run)))
        assert result.steps == step
    result = worker.run(settings, resumed=RunFolder(Path(result.run)))
    assert result.weights_sha256 == whole.weights_sha256
    steps = [event for event in read_events(RunFolder(Path(result.run)).events()) if event["event"] == "step"]
    assert [event["step"] for event in steps] == list(range(39))
    assert sum(event["samples"] for event in steps) == 3 * 100


def test_a_run_killed_between_checkpoints_goes_on_from_the_last_one(tmp_path):
    class KilledError(Exception):
        pass

    class KillAt(Silent):
        def stepped(self, progress, loss):
            if progress.step == 8:
                raise KilledError

    settings = config(tmp_path, "--checkpoint-every 3", "killed")
    with pytest.raises(KilledError):
        worker.run(settings, KillAt())
    whole = worker.run(config(tmp_path, "--checkpoint-every 3"))
    resumed = worker.run(settings, resumed=RunFolder(tmp_path / "killed"))
    assert resumed.weights_sha256 == whole.weights_sha256
    events = read_events(RunFolder(tmp_path / "killed").events())
    assert [event["step"] for event in events if event["event"] == "start"] == [0, 6]


def test_a_damaged_checkpoint_is_reported_and_the_one_before_gives_the_same_result(tmp_path):
    settings = config(tmp_path, "--checkpoint-every 2", "damaged")
    whole = worker.run(config(tmp_path, "--checkpoint-every 2"))
    stopped = worker.run(settings, SignalAt(6))
    folder = RunFolder(Path(stopped.run))
    manifest = folder.checkpoints / "step-000006" / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"consumed": 64', '"consumed": 32'))
    with pytest.warns(UserWarning, match=f"{manifest} is damaged: .*: step 4 is used instead"):
        resumed = worker.run(settings, resumed=folder)
    assert resumed.weights_sha256 == whole.weights_sha256
    assert [str(manifest) in fault for fault in resumed.unusable_checkpoints] == [True]
    fallbacks = [event for event in read_events(folder.events()) if event["event"] == "fallback"]
    assert [(event["used"], len(event["unusable"])) for event in fallbacks] == [(4, 1)]
    assert json.loads(folder.result.read_text())["unusable_checkpoints"] == [*resumed.unusable_checkpoints]


def test_a_checkpoint_without_a_checksum_must_fit_the_data(tmp_path):
    settings = config(tmp_path, name="old")
    folder = RunFolder(Path(worker.run(settings, SignalAt(2)).run))
    path = folder.checkpoints / "step-000002" / "manifest.json"
    manifest = json.loads(path.read_text())
    del manifest["sha256"]
    for progress in ({"consumed": 32}, {"step": 10**18}):
        path.write_text(json.dumps(manifest | {"format": 1, "progress": manifest["progress"] | progress}))
        with pytest.raises(CheckpointError, match="do not fit together with 100 samples in batches of 32"):
            worker.run(settings, resumed=folder)


def test_accumulation_changes_the_sum_by_rounding_alone(tmp_path):
    whole = worker.run(config(tmp_path, "--steps 1", "whole"))
    parts = worker.run(config(tmp_path, "--steps 1 --micro-batch 5", "parts"))
    losses = [read_events(RunFolder(Path(r.run)).events())[1]["loss"] for r in (whole, parts)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)


def test_a_loss_that_is_no_number_stops_the_run_and_names_the_step(tmp_path):
    with pytest.raises(DivergedError, match=r"the loss of step \d+ \(epoch \d+\) is (nan|inf)"):
        worker.run(config(tmp_path, "--optimizer sgd --lr 1e30 --loss mse", "wild"))
    events = read_events(RunFolder(tmp_path / "wild").events())
    assert events[-1]["event"] == "failed"
    assert all(math.isfinite(event["loss"]) for event in events if event["event"] == "step")
    assert not (tmp_path / "wild" / "model.safetensors").exists()


def test_a_checkpoint_of_another_model_is_refused(tmp_path):
    stopped = worker.run(config(tmp_path, name="mine"), SignalAt(2))
    other = replace(
        config(tmp_path, name="mine"), model=read(None, ["--model", "mlp", "--model.hidden", "9"]).model
    )
    with pytest.raises(CheckpointError, match="of another model"):
        worker.run(other, resumed=RunFolder(Path(stopped.run)))


def test_what_is_wrong_is_found_before_anything_is_written(tmp_path):
    for flags in ("--loss mse --data.task text --data.shape 8", "--model lenet"):
        with pytest.raises(ConfigError):
            worker.run(config(tmp_path, flags, "never"))
    assert list(tmp_path.iterdir()) == []


def test_no_gpu_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError, match="--device cuda, but torch sees no GPU"):
        worker.run(replace(config(tmp_path), device="cuda"))


def test_torchs_global_state_is_left_as_it_was(tmp_path):
    torch.manual_seed(7)
    before, threads = torch.get_rng_state(), torch.get_num_threads()
    worker.run(config(tmp_path))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.get_num_threads() == threads


def test_other_tasks_train_too(tmp_path):
    numbers = worker.run(config(tmp_path, "--data.task regression --loss mse", "numbers"))
    assert numbers.test_accuracy is None
    assert numbers.test_loss > 0
    flags = "--data synthetic --data.task text --data.samples 64 --data.shape 16 --model transformer "
    flags += "--model.width 16 --model.heads 2 --epochs 1 --threads 1"
    text = worker.run(read(None, [*flags.split(), "--runs-dir", str(tmp_path)]))
    assert 0 <= text.test_accuracy <= 1


def test_gd_takes_one_step_an_epoch(tmp_path):
    flags = TINY.replace("--batch-size 32", "--optimizer gd").split()
    result = worker.run(read(None, [*flags, "--micro-batch", "30", "--runs-dir", str(tmp_path)]))
    assert result.steps == result.epochs == 3


def test_more_workers_than_samples_in_a_batch(tmp_path):
    from shoal.launch.run import launch_run

    alone = worker.run(config(tmp_path, "--batch-size 2 --steps 20 --optimizer sgd"))
    flags = "--batch-size 2 --steps 20 --optimizer sgd --strategy naive --workers 3 --launcher threads"
    three = launch_run(config(tmp_path, flags), Silent())
    assert three.workers == 3
    assert three.final_loss == pytest.approx(alone.final_loss, rel=1e-4)


def test_a_resumed_run_removes_what_a_killed_one_was_writing(tmp_path):
    stopped = worker.run(config(tmp_path, name="run"), SignalAt(4))
    folder = RunFolder(Path(stopped.run))
    (folder.path / ".model.safetensors.4711.tmp").write_text("half of the weights")
    (folder.checkpoints / "step-000003.tmp").mkdir()
    assert worker.run(config(tmp_path, name="run"), resumed=folder).status == "completed"
    assert list(folder.path.rglob("*.tmp")) == []


def test_a_finished_run_resumed_still_tells_its_validation(tmp_path):
    settings = config(tmp_path, "--validation 0.2", "mine")
    first = worker.run(settings)
    again = worker.run(settings, resumed=RunFolder(tmp_path / "mine"))
    assert again.validation_loss == pytest.approx(first.validation_loss)
    assert again.weights_sha256 == first.weights_sha256
