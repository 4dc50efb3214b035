"""Worlds of real processes for tests: started once, asked many times, ended whatever happens.

Members are forked from a server that has already imported torch, so a world of eight costs a fraction of a second.
A member runs `function(group, *arguments)` and answers with its result, or with what it raised.
"""

import contextlib
import multiprocessing
import os
import time
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
from torch.distributed import PrefixStore, TCPStore

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    [
        "torch",
        "torch.distributed",
        "torch.distributed.optim",  # `rpc` loads it in every worker, and it takes a second
        "shoal.comm.shared_memory.group",
        "shoal.comm.over_torch.checked",
    ]
)


@dataclass(frozen=True)
class Outcome:
    """What became of one member: a value, an error, or nothing at all because it is gone."""

    value: Any = None
    error: str | None = None
    message: str = ""
    rank: int | None = None
    reason: str | None = None
    gone: bool = False
    seconds: float = 0.0


def build(kind: str, store: Any, rank: int, size: int, limit_s: float) -> Any:
    """The group of that kind."""
    if kind == "shm":
        from shoal.comm.shared_memory.group import SharedMemoryGroup

        return SharedMemoryGroup.join(store, rank, size, limit_s=limit_s, timeout_s=20)
    from shoal.comm.over_torch.checked import join_torch

    return join_torch(store, rank, size, backend="gloo", limit_s=limit_s, timeout_s=20)


def member(kind: str, port: int, prefix: str, rank: int, size: int, limit_s: float, pipe: Any) -> None:
    """Join, then answer what is asked until the pipe closes."""
    torch.set_num_threads(1)
    store = PrefixStore(prefix, TCPStore("127.0.0.1", port, is_master=False, timeout=timedelta(seconds=20)))
    group = build(kind, store, rank, size, limit_s)
    pipe.send(Outcome(value=os.getpid()))
    while True:
        try:
            function, arguments = pipe.recv()
        except EOFError:
            group.close()
            return
        started = time.monotonic()
        try:
            answer = Outcome(value=function(group, *arguments), seconds=time.monotonic() - started)
        except Exception as error:
            answer = Outcome(
                error=type(error).__name__,
                message=str(error),
                rank=getattr(error, "rank", None),
                reason=getattr(error, "reason", None),
                seconds=time.monotonic() - started,
            )
        pipe.send(answer)


class World:
    """`size` processes that belong to one group."""

    def __init__(self, kind: str, size: int, limit_s: float = 10.0) -> None:
        self.kind, self.size = kind, size
        self.store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        self.pipes, self.processes = [], []
        for rank in range(size):
            ours, theirs = CONTEXT.Pipe()
            arguments = (kind, self.store.port, f"{kind}{size}", rank, size, limit_s, theirs)
            process = CONTEXT.Process(target=member, args=arguments, daemon=True)
            process.start()
            theirs.close()
            self.pipes.append(ours)
            self.processes.append(process)
        self.pids = [outcome.value for outcome in self.answers(60)]

    def answers(self, timeout_s: float, victim: int | None = None) -> list[Outcome]:
        """Everyone's next answer; a member that is dead, or silent until the deadline, counts as gone.

        A victim is not waited for once all others have answered.
        """
        deadline = time.monotonic() + timeout_s
        outcomes = {}
        for rank in sorted(range(self.size), key=lambda rank: rank == victim):
            outcomes[rank] = Outcome(gone=True)
            patience = 0.2 if rank == victim else max(0.0, deadline - time.monotonic())
            with contextlib.suppress(EOFError, ConnectionError):
                if self.pipes[rank].poll(patience):
                    outcomes[rank] = self.pipes[rank].recv()
        return [outcomes[rank] for rank in range(self.size)]

    def ask(self, function: Any, *arguments: Any) -> None:
        """Make every member run `function(group, *arguments)`."""
        for pipe in self.pipes:
            with contextlib.suppress(ConnectionError):
                pipe.send((function, arguments))

    def run(
        self, function: Any, *arguments: Any, timeout_s: float = 60, victim: int | None = None
    ) -> list[Outcome]:
        """Ask, and give the answers."""
        self.ask(function, *arguments)
        return self.answers(timeout_s, victim)

    def close(self) -> None:
        """End every member: kindly at first."""
        for pipe in self.pipes:
            pipe.close()
        for process in self.processes:
            process.join(0.5)
            if process.exitcode is None:
                process.kill()
                process.join(5)

    def __enter__(self) -> "World":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
