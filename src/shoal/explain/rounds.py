"""How an algorithm works, round by round: run on threads, with every message recorded; as text and as a drawing.

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
from shoal.printable import counted
from shoal.report.svg import COLOURS, FRAME, GRAPH, for_file

MAX_WORKERS = 32
# The drawing: one vertical line per worker, one row per message, a band per round, a colour per part of the buffer.
COLUMN, ROW, MARGIN, TOP = 150, 24, 70, 70
PART_COLOURS = [COLOURS[name] for name in ("blue", "vermilion", "green", "indigo", "brown", "olive", "black")]


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
        self.rank, self.size = group.rank, group.size
        self.round = 0
        self.sent: list[Transfer] = []

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


def as_text(explanation: Explanation) -> str:
    """The rounds as plain text: sender → receiver, which part of the buffer, the sum of whose contributions.

    >>> print(as_text(explain("tree", 2)))
    tree, 2 workers: 2 rounds
    <BLANKLINE>
    round 1
      1 → 0   part all   sum of 1
    round 2
      0 → 1   part all   sum of all
    <BLANKLINE>
    sent by rank 0: 1 message, 1 buffer
    sent by rank 1: 1 message, 1 buffer
    """
    workers, messages = explanation.num_workers, explanation.messages
    lines = [
        f"{explanation.algorithm}, {workers} workers: {explanation.num_rounds} rounds",
        "",
    ]
    width = max((len(_part(explanation, message)) for message in messages), default=0)
    for number in range(1, explanation.num_rounds + 1):
        lines.append(f"round {number}")
        lines += [
            f"  {message.sender} → {message.receiver}   part {_part(explanation, message):{width}}   "
            f"sum of {_holds(explanation, message)}"
            for message in messages
            if message.round == number
        ]
    lines.append("")
    for rank in range(workers):
        count, buffers = explanation.sent_by(rank)
        sent = f"{counted(count, 'message')}, {buffers:g} buffer{'s' * (buffers != 1)}"
        lines.append(f"sent by rank {rank}: {sent}")
    return "\n".join(lines)


def _part(explanation: Explanation, message: Transfer) -> str:
    """Which part of the buffer, as a fraction of it."""
    size = message.stop - message.start
    if size == explanation.numel:
        return "all"
    if size and explanation.numel % size == 0 and message.start % size == 0:
        return f"{message.start // size + 1}/{explanation.numel // size}"
    return f"{message.start}–{message.stop - 1}"


def _holds(explanation: Explanation, message: Transfer) -> str:
    """Whose contributions a message holds."""
    return "all" if len(message.holds) == explanation.num_workers else "+".join(map(str, message.holds))


def as_svg(explanation: Explanation) -> str:
    """The rounds as an SVG file."""
    workers, messages = explanation.num_workers, explanation.messages
    starts = sorted({message.start for message in messages})
    ink = FRAME["ink"]
    width = 2 * MARGIN + COLUMN * max(1, workers - 1)
    height = TOP + ROW * (len(messages) + explanation.num_rounds) + 30
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'font-family="system-ui, sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="{FRAME["paper"]}"/>',
        f'<text x="{MARGIN / 2}" y="24" font-size="16" font-weight="bold" fill="{ink}">{explanation.algorithm}: '
        f"{workers} workers, {explanation.num_rounds} rounds</text>",
    ]
    y = TOP
    for number in range(1, explanation.num_rounds + 1):
        band = [message for message in messages if message.round == number]
        fill = FRAME["faint"] if number % 2 else FRAME["paper"]
        parts.append(f'<rect x="0" y="{y}" width="{width}" height="{ROW * (len(band) + 1)}" fill="{fill}"/>')
        parts.append(f'<text x="6" y="{y + 14}" fill="{GRAPH["source-line"]}">round {number}</text>')
        y += ROW
        for message in band:
            colour = PART_COLOURS[starts.index(message.start) % len(PART_COLOURS)]
            parts.append(_arrow(explanation, message, y + ROW // 2, colour))
            y += ROW
    for rank in range(workers):
        x = MARGIN + COLUMN * rank
        parts.append(
            f'<line x1="{x}" y1="{TOP - 8}" x2="{x}" y2="{y + 8}" stroke="{FRAME["rule"]}"/>'
            f'<text x="{x}" y="{TOP - 14}" text-anchor="middle" font-weight="bold" fill="{ink}">rank {rank}</text>'
        )
    return for_file("\n".join([*parts, "</svg>"]) + "\n")


def _arrow(explanation: Explanation, message: Transfer, y: int, colour: str) -> str:
    start, stop = MARGIN + COLUMN * message.sender, MARGIN + COLUMN * message.receiver
    step = 1 if stop > start else -1
    label = f"{_part(explanation, message)} · {_holds(explanation, message)}"
    # Beside the sender and above the line: arrows that span several columns would hide a label in the middle.
    anchor, x = ("start", start + 8) if step > 0 else ("end", start - 8)
    return (
        f'<line x1="{start}" y1="{y}" x2="{stop - 7 * step}" y2="{y}" stroke="{colour}" stroke-width="1.6"/>'
        f'<path d="M {stop} {y} l {-8 * step} -4 v 8 z" fill="{colour}"/>'
        f'<circle cx="{start}" cy="{y}" r="2.5" fill="{colour}"/>'
        f'<text x="{x}" y="{y - 4}" text-anchor="{anchor}" font-size="11" fill="{colour}">{label}</text>'
    )
