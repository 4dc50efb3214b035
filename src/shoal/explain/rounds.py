"""How an algorithm works, round by round: run on threads, with every message recorded.

Each worker's buffer starts as 2^rank, so the value of a message shows whose contributions it holds. The round of a
message is one more than the latest round that its sender had received from when it sent it.
"""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from shoal.comm.algorithms import ALGORITHMS
from shoal.comm.group import Messenger, Work
from shoal.comm.threads.group import ThreadGroup, run_threads
from shoal.errors import ConfigError, unknown

MAX_WORKERS = 32


@dataclass(frozen=True, order=True)
class Transfer:
    """In `round`, `sender` sends `receiver` elements `start` to `stop`, the sum over the ranks it `holds`."""

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
    messages: tuple[Transfer, ...]

    @property
    def num_rounds(self) -> int:
        """How many messages must wait for each other, at most."""
        return max((message.round for message in self.messages), default=0)

    def sent_by(self, rank: int) -> tuple[int, float]:
        """How many messages one worker sends, and how many whole buffers they add up to."""
        sizes = [message.stop - message.start for message in self.messages if message.sender == rank]
        return len(sizes), sum(sizes) / self.numel


def explain(algorithm: str, num_workers: int) -> Explanation:
    """Run the algorithm and return its messages.

    >>> explain("ring", 4).num_rounds
    6
    """
    if algorithm not in ALGORITHMS:
        raise ConfigError(unknown("algorithm", algorithm, ALGORITHMS))
    if not 1 <= num_workers <= MAX_WORKERS:
        raise ConfigError(f"explain takes 1 to {MAX_WORKERS} workers, not {num_workers}")
    # Divisible by the number of workers and by the power of two below it, so that all chunks have the same size.
    numel = num_workers * (1 << num_workers.bit_length() - 1)
    function = ALGORITHMS[algorithm]

    def work(group: ThreadGroup) -> list[Transfer]:
        buffer = torch.full((numel,), float(1 << group.rank), dtype=torch.float64)
        recorder = _Recorder(group, buffer)
        function(recorder, buffer)
        return recorder.sent

    messages = sorted(message for sent in run_threads(num_workers, work) for message in sent)
    summary = (function.__doc__ or "").strip().splitlines()[0]
    return Explanation(algorithm, summary, num_workers, numel, tuple(messages))


@final
class _Recorder(Messenger):
    """A group's send and recv that record every message. Behind each message travels the number of its round."""

    def __init__(self, group: ThreadGroup, buffer: Tensor) -> None:
        self._group, self._buffer = group, buffer
        self.round = 0
        self.sent: list[Transfer] = []

    @property
    def rank(self) -> int:
        return self._group.rank

    @property
    def size(self) -> int:
        return self._group.size

    def send(self, tensor: Tensor, to: int) -> Work:
        offset = (tensor.data_ptr() - self._buffer.data_ptr()) // tensor.element_size()
        # A message outside the buffer is a copy of all of it.
        start = offset if 0 <= offset < self._buffer.numel() else 0
        bits = int(tensor.view(-1)[0].item())
        holds = tuple(rank for rank in range(self.size) if bits >> rank & 1)
        self.sent.append(Transfer(self.round + 1, self.rank, to, start, start + tensor.numel(), holds))
        self._group.send(tensor, to).wait()
        return self._group.send(torch.tensor(self.round + 1), to)

    def recv(self, tensor: Tensor, sender: int) -> Work:
        number = torch.tensor(0)
        return _Arrival(self, self._group.recv(tensor, sender), self._group.recv(number, sender), number)


@final
class _Arrival:
    """A receive that advances the receiver's round when it is waited for."""

    def __init__(self, recorder: _Recorder, data: Work, round_work: Work, number: Tensor) -> None:
        self._recorder, self._data, self._round_work, self._number = recorder, data, round_work, number

    def wait(self) -> None:
        self._data.wait()
        self._round_work.wait()
        self._recorder.round = max(self._recorder.round, int(self._number.item()))

    def done(self) -> bool:
        return self._data.done() and self._round_work.done()
