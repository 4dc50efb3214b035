"""The messages of a checked group: a header in front, under a tag of its own, and a thread that does the blocking."""

from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor

from shoal.comm.calls import checked_call, decode, encode, message_mismatch
from shoal.comm.over_torch.checker import GIVE_WAY_S, Checker, Look
from shoal.comm.over_torch.group import TorchGroup, TorchWork
from shoal.comm.over_torch.presence import MESSAGE
from shoal.comm.patience import Patience
from shoal.comm.post import Job, PostThread
from shoal.errors import GroupError

HEADER = 1
"""The tag of headers; the data has 0."""


@final
class CheckedMessage:
    """A message of a checked group."""

    def __init__(self, checker: Checker, job: Job, look: Look) -> None:
        self._checker, self._job, self._look = checker, job, look
        self._patience = Patience()

    def wait(self) -> None:
        """Wait until the message has gone or come."""

        def block(seconds: float) -> None:
            self._job.finished.wait(seconds if not self._checker.num_pending() else GIVE_WAY_S)

        if not self._job.finished.is_set() or self._job.error is not None:
            self._checker.wait(self._job.over, block, self._look)

    def done(self) -> bool:
        """Whether `wait` would return at once. Asking moves the work forward."""
        return self._checker.ask(self._job.over, self._look, self._patience)


@final
class CheckedMail:
    """All messages of one member of one group, carried by a group of torch's."""

    def __init__(self, checker: Checker, carrier: TorchGroup, name: str, world_ranks: Sequence[int]) -> None:
        self._checker, self._carrier = checker, carrier
        self._name, self._world_ranks = name, world_ranks
        self._own_name = world_ranks[carrier.rank]
        self._posts: dict[tuple[int, bool], PostThread] = {}

    def send(self, tensor: Tensor, to: int) -> CheckedMessage:
        """Send to one member."""
        call = checked_call("message", self._carrier.size, tensor.dtype, tensor.numel())
        look = self._look_for(to, f"recv from rank {self._own_name}")
        with self._checker.naming(look):
            header = self._carrier.send(torch.tensor([encode(call), call.numel]), to, HEADER)
            data = self._carrier.send(tensor, to) if call.numel else TorchWork()

        def work() -> None:
            header.wait()
            data.wait()

        return CheckedMessage(self._checker, self._post(to, outgoing=True).add(work), look)

    def recv(self, tensor: Tensor, sender: int) -> CheckedMessage:
        """Receive from one member what it sent."""
        call = checked_call("message", self._carrier.size, tensor.dtype, tensor.numel())

        def work() -> None:
            header = torch.empty(2, dtype=torch.int64)
            self._carrier.recv(header, sender, HEADER).wait()
            sent = decode(*header.tolist())
            if sent != call:
                raise message_mismatch(self._world_ranks[sender], self._own_name, sent, call)
            if call.numel:
                self._carrier.recv(tensor, sender).wait()

        look = self._look_for(sender, f"send to rank {self._own_name}")
        return CheckedMessage(self._checker, self._post(sender, outgoing=False).add(work), look)

    def _post(self, peer: int, outgoing: bool) -> PostThread:
        if (peer, outgoing) not in self._posts:
            mine = self._carrier.rank
            arrow = f"{mine} → {peer}" if outgoing else f"{peer} → {mine}"
            self._posts[peer, outgoing] = PostThread(f"shoal {self._name} {arrow}")
        return self._posts[peer, outgoing]

    def _look_for(self, peer: int, label: str) -> Look:
        def look(waited_s: float, broken: bool) -> GroupError | None:
            return self._checker.presence.look(
                self._name, [self._world_ranks[peer]], MESSAGE, label, waited_s, broken
            )

        return look

    def close(self) -> None:
        """Let the threads go."""
        for post in self._posts.values():
            post.close()
