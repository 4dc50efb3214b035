"""What the contracts of `--reduction invariant` share: small runs, and models of a user's own."""

import torch
from torch import nn

from shoal.config.read import read
from shoal.launch.run import launch_run
from shoal.training.observer import Silent

TINY = (
    "--data synthetic --data.samples 100 --data.shape 1,4,4 --data.classes 3 --batch-size 44 --epochs 2 "
    "--train.test false --reduction invariant --micro-batch 8 --launcher threads"
)
"""An epoch is batches of 44, 44 and 12 samples: 6, 6 and 2 leaves, the last of each batch shorter."""
MLP = "--model mlp --model.hidden 40"
INPUTS, OUTPUTS = 16, 3


def run(folder, flags, resumed=None):
    """The result of a run in threads, or in this one."""
    words = [*TINY.split(), *flags.split(), "--runs-dir", str(folder)]
    return launch_run(read(None, words), Silent(), resumed)


def bits(result):
    """What may not depend on the number of workers."""
    return result.weights_sha256, result.final_loss


class Sometimes(nn.Module):
    """Has a layer that some micro-batches skip, and draws random numbers."""

    def __init__(self):
        super().__init__()
        self.always, self.sometimes = nn.Linear(INPUTS, OUTPUTS), nn.Linear(INPUTS, OUTPUTS)

    def forward(self, samples):
        flat = nn.functional.dropout(samples.flatten(1), 0.2, self.training)
        outputs = self.always(flat)
        return outputs + self.sometimes(flat) if flat[0].sum() > 0 else outputs


class Counting(nn.Module):
    """Counts samples in a buffer."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(INPUTS, OUTPUTS)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, samples):
        self.seen += len(samples)
        return self.layer(samples.flatten(1))
