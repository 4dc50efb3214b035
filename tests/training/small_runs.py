"""What tests of whole runs share: `shoal train` as a function, a network in float64, and the state that a run saved."""

import json
from pathlib import Path

from shoal.cli.main import main
from shoal.events.folder import RunFolder
from shoal.training import checkpoint

NET = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(16, 8).double(), nn.Linear(8, 3).double()

    def forward(self, inputs):
        return self.last(torch.tanh(self.first(inputs.flatten(1).double())))
"""
"""In float64, so that nothing but a wrong sum or a lost moment can be seen."""


def train(capsys, *words):
    """The result of `shoal train`, which must succeed."""
    assert main(["train", "--json", *" ".join(words).split()]) == 0, capsys.readouterr().err
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def newest_pieces(result):
    """All tensors of the newest checkpoint of a run."""
    return checkpoint.latest(RunFolder(Path(result["run"])).checkpoints).pieces()
