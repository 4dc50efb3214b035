"""Dropout: other masks on every worker, the same under every launcher, and the same after a resume."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from small_runs import train

from shoal.comm.threads.group import run_threads
from shoal.training.hooks.random_state import RandomState

NET = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(16, 32), nn.Linear(32, 3)

    def forward(self, inputs):
        return self.last(nn.functional.dropout(torch.tanh(self.first(inputs.flatten(1))), 0.5, self.training))
"""
FLAGS = "--data synthetic --data.samples 90 --data.shape 1,4,4 --data.classes 3 --model dropout_net:Net "
FLAGS += (
    "--batch-size 32 --epochs 2 --threads 1 --device cpu --optimizer sgd --lr 0.1 --strategy ddp --workers 2"
)


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    (tmp_path / "dropout_net.py").write_text(NET)
    monkeypatch.chdir(tmp_path)


def test_threads_and_processes_draw_the_same(capsys):
    by_threads = train(capsys, FLAGS, "--launcher threads --name a")
    again = train(capsys, FLAGS, "--launcher threads --name b")
    by_processes = train(capsys, FLAGS, "--launcher processes --name c")
    assert by_threads["weights_sha256"] == again["weights_sha256"] == by_processes["weights_sha256"]


@pytest.mark.parametrize("launcher", ["threads", pytest.param("processes", marks=pytest.mark.long)])
def test_a_resumed_run_goes_on_with_every_workers_own_state(capsys, launcher):
    whole = train(capsys, FLAGS, f"--launcher {launcher} --name whole")
    train(capsys, FLAGS, f"--launcher {launcher} --name cut --steps 4")
    assert len(list(Path("runs/cut/checkpoints/step-000004").glob("rank*.safetensors"))) == 2
    resumed = train(
        capsys, f"--model dropout_net:Net --resume runs/cut --launcher {launcher} --steps {whole['steps']}"
    )
    assert resumed["weights_sha256"] == whole["weights_sha256"]


def test_workers_draw_different_numbers_and_each_the_same_again():
    def work(group):
        with RandomState(3, group.rank, shared_by_threads=True) as random:
            drawn = [torch.rand(4) for _ in range(2)]
            saved = {piece.name: piece.tensor for piece in random.pieces()}
            after = torch.rand(4)
            random.load(saved)
            assert torch.equal(torch.rand(4), after)
            return torch.cat(drawn)

    first, second = run_threads(3, work), run_threads(3, work)
    for drawn, drawn_again in zip(first, second, strict=True):
        assert torch.equal(drawn, drawn_again)
    assert len({tuple(drawn.tolist()) for drawn in first}) == 3


def test_rank_0_draws_what_one_machine_draws():
    torch.manual_seed(3)
    expected = torch.rand(8)
    with RandomState(3, 0, shared_by_threads=True):
        assert torch.equal(torch.rand(8), expected)


def test_a_thread_draws_from_its_own_state_also_where_torchs_generator_is_named():
    with RandomState(3, 1, shared_by_threads=True):
        expected = torch.rand(8)
    with RandomState(3, 1, shared_by_threads=True):
        assert torch.equal(torch.rand(8, generator=torch.default_generator), expected)


def test_threads_swap_nothing_once_the_model_draws_nothing():
    """A draw from another generator, such as that of the samples' order, is no draw of the model."""
    with RandomState(3, 0, shared_by_threads=True) as random:
        torch.randperm(4, generator=torch.Generator())
        random.after_step(0, 1)
        state = torch.get_rng_state()
        torch.rand(4)
        assert not torch.equal(torch.get_rng_state(), state), "torch's own generator is used again"


def test_a_model_that_draws_later_is_noticed_and_threads_swap_again():
    with RandomState(3, 0, shared_by_threads=True) as random:
        random.after_step(0, 1)
        random.after_step(0, 1)
        torch.rand(4)
        with pytest.warns(UserWarning, match="drew its first random numbers after the first step"):
            random.after_step(0, 1)
        torch.manual_seed(8)
        drawn = torch.rand(4)
    torch.manual_seed(3)
    assert torch.equal(drawn, torch.rand(4)), "from its own state, which has the seed 3"


def test_a_worker_that_draws_nothing_is_not_disturbed_by_one_that_draws(recwarn):
    """As in a pipeline whose last stage alone has dropout."""

    def work(group):
        with RandomState(3, group.rank, shared_by_threads=True) as random:
            for _ in range(4):
                if group.rank:
                    torch.rand(4)
                group.barrier().wait()
                random.after_step(0, 1)

    before = torch.get_rng_state()
    run_threads(2, work)
    assert not [each for each in recwarn if "drew its first random numbers" in str(each.message)]
    assert torch.equal(torch.get_rng_state(), before)


IMPORTS = """
import sys
from shoal.cli.main import main

for flags in sys.argv[1:]:
    assert main(["train", *flags.split()]) == 0
    assert "torch._dynamo" not in sys.modules
"""


def test_threads_and_resumed_runs_do_not_import_the_compiler():
    """It takes seconds; torch imports it to keep it away from what it wraps."""
    runs = (
        f"{FLAGS} --launcher threads --name a --steps 4",
        "--model dropout_net:Net --resume runs/a --steps 6",
    )
    done = subprocess.run([sys.executable, "-c", IMPORTS, *runs], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
