"""The messages of a checked group: each has a header in front, and a thread per neighbour waits for them."""

from collections import Counter
from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor

from shoal.comm.blocking import BlockingCall, BlockingThread
from shoal.comm.group import ANYONE
from shoal.comm.liveness.patience import Patience
from shoal.comm.over_torch.checker import GIVE_WAY_S, Checker, Look
from shoal.comm.over_torch.group import TorchGroup
from shoal.comm.over_torch.presence import FROM_ANYONE, MESSAGE
from shoal.comm.signature import Signature, decode, encode, message_mismatch
from shoal.errors import GroupError

HEADER = Signature("message", torch.int64, 3)
HEADER_TAG = 1
FIRST_TAG, NUM_TAGS = 2, 2**20
"""The data of a message has a tag that its header names, so that two threads which receive from one member cannot take
each other's data."""


@final
class CheckedMessage:
    """A message of a checked group."""

    def __init__(self, checker: Checker, job: BlockingCall, look: Look, sources: Sequence[int] = ()) -> None:
        self._checker, self._job, self._look, self._sources = checker, job, look, sources
        self._patience = Patience()

    def wait(self) -> None:
        """Wait until the message has been sent or received."""

        def block(seconds: float) -> None:
            self._job.finished.wait(seconds if not self._checker.num_pending() else GIVE_WAY_S)

        if not self._job.finished.is_set() or self._job.error is not None:
            self._checker.wait(self._job.over, block, self._look)

    def done(self) -> bool:
        """Whether `wait` would return at once. Asking moves the work forward."""
        return self._checker.ask(self._job.over, self._look, self._patience)

    @property
    def source(self) -> int:
        """The rank that sent the message."""
        return self._sources[0] if self._sources else ANYONE


@final
class CheckedMail:
    """All messages of one member of one group, carried by a torch group."""

    def __init__(self, checker: Checker, carrier: TorchGroup, name: str, world_ranks: Sequence[int]) -> None:
        self._checker, self._carrier = checker, carrier
        self._name, self._world_ranks = name, world_ranks
        self._own_name = world_ranks[carrier.rank]
        self._threads: dict[tuple[int, bool], BlockingThread] = {}
        self._num_sent: Counter[int] = Counter()

    def send(self, call: Signature, tensor: Tensor, to: int) -> CheckedMessage:
        """Send to one member."""
        look = self._look_for(to, f"recv from rank {self._own_name}")
        self._num_sent[to] += 1
        tag = FIRST_TAG + self._num_sent[to] % NUM_TAGS
        header = torch.tensor([encode(call), call.numel, tag])
        with self._checker.naming(look):
            works = [self._carrier.issue_send(HEADER, header, to, HEADER_TAG)]
            if call.numel:
                works.append(self._carrier.issue_send(call, tensor, to, tag))

        def work() -> None:
            for each in works:
                each.wait()

        return CheckedMessage(self._checker, self._thread(to, outgoing=True).add(work), look)

    def recv(self, call: Signature, tensor: Tensor, sender: int) -> CheckedMessage:
        """Receive from one member, or from anyone."""
        sources = [] if sender == ANYONE else [sender]

        def work() -> None:
            header = torch.empty(3, dtype=torch.int64)
            asked = self._carrier.issue_recv(HEADER, header, sender, HEADER_TAG)
            asked.wait()
            sources.append(asked.source)
            code, numel, tag = header.tolist()
            sent = decode(code, numel)
            if sent != call:
                raise message_mismatch(self._world_ranks[asked.source], self._own_name, sent, call)
            if call.numel:
                self._carrier.issue_recv(call, tensor, asked.source, tag).wait()

        look = self._look_for(sender, f"send to rank {self._own_name}")
        job = self._thread(sender, outgoing=False).add(work)
        return CheckedMessage(self._checker, job, look, sources)

    def _thread(self, peer: int, outgoing: bool) -> BlockingThread:
        if (peer, outgoing) not in self._threads:
            mine, theirs = self._carrier.rank, "any" if peer == ANYONE else peer
            arrow = f"{mine} → {theirs}" if outgoing else f"{theirs} → {mine}"
            self._threads[peer, outgoing] = BlockingThread(f"shoal {self._name} {arrow}")
        return self._threads[peer, outgoing]

    def _look_for(self, peer: int, label: str) -> Look:
        others = [name for name in self._world_ranks if name != self._own_name]
        ranks, sequence = (others, FROM_ANYONE) if peer == ANYONE else ([self._world_ranks[peer]], MESSAGE)

        def look(waited_s: float, broken: bool) -> GroupError | None:
            return self._checker.presence.look(self._name, ranks, sequence, label, waited_s, broken)

        return look

    def close(self) -> None:
        """End the threads."""
        for thread in self._threads.values():
            thread.close()
