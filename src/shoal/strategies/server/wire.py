"""The messages between workers and servers: a header of fixed length, then the tensors that it announces.

A request goes to every server at once: a push has the gradients of the server's slices behind it. Every reply has the
weights of these slices behind it. Numbers travel as float64, which has every integer up to 2⁵³.
"""

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from shoal.comm.group import Group, Work
from shoal.strategies.strategy import EndOfTurns, Turn


class Kind(IntEnum):
    """What a request asks for."""

    PULL = 0
    """Weights, once the worker may go on."""
    PUSH = 1
    """Apply the gradients that follow; then as PULL."""
    READ = 2
    """Weights at once, outside of training."""
    HELLO = 3
    """The last sequence number, version and step that the server has of this worker: it goes on from there."""
    PAUSE = 4
    """Save, or end: a text of `step` bytes follows."""


class Request(NamedTuple):
    """The header of a worker's message."""

    kind: int
    sequence: int = 0
    version: int = 0
    """Updates of this server that the worker's weights contain."""
    step: int = 0
    """Steps that the worker has finished before; with turns, the step of the turn."""
    first: int = 0
    end: int = 0
    """The worker asks for a turn of the steps from `first` to `end`; 0: for none."""
    lr: float = 0.0
    loss: float = 0.0
    """Its part of the loss of a step."""
    part: float = 0.0
    """Its part of the samples of a step."""
    square: float = 0.0
    """The squared norm of its gradient."""
    stop_signal: int = 0
    training_step: int = 0
    """The step of the run, which goes on where `step` starts anew: by it codecs warm up and draw random numbers."""


class Reply(NamedTuple):
    """The header of a server's message."""

    sequence: int
    version: int
    """Updates in the weights that follow, skipped ones included."""
    step: int = 0
    """Gathered updates: the step that is computed now. A worker that is behind it skips steps. HELLO: the next step."""
    loss: float = 0.0
    """Gathered updates: the loss of all workers."""
    stop_signal: int = 0
    """Not 0: the worker stops after this step; if it is behind `step`, when it has skipped to it."""
    turn_step: int = -1
    turn_share: int = -1
    """The turn that the worker has got; −1: none is left."""
    end: int = 0
    """The step before which all turns end."""
    staleness_sum: int = 0
    staleness_max: int = 0
    """Of all updates of this server so far."""
    pushes: int = 0
    """Pushes that count so far."""
    dropped: int = 0
    """Pushes that came after the update of their step."""
    skipped: int = 0
    """Updates that were left out because a number was not finite."""
    losses: int = 0
    """Workers that are lost so far."""

    @property
    def turn(self) -> Turn | EndOfTurns:
        """The turn that the worker has got."""
        if self.turn_step < 0:
            return EndOfTurns(self.end, self.stop_signal)
        return Turn(self.turn_step, self.turn_share)

    @property
    def sends_to_meeting(self) -> bool:
        """Whether the worker asked for a turn and none is left, so that all workers meet."""
        return self.end > 0 and self.turn_step < 0


REPLY_BYTES = 8 * len(Reply._fields)
HEADER_BYTES = 8 * len(Request._fields) + REPLY_BYTES
"""Both headers of a request and its reply."""

Header = TypeVar("Header", Request, Reply)


def decoded(kind: type[Header], header: Tensor) -> Header:
    """The request or the reply that a tensor holds."""
    types = kind.__annotations__.values()
    values = [int(number) if of is int else number for of, number in zip(types, header.tolist(), strict=True)]
    return kind(*values)  # pyright: ignore[reportArgumentType]


def encoded(header: Request | Reply) -> Tensor:
    """A header as a tensor."""
    return torch.tensor(header, dtype=torch.float64)


def empty_header(kind: type[Request] | type[Reply]) -> Tensor:
    """Memory for a header."""
    return torch.empty(len(kind._fields), dtype=torch.float64)


def pause_servers(group: Group, servers: Sequence[int], text: str) -> None:
    """Send a PAUSE to these servers, and the text that follows it: rank 0 does it for all workers."""
    if group.rank:
        return
    data = torch.tensor(list(text.encode()), dtype=torch.uint8)
    for server in servers:
        for message in (encoded(Request(Kind.PAUSE, step=len(data))), data):
            group.send(message, server).wait()


def text_of_pause(group: Group, rank: int, request: Request) -> str:
    """Receive the text that follows a PAUSE of a worker."""
    text = torch.empty(request.step, dtype=torch.uint8)
    group.recv(text, rank).wait()
    return text.numpy().tobytes().decode()


def send_all(group: Group, to: int, header: Request | Reply, tensors: Sequence[Tensor]) -> list[Work]:
    """Start to send a header and what follows it; wait for the works before the tensors change."""
    return [
        group.send(encoded(header), to),
        *(group.send(tensor, to) for tensor in tensors if tensor.numel()),
    ]
