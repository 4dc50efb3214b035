"""How an algorithm works, round by round: found by running it on threads and watching its messages.

Each worker's buffer starts as 2^rank, so the value of a message tells whose contributions it already
holds. The round of a message is one more than the latest round its sender had heard from when it sent it.
"""

from collections import defaultdict, deque
from dataclasses import dataclass, field
from typing import final

import torch
from torch import Tensor

from shoal.comm.algorithms import ALGORITHMS
from shoal.comm.group import Messenger, Work
from shoal.comm.threads import ThreadGroup, run_threads
from shoal.errors import ConfigError, unknown

MAX_WORKERS = 32


@dataclass(frozen=True, order=True)
class Message:
    """In `round`, `sender` gives `receiver` elements `start` to `stop`, the sum over the ranks it `holds`."""

    round: int
    sender: int
    receiver: int
    start: int
    stop: int
    holds: tuple[int, ...]


@dataclass(frozen=True)
class Explanation:
    """All messages of one all-reduce of `numel` elements."""

    algorithm: str
    summary: str
    num_workers: int
    numel: int
    messages: tuple[Message, ...]

    @property
    def num_rounds(self) -> int:
        """How many messages must wait for each other, at most."""
        return max((message.round for message in self.messages), default=0)

    def sent_by(self, rank: int) -> tuple[int, float]:
        """How many messages one worker sends, and how many whole buffers they make."""
        mine = [message for message in self.messages if message.sender == rank]
        return len(mine), sum(message.stop - message.start for message in mine) / self.numel


@dataclass
class _Stamps:
    """The rounds of messages on their way, by (sender, receiver), and the list of all that were sent."""

    rounds: dict[tuple[int, int], deque[int]] = field(
        default_factory=lambda: defaultdict[tuple[int, int], deque[int]](deque)
    )
    messages: list[Message] = field(default_factory=list[Message])


@final
class _Arrival:
    """A receive that moves the receiver's round on when it is waited for."""

    def __init__(self, watched: "_Watched", sender: int, work: Work) -> None:
        self._watched, self._sender, self._work = watched, sender, work

    def wait(self) -> None:
        self._work.wait()
        self._watched.heard(self._sender)

    def done(self) -> bool:
        return self._work.done()


@final
class _Watched:
    """A group's send and recv, with every message written down."""

    def __init__(self, group: ThreadGroup, buffer: Tensor, stamps: _Stamps) -> None:
        self._group, self._buffer, self._stamps = group, buffer, stamps
        self._round = 0

    @property
    def rank(self) -> int:
        return self._group.rank

    @property
    def size(self) -> int:
        return self._group.size

    def send(self, tensor: Tensor, to: int) -> Work:
        offset = (tensor.data_ptr() - self._buffer.data_ptr()) // tensor.element_size()
        # A message that is no part of the buffer is a copy of all of it.
        start = offset if 0 <= offset < self._buffer.numel() else 0
        bits = int(tensor.view(-1)[0].item())
        holds = tuple(rank for rank in range(self.size) if bits >> rank & 1)
        self._stamps.messages.append(
            Message(self._round + 1, self.rank, to, start, start + tensor.numel(), holds)
        )
        self._stamps.rounds[self.rank, to].append(self._round + 1)
        return self._group.send(tensor, to)

    def recv(self, tensor: Tensor, sender: int) -> Work:
        return _Arrival(self, sender, self._group.recv(tensor, sender))

    def heard(self, sender: int) -> None:
        self._round = max(self._round, self._stamps.rounds[sender, self.rank].popleft())


def explain(algorithm: str, num_workers: int) -> Explanation:
    """Run the algorithm and give its messages.

    >>> explain("ring", 4).num_rounds
    6
    """
    if algorithm not in ALGORITHMS:
        raise ConfigError(unknown("algorithm", algorithm, ALGORITHMS))
    if not 1 <= num_workers <= MAX_WORKERS:
        raise ConfigError(f"explain takes 1 to {MAX_WORKERS} workers, not {num_workers}")
    # Divisible by the number of workers and by the power of two below it, so that all chunks are alike.
    numel = num_workers * (1 << num_workers.bit_length() - 1)
    stamps = _Stamps()
    function = ALGORITHMS[algorithm]

    def work(group: ThreadGroup) -> float:
        buffer = torch.full((numel,), float(1 << group.rank), dtype=torch.float64)
        messenger: Messenger = _Watched(group, buffer, stamps)
        function(messenger, buffer)
        return buffer.min().item()

    run_threads(num_workers, work)
    summary = (function.__doc__ or "").strip().splitlines()[0]
    return Explanation(algorithm, summary, num_workers, numel, tuple(sorted(stamps.messages)))
