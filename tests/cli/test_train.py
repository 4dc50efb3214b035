"""`shoal train` and `shoal evaluate` as a user runs them, in processes of their own where a signal matters."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from shoal.api import display
from shoal.cli.main import main
from shoal.events.folder import RunFolder, held

TINY = "--data synthetic --data.samples 100 --data.shape 1,4,4 --data.classes 3 --model mlp --model.hidden 8 "
TINY += "--batch-size 32 --epochs 3 --threads 1 --device cpu"
KEYS = "status strategy workers epochs steps final_loss test_accuracy seconds samples_per_s bytes_sent wait_s"
KEYS += " weights_sha256 run"


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def train_json(capsys, *words):
    assert main(["train", "--json", *words]) == 0
    *_, last = capsys.readouterr().out.splitlines()
    return json.loads(last)


def test_json_is_the_last_line_and_the_only_one_on_standard_output(here, capsys):
    assert main(["train", *TINY.split(), "--json"]) == 0
    captured = capsys.readouterr()
    assert len(captured.out.splitlines()) == 1
    assert set(KEYS.split()) <= json.loads(captured.out).keys()
    assert "epoch 3/3" in captured.err


def test_what_a_function_prints_does_not_mix_with_json(here, capsys):
    (here / "talking.py").write_text(
        "import torch\ndef data():\n    print('loading')\n    return torch.zeros(8, 4), torch.tensor([0, 1] * 4)\n"
    )
    assert main(["train", "--data", "talking:data", "--model", "mlp", "--steps", "1", "--json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["steps"] == 1
    assert "loading" in captured.err


def test_without_json_a_person_reads_where_the_model_is(here, capsys):
    assert main(["train", *TINY.split(), "--name", "mine"]) == 0
    out = capsys.readouterr().out
    assert "epoch 1/3" in out
    assert "test accuracy" in out
    assert "runs/mine/model.safetensors" in out
    assert main(["train", *TINY.split(), "--name", "quiet", "--quiet"]) == 0
    assert "epoch 1/3" not in capsys.readouterr().out


def test_a_taken_name_is_refused_and_the_run_untouched(here, capsys):
    train_json(capsys, *TINY.split(), "--name", "mine")
    before = (here / "runs/mine/result.json").read_text()
    assert main(["train", *TINY.split(), "--name", "mine"]) == 2
    assert "is not empty" in capsys.readouterr().err
    assert (here / "runs/mine/result.json").read_text() == before


def test_resuming_a_finished_run_changes_nothing_and_more_epochs_go_on(here, capsys):
    first = train_json(capsys, *TINY.split(), "--name", "mine")
    again = train_json(capsys, "--resume", "runs/mine")
    assert again["weights_sha256"] == first["weights_sha256"]
    longer = train_json(capsys, "--resume", "runs/mine", "--epochs", "5")
    straight = train_json(capsys, *TINY.split(), "--epochs", "5")
    assert longer["weights_sha256"] == straight["weights_sha256"]
    assert main(["train", "--resume", "runs/mine", "--lr", "0.1"]) == 2
    assert "--resume cannot change optimizer.lr" in capsys.readouterr().err


def test_what_decides_bits_stays_where_they_may_not_depend_on_workers(here, capsys):
    flags = [*TINY.split(), "--reduction", "invariant", "--micro-batch", "8"]
    first = train_json(capsys, *flags, "--name", "mine")
    assert 'reduction = "invariant"' in (here / "runs/mine/config.toml").read_text()
    for change in ("--threads 2", "--micro-batch 4", "--device cpu", "--reduction fastest"):
        assert main(["train", "--resume", "runs/mine", *change.split()]) == 2
        assert "--resume cannot change" in capsys.readouterr().err
    several = ["--strategy", "ddp", "--workers", "2", "--launcher", "threads"]
    longer = train_json(capsys, "--resume", "runs/mine", "--epochs", "5", *several)
    assert longer["weights_sha256"] == train_json(capsys, *flags, "--epochs", "5")["weights_sha256"]
    assert longer["weights_sha256"] != first["weights_sha256"]


PIPELINE = "--strategy pipeline --workers 2 --launcher threads --pipeline.microbatches 2"


@pytest.mark.parametrize(
    ("flags", "change", "makes"),
    [
        (PIPELINE, "--pipeline.schedule async", "one update per step, not an update after each of 2"),
        (f"{PIPELINE} --pipeline.schedule async", "--pipeline.schedule 1f1b", "not one update per step"),
        (f"{PIPELINE} --pipeline.schedule async", "--strategy single --workers 1", "not one update per step"),
        (
            f"{PIPELINE} --pipeline.schedule async",
            "--pipeline.microbatches 4",
            "2 micro-batches in 2 stages (async), not an update after each of 4",
        ),
    ],
)
def test_updates_inside_a_step_neither_begin_nor_end_in_the_middle_of_a_run(
    here, capsys, flags, change, makes
):
    train_json(capsys, *TINY.split(), *flags.split(), "--epochs", "1", "--name", "mine")
    before = Path("runs/mine/config.toml").read_text()
    assert main(["train", "--resume", "runs/mine", "--epochs", "2", *change.split()]) == 2
    assert makes in capsys.readouterr().err
    assert Path("runs/mine/config.toml").read_text() == before


def test_async_with_one_micro_batch_is_one_update_per_step(here, capsys):
    flags = [*TINY.split(), *PIPELINE.split(), "--pipeline.microbatches", "1"]
    train_json(capsys, *flags, "--epochs", "1", "--name", "mine")
    longer = train_json(capsys, "--resume", "runs/mine", "--epochs", "2", "--pipeline.schedule", "async")
    assert longer["weights_sha256"] == train_json(capsys, *flags, "--epochs", "2")["weights_sha256"]


def test_two_cannot_go_on_with_one_run_at_once(here, capsys):
    train_json(capsys, *TINY.split(), "--name", "mine")
    before = Path("runs/mine/events.rank0.jsonl").read_text()
    with held(RunFolder(Path("runs/mine"))):
        assert main(["train", "--resume", "runs/mine", "--epochs", "9"]) == 2
    assert "the run in runs/mine is in use by another process" in capsys.readouterr().err
    assert Path("runs/mine/events.rank0.jsonl").read_text() == before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_at_some_moment_and_resume(here, capsys, number):
    flags = [*TINY.split(), "--checkpoint-every", "1000000"]
    command = [sys.executable, "-m", "shoal", "train", *flags, "--epochs", "200000", "--name", "cut"]
    process = subprocess.Popen(command, cwd=here, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    events = here / "runs/cut/events.rank0.jsonl"
    while not (events.exists() and events.stat().st_size > 2000):
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.01)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert "resume with: shoal train --resume runs/cut" in err
    stopped = json.loads((here / "runs/cut/result.json").read_text())
    assert stopped["status"] == "interrupted"
    epochs = ["--epochs", str(stopped["epochs"] + 2)]
    resumed = train_json(capsys, "--resume", "runs/cut", *epochs)
    whole = train_json(capsys, *flags, *epochs)
    assert resumed["weights_sha256"] == whole["weights_sha256"]


def test_a_module_of_the_users_own(here, capsys):
    (here / "mine.py").write_text(
        "from torch import nn\ndef net(width=4):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(16, width), nn.Dropout(0.5), nn.Linear(width, 3))\n"
    )
    flags = [*TINY.replace("--model mlp --model.hidden 8", "--model mine:net --model.width 6").split()]
    first, second = train_json(capsys, *flags), train_json(capsys, *flags)
    assert first["weights_sha256"] == second["weights_sha256"]
    evaluated = evaluate_json(capsys, first["run"], "--model", "mine:net")
    assert evaluated["accuracy"] == first["test_accuracy"]


def leaves_a_trace(folder):
    """A module that writes a file when it is imported, and what the file is."""
    folder.joinpath("stranger.py").write_text(
        "from pathlib import Path\nfrom torch import nn\nPath('imported').touch()\n"
        "def net():\n    return nn.Sequential(nn.Flatten(), nn.Linear(16, 3))\n"
    )
    return folder / "imported"


@pytest.mark.parametrize("launcher", ["threads", pytest.param("processes", marks=pytest.mark.long)])
def test_a_file_runs_no_code_without_consent(here, capsys, launcher, monkeypatch):
    trace = leaves_a_trace(here)
    own = [*TINY.replace("--model mlp --model.hidden 8", "--model stranger:net").split(), "--name", "mine"]
    own += f"--epochs 1 --strategy ddp --workers 2 --launcher {launcher}".split()
    assert main(["train", *own]) == 0
    (here / "recipe.toml").write_text('model = "stranger:net"')
    (here / "variants.toml").write_text('[variants]\na = ""\nb = "--model stranger:net"\n')
    readers = {
        "evaluate": ["runs/mine"],
        "evaluate ": ["runs/mine/model.safetensors"],
        "train": ["--resume", "runs/mine", "--epochs", "2"],
        "train ": ["recipe.toml"],
        "compare": ["variants.toml"],
    }
    for command, words in readers.items():
        monkeypatch.delitem(sys.modules, "stranger", raising=False)
        trace.unlink(missing_ok=True)
        capsys.readouterr()
        assert main([command.strip(), *words]) == 2
        said = capsys.readouterr().err
        assert "a file names the code stranger:net as its model" in said
        assert "--model stranger:net" in said
        assert "--trust-code" in said
        assert not trace.exists(), command
    for consent in (["--trust-code"], ["--model", "stranger:net"]):
        assert main(["evaluate", "runs/mine", *consent]) == 0
        assert main(["train", "--resume", "runs/mine", *consent]) == 0
    assert (
        main(
            [
                "train",
                "recipe.toml",
                "--trust-code",
                *TINY.replace("--model mlp --model.hidden 8", "").split(),
            ]
        )
        == 0
    )


def test_the_consent_to_one_name_is_no_consent_to_another(here, capsys):
    trace = leaves_a_trace(here)
    (here / "recipe.toml").write_text(
        'model = "stranger:net"\n[optimizer]\nname = "torch.optim:SGD"\nlr = 0.1'
    )
    plain = TINY.replace("--model mlp --model.hidden 8", "").split()
    assert main(["train", "recipe.toml", *plain, "--optimizer", "torch.optim:SGD"]) == 2
    assert "as its model" in capsys.readouterr().err
    assert not trace.exists()
    assert main(["train", "recipe.toml", *plain, "--model", "stranger:net"]) == 2
    assert "as its optimizer" in capsys.readouterr().err


def test_the_command_that_resumes_is_quoted_and_says_what_the_run_needs(here, capsys):
    (here / "stopped_early.py").write_text(
        "import os\nfrom torch import nn\n"
        "class Net(nn.Sequential):\n"
        "    is_sent = False\n"
        "    def forward(self, inputs):\n"
        "        if os.path.exists('runs') and not self.is_sent:\n"
        "            self.is_sent = True\n"
        "            os.kill(os.getpid(), 15)\n"
        "        return super().forward(inputs)\n"
        "def net():\n    return Net(nn.Flatten(), nn.Linear(16, 3))\n"
    )
    words = TINY.replace("--model mlp --model.hidden 8", "--model stopped_early:net").split()
    assert main(["train", *words, "--name", "my run; id"]) == 128 + signal.SIGTERM
    command = "shoal train --resume 'runs/my run; id' --trust-code"
    assert f"resume with: {command}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "workers"),
    [
        *(("--model sys:exit", workers) for workers in ("1", "2 --launcher threads")),
        *(("--model mlp --loss exiting:loss", workers) for workers in ("1", "2", "2 --launcher threads")),
    ],
)
def test_a_function_that_exits_is_an_error(here, capsys, flags, workers):
    (here / "exiting.py").write_text("import sys\ndef loss(outputs, labels):\n    sys.exit(0)\n")
    words = f"{TINY.replace('--model mlp --model.hidden 8', flags)} --strategy ddp --workers {workers}"
    assert main(["train", *words.split()]) == 2
    assert "called sys.exit(" in capsys.readouterr().err


def evaluate_json(capsys, *words):
    assert main(["evaluate", "--json", *words]) == 0
    return json.loads(capsys.readouterr().out)


def test_evaluate_a_run_a_file_and_other_data(here, capsys):
    result = train_json(capsys, *TINY.split(), "--name", "mine")
    of_run = evaluate_json(capsys, "runs/mine")
    of_file = evaluate_json(capsys, "runs/mine/model.safetensors")
    assert of_run["accuracy"] == of_file["accuracy"] == result["test_accuracy"]
    assert of_run["samples"] == 20
    assert evaluate_json(capsys, "runs/mine", "--split", "train")["samples"] == 100
    assert evaluate_json(capsys, "runs/mine", "--data.seed", "1")["loss"] != of_run["loss"]
    assert main(["evaluate", "runs/mine", "--data", "digits"]) == 2
    assert "does not fit" in capsys.readouterr().err or "cannot take" in capsys.readouterr().err


def test_weights_without_a_name_tag_need_a_model(here, capsys):
    from safetensors.torch import save_file

    from shoal.models.lenet import lenet

    save_file(lenet().state_dict(), here / "plain.safetensors")
    assert main(["evaluate", "plain.safetensors"]) == 2
    assert "does not record its model" in capsys.readouterr().err
    assert evaluate_json(capsys, "plain.safetensors", "--model", "lenet")["samples"] == 2000
    assert main(["evaluate", "plain.safetensors", "--model", "mlp"]) == 2
    assert "of another model" in capsys.readouterr().err


def test_a_second_signal_at_the_end_of_the_run_does_not_hide_how_to_resume(here, capsys, monkeypatch):
    (here / "stops.py").write_text(
        "import os, signal, shoal\nclass Stops(shoal.Callback):\n"
        "    def step(self, step, loss):\n        if step == 1:\n            os.kill(os.getpid(), signal.SIGINT)\n"
    )

    def interrupted(*_):
        raise KeyboardInterrupt("SIGINT")

    monkeypatch.setattr(display.Plain, "finished", interrupted)
    assert main(["train", *TINY.split(), "--logger", "stops:Stops", "--name", "run"]) == 128 + signal.SIGINT
    assert "shoal train --resume runs/run" in capsys.readouterr().err
