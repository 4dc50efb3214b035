"""`shoal.train` from a program."""

import re
import subprocess
import sys
from importlib import import_module

import pytest

import shoal
from shoal.api.callbacks import Callback
from shoal.api.train import train
from shoal.comm.threads.group import ThreadGroup
from shoal.config.read import read
from shoal.errors import CallbackError, ConfigError, WorkerError

TINY = {
    "data": {"name": "synthetic", "samples": 96, "shape": [1, 4, 4], "classes": 3, "validation": 0.25},
    "model": {"name": "mlp", "hidden": [8]},
    "batch_size": 24,
    "epochs": 2,
    "threads": 1,
    "device": "cpu",
}
WAYS = [{}, {"strategy": "ddp", "workers": 2, "launcher": "threads"}, {"strategy": "ddp", "workers": 2}]


class History(Callback):
    """Remembers every call."""

    def __init__(self):
        self.calls = []

    def step(self, step, loss):
        self.calls.append(("step", step))

    def epoch(self, epoch, loss, validation):
        assert loss > 0
        assert 0 <= validation.accuracy <= 1
        self.calls.append(("epoch", epoch))

    def checkpoint(self, step):
        self.calls.append(("checkpoint", step))

    def end(self, result):
        self.calls.append(("end", result.steps))


@pytest.mark.parametrize("way", WAYS, ids=["single", "threads", "processes"])
def test_callbacks_see_everything_in_order(way, tmp_path, capfd):
    history = History()
    result = train(
        **TINY, **way, checkpoint_every=2, runs_dir=str(tmp_path), callbacks=[history], progress=False
    )
    assert result.status == "completed"
    steps = [number for kind, number in history.calls if kind == "step"]
    assert steps == list(range(1, result.steps + 1))
    assert [number for kind, number in history.calls if kind == "epoch"] == [1, 2]
    assert ("checkpoint", 2) in history.calls
    assert history.calls[-1] == ("end", result.steps)
    assert capfd.readouterr() == ("", "")


def test_it_trains_what_the_command_line_trains(tmp_path):
    ours = train(**TINY, runs_dir=str(tmp_path), progress=False)
    flags = "--data synthetic --data.samples 96 --data.shape 1,4,4 --data.classes 3 --validation 0.25 --model mlp "
    flags += f"--model.hidden 8 --batch-size 24 --epochs 2 --threads 1 --device cpu --runs-dir {tmp_path}"
    assert train(read(None, flags.split()), progress=False).weights_sha256 == ours.weights_sha256


@pytest.mark.parametrize("way", WAYS, ids=["single", "threads", "processes"])
def test_a_callback_that_raises_is_named_and_checkpoints_are_complete(way, tmp_path):
    class Broken(Callback):
        def step(self, step, loss):
            if step == 3:
                raise KeyError("history")

    with pytest.raises(
        (CallbackError, WorkerError), match=r"callback Broken.step raised KeyError: 'history'"
    ):
        train(
            **TINY,
            **way,
            checkpoint_every=1,
            runs_dir=str(tmp_path),
            name="it",
            callbacks=[Broken()],
            progress=False,
        )
    whole = train(**TINY, runs_dir=str(tmp_path), name="whole", progress=False)
    resumed = train(resume=tmp_path / "it", strategy="single", workers=1, progress=False)
    assert resumed.steps == whole.steps


def test_what_is_no_callback_is_refused():
    with pytest.raises(ConfigError, match="callback 3 is of type int"):
        train(**TINY, callbacks=[3])
    with pytest.raises(ConfigError, match="a RunConfig has all settings; epochs cannot be changed beside it"):
        train(read(None, []), epochs=2)


def test_progress_is_printed_to_standard_error(tmp_path, capfd):
    train(**TINY, runs_dir=str(tmp_path))
    out, err = capfd.readouterr()
    assert out == ""
    assert "epoch 2/2" in err
    assert "test accuracy" in err


def test_the_names_of_the_package():
    assert {"train", "Callback", "DistributedDataParallel", "join", "__version__"} <= set(dir(shoal))
    assert not {"import_module", "Any", "_LAZY"} & set(dir(shoal))
    for name in dir(shoal):
        assert getattr(shoal, name) is not None


def test_importing_the_package_imports_no_torch():
    code = "import sys, shoal; dir(shoal); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_train_stays_the_function():
    """No package of this name hides it once the library is in use."""
    import_module("shoal.launch.run")
    assert shoal.train is train


def test_objects_say_what_they_are(tmp_path):
    result = train(**TINY, runs_dir=str(tmp_path), name="it", progress=False)
    shown = r"Result\(completed: single, 1 worker; 6 steps in [\d.]+ s; test accuracy [\d.]+ %; .*/it\)"
    assert re.fullmatch(shown, repr(result))
    assert repr(read(None, [])) == "RunConfig(lenet on digits with adam; single, workers: 1)"
    assert repr(ThreadGroup.world(2)[1]) == "ThreadGroup(rank 1 of 2, threads)"
