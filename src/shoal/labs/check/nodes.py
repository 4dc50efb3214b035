"""Run a part of a student's solution on several nodes, each a process of its own, with a time limit.

Nodes are forked from a server that has already imported torch, so that a world of three starts quickly. A node's answer
comes back as JSON in a file, and its calls of torch's collectives line by line, so that they are known even if the node
hangs.
"""

import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import timedelta
from importlib import import_module
from multiprocessing import get_all_start_methods, get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from shoal.labs.check import standins

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
POLL_S = 0.01
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
    with TemporaryDirectory(prefix="shoal-check-") as scratch:
        given = (name, args, size, str(folder.resolve()), scratch, meet)
        processes = [context.Process(target=_node, args=(rank, *given), daemon=True) for rank in range(size)]
        for process in processes:
            process.start()
        try:
            late = _wait(processes, Path(scratch), limit_s or WORK_LIMIT_S.get())
        finally:
            for process in processes:
                process.kill()
                process.join()
        return [_read(Path(scratch), rank, late) for rank in range(size)]


def _wait(processes: Sequence[Any], scratch: Path, limit_s: float) -> bool:
    """Wait until all have answered, or one has failed and the others had a moment more; True after a timeout."""
    ranks = range(len(processes))
    deadline_s = time.monotonic() + START_LIMIT_S
    begun = failed = False
    while time.monotonic() < deadline_s:
        if all((scratch / f"{rank}.json").exists() for rank in ranks):
            return False
        if not begun and all((scratch / f"{rank}.calls").exists() for rank in ranks):
            begun, deadline_s = True, time.monotonic() + limit_s
        if not failed and any(_has_failed(process, scratch, rank) for rank, process in enumerate(processes)):
            failed, deadline_s = True, time.monotonic() + AFTER_AN_ERROR_S
        time.sleep(POLL_S)
    return not failed


def _has_failed(process: Any, scratch: Path, rank: int) -> bool:
    answered = scratch / f"{rank}.json"
    if answered.exists():
        return json.loads(answered.read_text())["raised"] is not None
    return not process.is_alive() and not answered.exists()


def _read(scratch: Path, rank: int, late: bool) -> Node:
    calls, answered = scratch / f"{rank}.calls", scratch / f"{rank}.json"
    began = tuple(calls.read_text().split()) if calls.exists() else ()
    if not answered.exists():
        return Node(None, None, began, died=not late, late=late)
    found = json.loads(answered.read_text())
    return Node(found["answer"], Raised(**found["raised"]) if found["raised"] else None, began)


def _node(
    rank: int, name: str, args: Sequence[Any], size: int, folder: str, scratch: str, meet: bool
) -> None:
    """What a node's process does. The output of the student's code is discarded; only the verdict is shown."""
    for stream in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
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
        _record_calls(Path(scratch, f"{rank}.calls"))
        module, _, function = name.partition(":")
        answer = getattr(import_module(module), function)(rank, *args)
    except BaseException as error:  # sys.exit() in a student's file ends no more than this node
        raised = _described(error, folder)
    unfinished = Path(scratch, f"{rank}.unfinished")
    unfinished.write_text(json.dumps({"answer": answer, "raised": raised}))
    unfinished.rename(unfinished.with_suffix(".json"))
    # If a node exits while others still read from it, the others raise errors that are not theirs.
    while meet and not all(Path(scratch, f"{other}.json").exists() for other in range(size)):
        time.sleep(POLL_S)
    os._exit(0)


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


def _record_calls(path: Path) -> None:
    """Make torch's collectives write their name to a file before they start, however the student imports them."""
    import torch
    import torch.distributed as dist

    path.touch()

    def recorded(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            given = [*args, *kwargs.values()]
            sizes = [str(each.numel()) for each in given if isinstance(each, torch.Tensor)]
            roots = [str(each) for each in given if isinstance(each, int) and not isinstance(each, bool)]
            with path.open("a") as file:
                file.write(f"{name}({','.join(sizes[:1] + roots)})\n")
            return function(*args, **kwargs)

        return call

    for name in COLLECTIVES:
        if hasattr(dist, name):
            setattr(dist, name, recorded(name, getattr(dist, name)))


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
    return {"kind": type(error).__name__, "text": text, "place": place}
