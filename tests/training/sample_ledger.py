"""A ledger of samples, kept by the weights themselves: which worker has trained on which sample, and how often.

The model has one weight for every (worker, sample). It finds out which sample it is given by looking it up in the data
set, and its output is that worker's weight of that sample; the loss is the sum of the outputs. So the gradient of a
step is 1 / (samples of the step) wherever a worker trained on a sample, and SGD with a learning rate of 1 takes it off.

What is in this ledger has gone the whole way: through the loop, the strategy's exchange, the optimizer, checkpoints and
resuming. A step that was lost with a killed worker is not in it, and a step that was made twice is in it twice.
"""

import json
import os
import signal
import threading
from pathlib import Path

import torch
from torch import nn

from shoal.config.sections.data import SyntheticConfig
from shoal.data.load import load
from shoal.training import checkpoint

SAMPLES = 100
MAX_WORKERS = 8
DATA = SyntheticConfig(samples=SAMPLES, shape=(1, 4, 4), classes=3)
FLAGS = f"--data synthetic --data.samples {SAMPLES} --data.shape 1,4,4 --data.classes 3 "
FLAGS += "--model sample_ledger:Ledger --loss sample_ledger:total --optimizer sgd --lr 1 "
FLAGS += "--threads 1 --device cpu --checkpoint-every 1 --checkpoint.keep 1000"
"""A checkpoint after every step: their differences are the steps' entries."""


class Ledger(nn.Module):
    """`kill` names a worker that dies, without a word, when it is handed its batch number `at`."""

    def __init__(self, kill=-1, at=0):
        super().__init__()
        self.entries = nn.Parameter(torch.zeros(MAX_WORKERS, SAMPLES, dtype=torch.float64))
        data = load(DATA)
        rows = data.batch(data.train, torch.arange(SAMPLES)).inputs
        # By content: a batch's bits do not depend on how it is divided.
        self.number_of = {row.numpy().tobytes(): number for number, row in enumerate(rows)}
        assert len(self.number_of) == SAMPLES, "two samples are alike"
        self.kill, self.at, self.batches = kill, at, 0

    def forward(self, inputs):
        if not self.training:
            return torch.zeros(len(inputs), 3)
        self.batches += 1
        if own_rank() == self.kill and self.batches == self.at:
            os.kill(os.getpid(), signal.SIGKILL)
        numbers = [self.number_of[row.numpy().tobytes()] for row in inputs]
        return self.entries[own_rank(), numbers].unsqueeze(1)


def total(outputs, labels):
    return outputs.sum()


def own_rank():
    """As a thread, by its name; as a process, by its environment; alone, 0."""
    name = threading.current_thread().name
    return int(name.removeprefix("rank ")) if name.startswith("rank ") else int(os.environ.get("RANK", "0"))


def entries_of(folder):
    """How often each worker trained on each sample, [workers, samples], for every step of a run in turn."""
    folder = Path(folder)
    found = {int(path.name.removeprefix("step-")): path for path in (folder / "checkpoints").glob("step-*")}
    before, steps = torch.zeros(MAX_WORKERS, SAMPLES, dtype=torch.float64), []
    counts = samples_of_steps(folder)
    for step in sorted(found):
        saved = checkpoint.verify(found[step])
        after = saved.pieces()["model.entries"]
        steps.append(((before - after) * counts[step - 1]).round(decimals=9))
        before = after
    assert sorted(found) == list(range(1, len(found) + 1)), "a step has no checkpoint"
    return steps


def samples_of_steps(folder):
    """The samples of every step, over all workers together, as the run itself tells; the last telling counts."""
    events = [json.loads(line) for line in (folder / "events.rank0.jsonl").read_text().splitlines()]
    return {event["step"]: event["samples"] for event in events if event["event"] == "step"}
