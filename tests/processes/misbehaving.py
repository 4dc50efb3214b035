"""A model that behaves until a given step of a given rank, and then does what its fault says.

Just before, it writes its process number into the file `proof`: without that file the fault has not happened, and with
it, it does not happen again.
"""

import atexit
import contextlib
import functools
import itertools
import math
import os
import signal
import socket
import sys
import threading
import time
from pathlib import Path

import torch
from launching import launcher
from torch import nn


def _fork_and_die():
    _fork()
    os.kill(os.getpid(), signal.SIGKILL)


def _fork():
    """Leave a child behind that holds every socket and pipe of ours, and go on."""
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(60)
        os._exit(0)


def loop_for_ever():
    while True:
        time.sleep(0.001)


def _compute():
    """Need a processor for 0.7 s: with 5 % of one that takes longer than a member may be silent."""
    until = time.thread_time() + 0.7
    while time.thread_time() < until:
        pass


def _cut():
    """Break every connection of this process, as a router does that forgets them."""
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(int(name))) as connection:
            if connection.family in (socket.AF_INET, socket.AF_INET6):
                connection.getpeername()  # a socket that listens has none, and stays
                connection.shutdown(socket.SHUT_RDWR)


def _raise():
    raise ValueError("no such column: Größe")


def _ask_to_stop(number):
    """Send a signal as a user does: to the launcher, else to this process."""
    is_launched = "TORCHELASTIC_USE_AGENT_STORE" in os.environ
    os.kill(launcher() if is_launched else os.getpid(), number)


def _await_file():
    """Go on when the file exists that a variable names."""
    while not Path(os.environ["AWAITED"]).exists():
        time.sleep(0.01)


FAULTS = {
    "none": lambda: None,
    "SIGKILL": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "SIGSEGV": lambda: os.kill(os.getpid(), signal.SIGSEGV),
    "exit": lambda: os._exit(3),
    "fork": _fork_and_die,
    "child": _fork,
    "stop": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "loop": loop_for_ever,
    "pause": lambda: time.sleep(4),
    "await": _await_file,
    "compute": _compute,
    "cut": _cut,
    "raise": _raise,
    "sys.exit": lambda: sys.exit(0),
    "nan": lambda: math.nan,
    "SIGINT": lambda: _ask_to_stop(signal.SIGINT),
    "SIGTERM": lambda: _ask_to_stop(signal.SIGTERM),
    "launcher": lambda: os.kill(launcher(), signal.SIGKILL),
}
"""What each does; a number that it returns is a factor for the values that pass."""


class Net(nn.Module):
    """Two layers; its forward pass counts the training steps, each at least `slow` seconds long."""

    def __init__(self, fault, rank, step, slow, proof, width):
        super().__init__()
        self.first, self.last = nn.Linear(16, width), nn.Linear(width, 3)
        self.fault, self.rank, self.step = fault, rank, step
        self.slow, self.proof = slow, proof
        self.seen = 0

    def forward(self, inputs):
        if self.training and torch.is_grad_enabled():
            self.seen += 1
            time.sleep(self.slow)
            if self.seen == self.step and own_rank() == self.rank and not Path(self.proof).exists():
                Path(self.proof).write_text(str(os.getpid()))
                FAULTS[self.fault]()
        return self.last(torch.relu(self.first(inputs.flatten(1))))


class TwoDeaths(Net):
    """After the fault, rank 2 is killed, too: when so many turns are over that the others have met in between."""

    def forward(self, inputs):
        outputs = super().forward(inputs)
        if self.training and torch.is_grad_enabled() and own_rank() == 2 and self.seen == 13:
            os.kill(os.getpid(), signal.SIGKILL)
        return outputs


class DyingAdam(torch.optim.Adam):
    """Dies after step number `step` of rank `rank`: of a parameter server, between apply and acknowledge."""

    elementwise = True

    def __init__(self, params, lr, rank, step, proof):
        super().__init__(params, lr)
        self.rank, self.last, self.proof, self.made = rank, step, proof, 0

    def step(self, closure=None):
        super().step(closure)
        self.made += 1
        if self.made == self.last and own_rank() == self.rank and not Path(self.proof).exists():
            Path(self.proof).write_text(str(os.getpid()))
            os.kill(os.getpid(), signal.SIGKILL)


def dying_adam(params, lr=0.01, rank=2, step=8, proof="proof"):
    return DyingAdam(params, lr, rank, step, proof)


def own_rank():
    name = threading.current_thread().name
    return int(name.removeprefix("rank ")) if name.startswith("rank ") else int(os.environ.get("RANK", "0"))


def net(fault="none", rank=1, step=8, slow=0.0, proof="proof"):
    return Net(fault, rank, step, slow, proof, width=8)


def two_deaths(slow=0.0, proof="proof"):
    return TwoDeaths("SIGKILL", 1, 2, slow, proof, width=8)


def lopsided(proof="proof"):
    """A model that is wider on rank 1 than elsewhere."""
    if own_rank() == 1:
        Path(proof).write_text(str(os.getpid()))
    return Net("none", 1, 0, 0.0, proof, width=9 if own_rank() == 1 else 8)


FILE_CALLS = ("fsync", "mkdir", "rename", "replace", "rmdir", "unlink")
"""What writes a run folder: settings, checkpoints, weights, the result."""


class Trouble(nn.Module):
    """Passes its inputs on; its fault fires once, in the given occurrence of `where` on the given rank.

    `where` is a pass of training (`forward`, `backward`) or of an `evaluation`, the reading of the state (`saving`), a
    system call that changes files (`writing`), the construction (`building`), or the exit of Python (`leaving`).
    """

    def __init__(self, fault, rank, step, slow, proof, where):
        super().__init__()
        self.fault, self.rank, self.step, self.slow, self.proof, self.where = (
            fault,
            rank,
            step,
            slow,
            proof,
            where,
        )
        self.seen = 0
        if where == "saving":  # a model's state is read to save it
            self.register_state_dict_pre_hook(lambda module, prefix, keep_vars: self.count(self.fire))
        if own_rank() != rank or Path(proof).exists():
            return
        if where == "leaving":
            atexit.register(self.fire)
        elif where == "building":
            self.count(self.fire)
        elif where == "writing":
            for name in FILE_CALLS:
                setattr(os, name, self._counting(getattr(os, name)))

    def forward(self, inputs):
        time.sleep(self.slow)
        factor = None
        if torch.is_grad_enabled() and self.where == "forward":
            factor = self.count(self.fire)
        elif torch.is_grad_enabled() and self.where == "backward":
            self.count(lambda: inputs.register_hook(self._damage))
        elif not torch.is_grad_enabled() and self.where == "evaluation":
            factor = self.count(self.fire)
        return inputs if factor is None else inputs * factor

    def _damage(self, gradient):
        factor = self.fire()
        return None if factor is None else gradient * factor

    def _counting(self, call):
        """A call of the operating system that may be the one before which the fault fires."""

        @functools.wraps(call)
        def counted(*arguments, **options):
            self.count(self.fire)
            return call(*arguments, **options)

        return counted

    def count(self, fire):
        if own_rank() == self.rank:
            self.seen += 1
            if self.seen == self.step and not Path(self.proof).exists():
                return fire()
        return None

    def fire(self):
        if Path(self.proof).exists():  # of another layer, in the same pass
            return None
        Path(self.proof).write_text(str(os.getpid()))
        return FAULTS[self.fault]()


def looping_loss(outputs, labels):
    """A loss that never ends: in its backward pass."""
    scaled = outputs * 1.0
    if scaled.requires_grad:
        scaled.register_hook(lambda gradient: loop_for_ever())
    return nn.functional.cross_entropy(scaled, labels, reduction="sum")


def staged(fault="none", rank=1, step=8, slow=0.0, proof="proof", where="forward"):
    """A model of consecutive layers: two stages, and the fault in the stage that this rank holds."""
    trouble = (Trouble(fault, rank, step, slow, proof, where) for _ in range(2))
    return nn.Sequential(
        nn.Flatten(), nn.Linear(16, 8), next(trouble), nn.ReLU(), nn.Linear(8, 3), next(trouble)
    )


class Block(nn.Module):
    """One layer of `blocks`, with its own fault: no cut separates the two."""

    def __init__(self, inputs, outputs, trouble):
        super().__init__()
        self.linear, self.trouble = nn.Linear(inputs, outputs), trouble

    def forward(self, inputs):
        return self.trouble(torch.relu(self.linear(inputs.flatten(1))))


def blocks(fault="none", rank=1, step=8, slow=0.0, proof="proof", where="forward"):
    """A model that every strategy can divide among four workers.

    A worker that holds several blocks has the fault in its first one; places outside of passes count once.
    """
    widths = (16, 8, 8, 8, 3)
    has_one = where in ("building", "writing", "leaving")
    layers = []
    for at, (inputs, outputs) in enumerate(itertools.pairwise(widths)):
        place = "nowhere" if has_one and at else where
        layers.append(Block(inputs, outputs, Trouble(fault, rank, step, 0.0 if at else slow, proof, place)))
    return nn.Sequential(*layers)
