"""Loggers: what other programs read of a run."""

import csv
import sys
import time

import pytest

from shoal.api.callbacks import Callback
from shoal.api.train import train
from shoal.cli.main import main
from shoal.config.read import read
from shoal.errors import ConfigError

TINY = "--data synthetic --data.samples 64 --data.shape 1,4,4 --validation 0.25 --model mlp --model.hidden 8 "
TINY += "--batch-size 12 --epochs 2 --threads 1 --device cpu --name it --quiet"


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def rows_of(folder):
    with (folder / "metrics.csv").open() as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("way", ["", "--strategy ddp --workers 2"])
def test_a_row_for_every_step_and_every_epoch(here, way):
    assert main(["train", *f"{TINY} {way} --logger csv".split()]) == 0
    rows = rows_of(here / "runs" / "it")
    assert [row["step"] for row in rows if not row["epoch"]] == [str(step) for step in range(1, 9)]
    assert all(float(row["training_loss"]) > 0 for row in rows)
    epochs = [row for row in rows if row["epoch"]]
    assert [(row["step"], row["epoch"]) for row in epochs] == [("4", "1"), ("8", "2")]
    assert all(0 <= float(row["validation_accuracy"]) <= 1 for row in epochs)


def test_a_resumed_run_has_each_step_once(here):
    assert main(["train", *f"{TINY} --steps 3 --checkpoint-every 2 --logger csv".split()]) == 0
    (here / "runs" / "it" / "metrics.csv").open("a").write(
        "99,,0.5,,\n"
    )  # after the checkpoint, before a crash
    assert main(["train", *["--resume", "runs/it", "--steps", "6", "--quiet"]]) == 0
    steps = [row["step"] for row in rows_of(here / "runs" / "it") if not row["epoch"]]
    assert steps == [str(step) for step in range(1, 7)]


def test_a_metric_that_comes_later_has_a_column_of_its_own(here):
    assert main(["train", *f"{TINY} --steps 4 --metrics top2 --logger csv".split()]) == 0
    before = rows_of(here / "runs" / "it")
    assert (
        main(["train", *["--resume", "runs/it", "--steps", "8", "--metrics", "perplexity", "--quiet"]]) == 0
    )
    after = rows_of(here / "runs" / "it")
    for old, new in zip(before, after, strict=False):
        assert {name: new[name] for name in old if name in new} == {
            name: old[name] for name in old if name in new
        }
        assert new["validation_perplexity"] == ""
    assert float(after[-1]["validation_perplexity"]) > 1


def test_tensorboard_files_are_read_back(here):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    assert main(["train", *f"{TINY} --logger csv --logger tensorboard".split()]) == 0
    found = EventAccumulator(str(here / "runs" / "it" / "tensorboard")).Reload()
    losses = {event.step: event.value for event in found.Scalars("loss/training")}
    rows = rows_of(here / "runs" / "it")
    expected = {int(row["step"]): float(row["training_loss"]) for row in rows if not row["epoch"]}
    assert losses == pytest.approx(expected)
    assert [event.step for event in found.Scalars("accuracy/validation")] == [4, 8]


def test_one_of_ones_own(here, capsys):
    (here / "own_loggers.py").write_text(
        "import shoal\n"
        "class Log(shoal.Callback):\n    def end(self, result):\n        print('own', result.steps)\n"
        "def nothing():\n    return 3\n"
    )
    assert main(["train", *f"{TINY} --steps 2 --logger own_loggers:Log".split()]) == 0
    assert "own 2" in capsys.readouterr().out
    with pytest.raises(ConfigError, match="logger own_loggers:nothing returned a value of type int"):
        train(read(None, [*TINY.split()[:-1], "--logger", "own_loggers:nothing"]))
    sys.modules.pop("own_loggers")


def test_what_is_wrong_is_named(here, monkeypatch, capsys):
    assert main(["train", *f"{TINY} --logger tensorbord".split()]) == 2
    assert "unknown logger 'tensorbord': did you mean 'tensorboard'" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    assert main(["train", *f"{TINY} --logger tensorboard".split()]) == 2
    assert "pip install tensorboard" in capsys.readouterr().err
    assert not (here / "runs").exists()


def test_a_file_names_no_logger_without_consent(here, capsys):
    (here / "recipe.toml").write_text('[output]\nlogger = ["own_loggers:Log"]\n')
    assert main(["train", "recipe.toml"]) == 2
    assert "files run no code without consent" in capsys.readouterr().err


def test_what_a_callback_does_before_the_first_step_is_no_training_time(here, monkeypatch):
    later, now = [0.0], time.perf_counter
    monkeypatch.setattr(time, "perf_counter", lambda: now() + later[0])

    class Slow(Callback):
        def start(self, folder, step, total_steps):
            later[0] = 1e6

    assert train(read(None, TINY.split()[:-1]), callbacks=[Slow()], progress=False).seconds < 1e6
