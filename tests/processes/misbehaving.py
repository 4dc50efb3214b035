"""A model that behaves until a given step of a given rank, and then does what its fault says.

It leaves a file `fired` in the working directory just before, as proof that the fault really happened.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import torch
from torch import nn


def _kill():
    os.kill(os.getpid(), signal.SIGKILL)


def _crash():
    os.kill(os.getpid(), signal.SIGSEGV)


def _exit():
    os._exit(3)


def _exit_as_if_all_were_well():
    os._exit(0)


def _fork_and_die():
    """Die with a child left that holds every socket and pipe of ours."""
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(60)
        os._exit(0)
    Path("fired").write_text(str(child))
    os.kill(os.getpid(), signal.SIGKILL)


def _stop():
    os.kill(os.getpid(), signal.SIGSTOP)


def loop_for_ever():
    while True:
        time.sleep(0.001)


def _pause():
    time.sleep(4)


def _raise():
    raise ValueError("no such column: Größe")


def _leave():
    sys.exit(7)


def _start_a_helper():
    """A process of the worker's own that would outlive it."""
    helper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    Path("fired").write_text(str(helper.pid))


FAULTS = {
    "none": lambda: None,
    "SIGKILL": _kill,
    "SIGSEGV": _crash,
    "exit": _exit,
    "exit 0": _exit_as_if_all_were_well,
    "fork": _fork_and_die,
    "stop": _stop,
    "loop": loop_for_ever,
    "pause": _pause,
    "raise": _raise,
    "leave": _leave,
    "helper": _start_a_helper,
}


class Net(nn.Module):
    """A linear model; its forward pass counts the training steps."""

    def __init__(self, fault, rank, step, width, slow):
        super().__init__()
        self.first, self.last = nn.Linear(16, width), nn.Linear(width, 3)
        self.fault, self.rank, self.step, self.slow = fault, rank, step, slow
        self.seen = 0

    def forward(self, inputs):
        if self.training and torch.is_grad_enabled():
            self.seen += 1
            time.sleep(self.slow)
            if self.seen == self.step and own_rank() == self.rank:
                Path("fired").write_text(f"rank {self.rank}")
                FAULTS[self.fault]()
        return self.last(torch.relu(self.first(inputs.flatten(1))))


def own_rank():
    import threading

    name = threading.current_thread().name
    return int(name.removeprefix("rank ")) if name.startswith("rank ") else int(os.environ.get("RANK", 0))


def net(fault="none", rank=1, step=6, slow=0.0):
    return Net(fault, rank, step, 8, slow)


def lopsided(rank=1):
    """A model that is wider on one rank than on the others."""
    Path("fired").write_text("")
    return Net("none", rank, 0, 9 if own_rank() == rank else 8, 0.0)
