"""A model whose worker is killed just before it gives a checkpoint its name."""

import os
import signal
import sys
from pathlib import Path

from torch import nn


def net(step=0, rank=1, proof="proof"):
    """Two layers, also for two stages; `rank` is killed once, before it renames the checkpoint of `step`."""

    def watch(event, arguments):
        if event == "os.rename" and f"step-{step:06d}.tmp" in str(arguments[0]) and not Path(proof).exists():
            Path(proof).touch()
            os.kill(os.getpid(), signal.SIGKILL)

    if step and os.environ.get("OWN_RANK") == str(rank):
        sys.addaudithook(watch)
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 3))
