"""The messages between workers and servers, and the worker's side; `updates.answer_requests` is the other.

A message is a header of fixed length and the tensors that it announces. A request goes to every server at once: the
gradients of the server's slices follow the header of a push. The weights of these slices follow the header of every
reply. On one machine only headers are sent, and gradients and weights are in memory that both map (`shards.py`).
Numbers travel as float64, which has every integer up to 2⁵³.
"""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple, Self, TypeVar, final

import torch
from torch import Tensor

from shoal.comm.group import Group, Work
from shoal.events.spans import MAPPED, PULLED
from shoal.strategies.server.push_codec import PushEncoder
from shoal.strategies.server.shards import FlatCopy
from shoal.strategies.strategy import EndOfTurns, Turn


class RequestKind(IntEnum):
    """The kinds of requests."""

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
    """The step before which all turns end, if none is left for a worker that asked."""
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

    def with_turn(self, turn: Turn | EndOfTurns) -> Self:
        """This reply to a worker that asked for a turn."""
        if isinstance(turn, Turn):
            return self._replace(turn_step=turn.step, turn_share=turn.share)
        return self._replace(end=turn.step, stop_signal=turn.stop_signal)

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


def empty_header(kind: type[Request] | type[Reply]) -> Tensor:
    """Memory for a header."""
    return torch.empty(len(kind._fields), dtype=torch.float64)


def pause_servers(group: Group, servers: Sequence[int], text: str) -> None:
    """Send a PAUSE to these servers, and the text that follows it: rank 0 does it for all workers."""
    if group.rank:
        return
    data = torch.tensor(list(text.encode()), dtype=torch.uint8)
    for server in servers:
        for work in send_all(group, server, Request(RequestKind.PAUSE, step=len(data)), (data,)):
            work.wait()


def text_of_pause(group: Group, rank: int, request: Request) -> str:
    """Receive the text that follows a PAUSE of a worker."""
    text = torch.empty(request.step, dtype=torch.uint8)
    group.recv(text, rank).wait()
    return text.numpy().tobytes().decode()


def send_all(group: Group, to: int, header: Request | Reply, tensors: Sequence[Tensor]) -> list[Work]:
    """Start to send a header and its tensors; wait for the works before the tensors change."""
    return [
        group.send(torch.tensor(header, dtype=torch.float64), to),
        *(group.send(tensor, to) for tensor in tensors if tensor.numel()),
    ]


@final
class ServerClient:
    """Sends a worker's requests to all servers, the last ranks of the `world`, and takes their weights."""

    def __init__(self, world: Group, servers: int, params: Mapping[str, Tensor]) -> None:
        self._world, self._num_servers = world, servers
        self._params = list(params.values())
        self.flat = FlatCopy(params, servers, world)
        self.take_gradients = self.flat.take_gradients
        """Push the gradients with the next request; the names of parameters without one, where it has −0."""
        self.gradients = self.flat.flat_gradients
        """The gradients of the next push. A caller may change them in place."""
        self.replies: list[Reply] = []
        """The last reply of each server; the first server's decides about turns and stopping."""
        self.encoder: PushEncoder | None = None
        """Encodes pushes; None: they are sent as they are."""
        self._sequence = 0
        self._versions = [0] * servers

    @property
    def servers(self) -> range:
        """The ranks of the servers now: the last of the world."""
        return range(self._world.size - self._num_servers, self._world.size)

    @torch.no_grad()
    def ask(self, request: Request, gradients: bool = False) -> Reply:
        """Send a request, with the flat gradients if asked to, and wait for all replies; the first server's.

        The parameters then are the weights that came with the replies.
        """
        if request.kind in (RequestKind.PULL, RequestKind.PUSH):
            self._sequence += 1
        world, flat, servers = self._world, self.flat, self.servers
        pushed: Sequence[Sequence[Tensor]] = [()] * len(servers)
        if gradients and self.encoder is not None:
            pushed = [(message,) for message in self.encoder.encode(flat.gradients, request.training_step)]
        elif gradients and not flat.is_mapped:
            pushed = flat.gradients
        works: list[Work] = []
        for index, server in enumerate(servers):
            own = request._replace(sequence=self._sequence, version=self._versions[index])
            works += send_all(world, server, own, pushed[index])
        headers = [empty_header(Reply) for _ in servers]
        works += [
            world.recv(tensor, server)
            for server, header, weights in zip(servers, headers, flat.weights, strict=True)
            for tensor in (header, *(() if flat.is_mapped else weights))
            if tensor.numel()
        ]
        for work in works:
            work.wait()
        # The replies with their weights; or, in mapped memory, the bytes that the servers read and write.
        world.note_transfer(PULLED, len(servers) * REPLY_BYTES + (0 if flat.is_mapped else flat.num_bytes))
        if flat.is_mapped:
            world.note_transfer(MAPPED, flat.num_bytes * (1 + (gradients and self.encoder is None)))
        self.replies = [decoded(Reply, header) for header in headers]
        self._versions = [reply.version for reply in self.replies]
        if request.kind == RequestKind.HELLO:
            self._sequence = self.replies[0].sequence
        torch._foreach_copy_(self._params, flat.views)  # pyright: ignore[reportPrivateUsage]
        return self.replies[0]

    def pause(self, text: str) -> None:
        """End the serving of all servers, and give them a text. All workers call it, when none asks any more."""
        pause_servers(self._world, self.servers, text)
