"""Run a part of a student's solution on several nodes, each a process of its own, with a time limit.

Nodes are forked from a server that has already imported torch, so that a world of three starts quickly. Each has a pipe
into which it writes lines of JSON: that its work begins, its calls of torch's collectives, which are known even if it
hangs, and its answer. The student's code could write there, too: after garbage a node counts as dead.
"""

import json
import os
import resource
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import timedelta
from importlib import import_module
from multiprocessing import get_all_start_methods, get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from shoal_labs.check import standins
from shoal_labs.check.sandbox import kernel
from shoal_labs.check.standins.gpu import PENDING, Handle
from shoal_labs.check.standins.replace import instead_of

START_LIMIT_S = 180.0
"""How long the nodes may take to start and join the group; on a busy machine importing torch takes most of it."""
WORK_LIMIT_S = ContextVar("WORK_LIMIT_S", default=30.0)
"""How long they may take for the work, unless a check says otherwise."""
START_METHOD = ContextVar("START_METHOD", default="forkserver")
"""How Python starts them, if the system can; a process that has imported torch, and has no threads, forks them."""
COLLECTIVE_LIMIT_S = 8.0
"""How long a node waits for the others in a collective."""
AFTER_AN_ERROR_S = 1.0
"""How long the others may still run after one of them has failed."""
POLL_S = 0.05
"""How often it is looked whether a node has died: processes that it started may keep its pipe open."""
MOST_BYTES = 2**26
"""That a node may write."""
SAFE_PATH = "PYTHONSAFEPATH"
PRELOADED = ("torch.distributed.optim", "torch.distributed.rpc", "torch.utils.data", "torch._dynamo")
"""Imported before nodes are forked. The first compiles functions that stand-ins replace; torch's optimizers import the
last when they are made, which takes seconds."""
COLLECTIVES = (
    *("all_reduce", "all_reduce_coalesced", "reduce", "reduce_scatter", "reduce_scatter_tensor"),
    *("all_gather", "all_gather_coalesced", "all_gather_into_tensor", "all_gather_object"),
    *("broadcast", "broadcast_object_list", "gather", "gather_object", "scatter", "scatter_object_list"),
    *("all_to_all", "all_to_all_single", "barrier", "send", "recv", "isend", "irecv"),
)


@dataclass(frozen=True)
class Raised:
    """An error of a student's code, and where it came from."""

    kind: str
    text: str
    place: str
    """File and line of the student's code."""
    functions: str = ""
    """The student's functions that were running, the innermost first, separated by commas."""


@dataclass(frozen=True)
class Node:
    """The outcome of one node: an answer, an error, or neither if it timed out or its process died."""

    answer: Any
    raised: Raised | None
    calls: tuple[str, ...]
    """The collectives it called, with the size of the tensor and the root: `broadcast(150,0)`."""
    died: bool = False
    late: bool = False


def run_nodes(
    work: Callable[..., Any],
    folder: Path,
    size: int,
    *args: Any,
    meet: bool,
    limit_s: float | None = None,
    imports: str = "",
) -> list[Node]:
    """Run `work(rank, *args)` on each node, with the student's folder first in its path.

    `work` is a function of a module; its arguments and its answer must be representable in JSON. `meet`: the nodes
    form a process group of torch. `limit_s`: how long they may take for the work. `imports`: a module that the work
    imports; the first nodes of a program decide what the server has imported for all.
    """
    method = START_METHOD.get()
    context: Any = get_context(method if method in get_all_start_methods() else "spawn")
    if hasattr(context, "set_forkserver_preload"):
        modules = (*PRELOADED, "shoal.data", work.__module__, imports)
        context.set_forkserver_preload(list(filter(None, modules)))
    name = f"{work.__module__}:{work.__qualname__}"
    with TemporaryDirectory(prefix="shoal-check-", ignore_cleanup_errors=True) as scratch:
        started: list[_Started] = []
        try:
            for rank in range(size):
                reader, writer = context.Pipe(duplex=False)
                given = (rank, writer, name, args, size, str(folder.resolve()), scratch, meet)
                started.append(_Started(context.Process(target=_node, args=given, daemon=True), reader))
                with writer, _without_current_directory():
                    started[-1].process.start()
            late = _wait(started, limit_s or WORK_LIMIT_S.get())
        finally:
            for each in started:
                each.end()
        return [each.node(late) for each in started]


@contextmanager
def _without_current_directory() -> Generator[None]:
    """Let Python's servers of processes, if they are started now, import nothing from the current directory."""
    before = {SAFE_PATH: os.environ[SAFE_PATH]} if SAFE_PATH in os.environ else {}
    os.environ[SAFE_PATH] = "1"
    try:
        yield
    finally:
        del os.environ[SAFE_PATH]
        os.environ.update(before)


@dataclass
class _Started:
    """A node that was started, and what it has written so far."""

    process: Any
    pipe: Any
    begun: bool = False
    calls: list[str] = field(default_factory=list[str])
    answer: Any = None
    raised: Raised | None = None
    answered: bool = False
    ended: bool = False
    """Whether nothing more can come, or what came is not what a node writes."""
    _rest: bytearray = field(default_factory=bytearray)
    _taken: int = 0

    @property
    def failed(self) -> bool:
        """Whether there is no answer, and will be none."""
        return self.raised is not None or (self.ended and not self.answered)

    def read(self) -> None:
        """Take in what is in the pipe."""
        part = os.read(self.pipe.fileno(), 2**16)
        self._taken += len(part)
        self._rest += part
        try:
            if b"\n" in part:
                *lines, self._rest = self._rest.split(b"\n")
                for line in lines:
                    self._take(json.loads(line))
        except (ValueError, TypeError, KeyError, RecursionError):
            self.ended = True
        self.ended = self.ended or not part or self._taken > MOST_BYTES

    def _take(self, record: dict[str, Any]) -> None:
        if "call" in record:
            self.calls.append(str(record["call"]))
        elif "begun" in record:
            self.begun = True
        else:
            self.answer, raised, self.answered = record["answer"], record["raised"], True
            self.raised = raised and Raised(
                *(str(raised[key]) for key in ("kind", "text", "place", "functions"))
            )

    def look(self) -> None:
        """Notice the end of its process."""
        if not self.process.is_alive():
            while not self.ended and select.select([self.pipe], [], [], 0)[0]:
                self.read()
            self.ended = True

    def end(self) -> None:
        """End its process, if there is one."""
        if self.process.pid is not None:
            self.process.kill()
            self.process.join()
        self.pipe.close()

    def node(self, late: bool) -> Node:
        """Its outcome."""
        lost = not self.answered
        late = lost and late and not self.ended
        return Node(self.answer, self.raised, tuple(self.calls), died=lost and not late, late=late)


def _wait(started: Sequence[_Started], limit_s: float) -> bool:
    """Wait until all have answered, or one has failed and the others had a moment more; True after a timeout."""
    deadline_s = time.monotonic() + START_LIMIT_S
    begun = failed = False
    while (remaining_s := deadline_s - time.monotonic()) > 0:
        open_pipes = {each.pipe: each for each in started if not each.answered and not each.ended}
        for pipe in select.select(list(open_pipes), [], [], min(remaining_s, POLL_S))[0]:
            open_pipes[pipe].read()
        for each in open_pipes.values():
            each.look()
        if all(each.answered or each.ended for each in started):
            return False
        if not begun and all(each.begun for each in started):
            begun, deadline_s = True, time.monotonic() + limit_s
        if not failed and any(each.failed for each in started):
            failed, deadline_s = True, time.monotonic() + AFTER_AN_ERROR_S
    return not failed


def _node(
    rank: int,
    pipe: Any,
    name: str,
    args: Sequence[Any],
    size: int,
    folder: str,
    scratch: str,
    meet: bool,
) -> None:
    """What a node's process does. The output of the student's code is discarded; only the verdict is shown."""
    for stream in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
    if START_METHOD.get() == "fork":
        _let_go_of_the_parent(pipe.fileno())
    os.environ.pop(SAFE_PATH, None)
    sys.path.insert(0, folder)
    sys.argv = [""]  # a script that reads its flags when it is imported finds none
    sys.dont_write_bytecode = True
    answer = raised = None
    try:
        import torch

        torch.set_num_threads(1)
        standins.install()
        if meet:
            _meet(rank, size, Path(scratch, "store"))
        _record_calls(pipe)
        module, _, function = name.partition(":")
        answer = getattr(import_module(module), function)(rank, *args)
    except BaseException as error:  # sys.exit() in a student's file ends no more than this node
        raised = _described(error, folder)
    tell(pipe.fileno(), {"answer": answer, "raised": raised})
    # If a node exits while others still read from it, the others raise errors that are not theirs.
    while meet:
        signal.pause()
    os._exit(0)


def _let_go_of_the_parent(kept: int) -> None:
    """Close what was open in the process from which this one was forked, which writes the verdicts."""
    os.closerange(3, kept)
    os.closerange(kept + 1, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    if kernel.available():
        kernel.show_memory(True)  # to the guard, which sums it up


def tell(pipe: int, record: Any) -> None:
    """Write a line of JSON, all of it."""
    data = json.dumps(record).encode() + b"\n"
    while data:
        data = data[os.write(pipe, data) :]


def _meet(rank: int, size: int, store: Path) -> None:
    import torch.distributed as dist

    dist.init_process_group(
        "gloo",
        store=dist.FileStore(str(store), size),
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=START_LIMIT_S),
    )
    dist.barrier()
    dist.distributed_c10d._set_pg_timeout(timedelta(seconds=COLLECTIVE_LIMIT_S))  # pyright: ignore[reportPrivateUsage]


def _record_calls(pipe: Any) -> None:
    """Say that the work begins, and make torch's collectives say their name before they start."""
    import torch
    import torch.distributed as dist

    tell(pipe.fileno(), {"begun": True})

    @instead_of(dist, *filter(dist.__dict__.__contains__, COLLECTIVES))
    def recorded(collective: Any, *args: Any, **kwargs: Any) -> Any:
        name, given = collective.__name__, [*args, *kwargs.values()]
        sizes = [str(each.numel()) for each in given if isinstance(each, torch.Tensor)]
        roots = [str(each) for each in given if isinstance(each, int) and not isinstance(each, bool)]
        tell(pipe.fileno(), {"call": f"{name}({','.join(sizes[:1] + roots)})"})
        result = collective(*args, **kwargs)
        if name == "barrier":
            PENDING.clear()
        waits = name not in ("isend", "irecv") and hasattr(result, "wait")
        return Handle(result) if waits else result


def _described(error: BaseException, folder: str) -> dict[str, str]:
    def frames_of(raised: BaseException) -> list[traceback.FrameSummary]:
        every = traceback.extract_tb(raised.__traceback__)
        return [frame for frame in every if frame.filename.startswith(folder)]

    while not frames_of(error) and error.__cause__ is not None:
        error = error.__cause__  # what the student's code raised, before code of ours gave it another name
    frames = frames_of(error)
    place = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    if isinstance(error, SyntaxError):
        place = f"{Path(error.filename or '').name}:{error.lineno}"
    text = " ".join(str(error.msg if isinstance(error, SyntaxError) else error).split())
    functions = ",".join(frame.name for frame in reversed(frames))
    return {"kind": type(error).__name__, "text": text, "place": place, "functions": functions}
