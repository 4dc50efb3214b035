"""Run the student's program on real processes that talk over loopback, and collect what was seen."""

import os
import re
import runpy
import socket
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any, get_args

import torch
from torch.distributed import rpc

from shoal.kit.training import frames_of
from shoal_labs.check.fault import OPEN, Fault, fault, from_plain, to_plain
from shoal_labs.check.nodes import Node, run_nodes
from shoal_labs.check.trial import failures
from shoal_labs.lab4.check.holds import Holds
from shoal_labs.lab4.check.judge import PARAMETERS, Task, judge, values
from shoal_labs.lab4.check.mended import PLACES, replaceable, run_mended
from shoal_labs.lab4.check.observe import Enough, Wrong, install, watch_returns
from shoal_labs.lab4.check.seen import FIRST, LAST, SEEN, Step, gather

LIMIT_S = 60.0
"""How long the program may take for its first steps."""
GOODBYE_S = 5.0
"""How long the workers may take to shut down when the check has seen enough."""
POLL_S = 0.02
PORTS = 3
"""How many ports are tried: another program may take a free one before the student's does."""
FUNCTIONS: dict[str, Task] = {function: task for task, (_, _, function) in PLACES.items()}

ONLY_OURS = frozenset({"one_seed", "not_a_float", "wrong_loss"})
"""Faults of functions of our hand-out; another program may draw and return what it likes."""
WITHOUT_A_NAME: tuple[Task, ...] = ("stages", "forward")
"""Tasks that an error costs which is in the function of no task."""


@dataclass(frozen=True)
class Outcome:
    """What a run of the program showed."""

    faults: dict[Task, list[Fault]]
    """Of every task that was reached."""
    stopped_in: Task | None = None
    """The task in which the program stopped, if it did."""
    initial: list[float] = field(default_factory=list[float])
    """A fingerprint of the initial parameters."""
    seeded: dict[str, str] = field(default_factory=dict[str, str])
    """The line that seeded each worker with parameters, if one did."""
    driver_seeded: str = ""
    """The line that seeded the driver."""
    refused: bool = False
    """Whether the program exited because of its flags."""


def run_program(
    folder: Path,
    size: int,
    steps: int,
    flags: Sequence[str],
    microbatches: int = 1,
    limit_s: float = LIMIT_S,
    ours: Collection[Task] = (),
) -> Outcome:
    """Run `model.py` of the folder as every worker, until it has made this many steps; with our solution of tasks."""
    nodes = run_workers(worker, folder, size, steps, flags, microbatches, limit_s, ours)
    late = {f"worker{rank}": node.answer["waits"] for rank, node in enumerate(nodes) if node.answer}
    answer = nodes[0].answer
    if any(late.values()):
        where = "; ".join(f"{worker}: {place}" for worker, place in late.items() if place)
        return Outcome({"train_step": [fault("hangs", where=where)]}, stopped_in="train_step")
    left = [f"worker{rank}" for rank, node in enumerate(nodes) if node.answer and node.answer.get("left")]
    if left:
        return Outcome({"stages": [fault("no_shutdown", workers=left)]}, stopped_in="stages")
    if answer is None:
        return _of_failures(failures(nodes))
    known = replaceable(folder)
    found: dict[Task, list[Fault]] = {
        task: [
            each for each in from_plain(answer["faults"][task]) if task in known or each.key not in ONLY_OURS
        ]
        for task in get_args(Task)
        if task in answer["faults"]
    }
    rest = {key: answer[key] for key in ("stopped_in", "initial", "seeded", "driver_seeded", "refused")}
    return Outcome(found, **rest)


def _of_failures(faults: list[Fault]) -> Outcome:
    """The program stopped before it did anything of this lab; in the function of a task, if the error names one."""
    functions = [name for each in faults for name in str(each.values.get("functions", "")).split(",")]
    tasks: set[Task] = {FUNCTIONS[name] for name in functions if name in FUNCTIONS}
    found = dict.fromkeys(tasks or WITHOUT_A_NAME, faults)
    return Outcome(found, stopped_in=next(iter(found)))


def run_workers(
    work: Callable[..., dict[str, Any]],
    folder: Path,
    size: int,
    steps: int,
    flags: Sequence[str],
    microbatches: int = 1,
    limit_s: float = LIMIT_S,
    ours: Collection[Task] = (),
) -> list[Node]:
    """Run `work`, which calls `worker`, as every worker of the program; on another port if its port was taken."""
    nodes: list[Node] = []
    for _ in range(PORTS):
        with TemporaryDirectory(prefix="shoal-check-") as scratch:
            address = [f"--n_devices={size}", "--master_addr=127.0.0.1", f"--master_port={_free_port()}"]
            given = ([*address, *flags], steps, scratch, microbatches, limit_s, list(ours))
            all_s = limit_s + 2 * GOODBYE_S
            nodes = run_nodes(work, folder, size, str(folder.resolve()), *given, meet=False, limit_s=all_s)
        if not any(node.raised and "EADDRINUSE" in node.raised.text for node in nodes):
            break
    return nodes


def worker(
    rank: int,
    folder: str,
    flags: list[str],
    steps: int,
    scratch: str,
    microbatches: int,
    limit_s: float,
    ours: list[Task],
) -> dict[str, Any]:
    """One worker: the student's program in a thread, watched by this one."""
    for name in ("GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME"):
        os.environ[name] = next(name for _, name in socket.if_nameindex() if name.startswith("lo"))
    torch.seed()  # in another state in every run: what the program seeds does not depend on it
    sys.argv = ["model.py", *flags, f"--rank={rank}"]
    holds = Holds(Path(scratch), microbatches) if microbatches > 1 else None
    install(folder, steps, holds)
    errors: list[BaseException] = []
    thread = Thread(target=_program, args=(folder, steps, ours, errors), daemon=True)
    thread.start()
    deadline_s, waited_in = time.monotonic() + limit_s, dict[str, str]()
    while thread.is_alive() and time.monotonic() < deadline_s:
        thread.join(POLL_S)
        for key in holds.active() if holds else ():
            waited_in[key] = _place_of(thread) or waited_in.get(key, "?")
    if thread.is_alive():
        return {"waits": _place_of(thread) or "?"}
    error = errors[0] if errors else None
    if rank > 0:
        if error is not None:
            raise error
        return {"waits": "", "left": _is_connected()}
    answer = _driver_answer(error, microbatches)
    for key in holds.faults() if holds else ():
        answer["faults"].setdefault("forward_microbatches", []).append(
            [key, {"place": waited_in.get(key, "?")}]
        )
    if _is_connected():  # the other workers serve until the driver shuts down
        _in_time(rpc.shutdown)
    return {"waits": "", **answer}


def _program(folder: str, steps: int, ours: Collection[Task], errors: list[BaseException]) -> None:
    watch_returns(steps)
    try:
        if ours:
            run_mended(folder, ours)
        else:
            runpy.run_path(f"{folder}/model.py", run_name="__main__")
    except Enough:
        pass
    except BaseException as error:
        errors.append(error)


def _place_of(thread: Thread) -> str:
    frames = frames_of(thread.ident)
    return SEEN.place(frames[0]) if frames else ""


def _driver_answer(error: BaseException | None, microbatches: int) -> dict[str, Any]:
    """What the driver saw, in a form that JSON can represent."""
    refused = isinstance(error, SystemExit) and error.code == 2
    if (
        error is not None
        and not isinstance(error, Wrong | SystemExit)
        and not SEEN.remote
        and not SEEN.contexts
    ):
        raise error  # before anything of this lab: an import, a name, the data
    if error is not None and not SEEN.steps and SEEN.optimizers:
        _in_time(_collect)
    found = judge(SEEN, microbatches)
    stopped: Task | None = None
    if isinstance(error, Wrong):
        stopped = "train_step"
        found[stopped] = list(error.faults)
    elif error is not None and not isinstance(error, SystemExit):
        stopped, wrong = _of_an_error(error)
        found[stopped] = [wrong]
    elif not SEEN.steps and not refused:
        stopped = "train_step" if SEEN.optimizers else "parameter_rrefs"
        found[stopped] = [fault("no_step" if SEEN.optimizers else "no_optimizer")]
    first = SEEN.steps[0].before if SEEN.steps else ()
    return {
        "faults": {task: to_plain(faults) for task, faults in found.items()},
        "stopped_in": stopped,
        "initial": [value for held in values(first).values() for value in held.flatten()[:3].tolist()],
        "seeded": {report.worker: report.seeded for report in first if report.parameters},
        "driver_seeded": SEEN.seeded,
        "refused": refused,
    }


def _collect() -> None:
    """Ask all workers what they have recorded: a program that stopped in its first step shows its other tasks.

    No parameter has changed yet, so all calls belong together, in the context and out of it.
    """
    reports = [
        replace(report, calls=[replace(call, context=None) for call in report.calls])
        for report in gather(None)
    ]
    rows = Counter[str]()
    for call in (call for report in reports for call in report.calls):
        rows[call.layer] += 0 if call.tensor is None else len(call.tensor)
    if all(name in values(reports) for name in PARAMETERS) and rows[FIRST] == rows[LAST] > 0:
        SEEN.stopped = Step(None, "", reports, ())


def _of_an_error(error: BaseException) -> tuple[Task, Fault]:
    """The task in which the program failed, and how. An error on another worker names the line there."""
    text, kind = str(error), type(error).__name__
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename.startswith(f"{SEEN.folder}/")
    ]
    named: list[Task] = [FUNCTIONS[frame.name] for frame in frames if frame.name in FUNCTIONS]
    task: Task = named[-1] if named else _phase()
    line = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "?"
    if type(error) is NotImplementedError and re.search(OPEN, text):
        return task, fault("not_done")
    remote = re.search(r"On WorkerInfo\(.*?name=(\w+)\):\s*(.*)", text)
    if remote:
        there = re.findall(rf'File "{re.escape(SEEN.folder)}/([^"]+)", line (\d+)', text)
        where = ":".join(there[-1]) if there else line
        return task, fault(
            "raises_there", worker=remote[1], error=_short(remote[2]), place=where, called=line
        )
    return task, fault("raises", error=f"{kind}: {_short(text)} ({line})")


def _short(text: str) -> str:
    line = text.strip().splitlines()[0] if text.strip() else ""
    return line if len(line) <= 160 else f"{line[:160]}…"


def _phase() -> Task:
    if SEEN.optimizers:
        return "train_step"
    return "parameter_rrefs" if SEEN.remote else "stages"


def _in_time(function: Callable[[], None]) -> None:
    """Call a function that other workers may never answer."""
    thread = Thread(target=function, daemon=True)
    thread.start()
    thread.join(GOODBYE_S)


def _is_connected() -> bool:
    """Whether this worker has joined the others and not shut down."""
    return rpc.api._is_current_rpc_agent_set()  # pyright: ignore


def _free_port() -> int:
    """A port of this machine that no program listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]
