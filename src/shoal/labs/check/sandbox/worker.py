"""A process that has imported torch and checks task after task, each in a sandbox that is forked from it.

python -m shoal.labs.check.sandbox.worker PACKAGE

It reads a task from each line of its input and writes an answer for each. A sandbox is two processes: a guard that
enters new namespaces and waits, and the first process of these namespaces, which runs the checks. When that one ends,
the kernel ends everything that the student's code has started.
"""

import json
import os
import select
import signal
import sys
import time
from importlib import import_module
from typing import Any, Never

from shoal.labs.check import nodes
from shoal.labs.check.fault import Check, Fault, fault
from shoal.labs.check.sandbox import isolation, kernel
from shoal.labs.check.sandbox.limits import apply
from shoal.labs.check.sandbox.task import Answer, Task, unanswered

PRELOADED = (
    *("torch.distributed", "torch.distributed.rpc", "torch.distributed.optim", "torch.utils.data"),
    *(
        "torch._dynamo",
        "shoal.data",
        "shoal.labs.check.one_step",
    ),  # torch's optimizers import the first when made
)
SWEEPS = 100
"""Rounds in which processes that outlived their sandbox are ended; each round can reveal more of them."""


def main(package: str) -> None:
    """Answer until the input ends."""
    for module in (*PRELOADED, f"{package}.check"):
        import_module(module)
    for line in sys.stdin:
        answer = run(Task.from_plain(json.loads(line)))
        sys.stdout.write(json.dumps(answer.to_plain()) + "\n")
        sys.stdout.flush()


def run(task: Task) -> Answer:
    """Check in a sandbox; a sandbox that takes too long is ended."""
    reader, writer = os.pipe()
    guard = os.fork()
    if guard == 0:
        os.close(reader)
        _guard(task, writer)
    os.close(writer)
    records, late = _records(reader, task.limits.task_s, len(task.checks) + 1)
    _kill(guard)
    os.waitpid(guard, 0)
    os.close(reader)
    # The first record comes before any code of the student: without it, the fault is not the student's.
    started: dict[str, Any] = records[0] if records else {"failure": _no_record(task, late)}
    if "failure" in started:
        return Answer((), **started)
    found = [[Fault(key, values) for key, values in each] for each in records[1:]]
    return Answer(unanswered(task, found, fault("too_long" if late else "died")), **started)


def _no_record(task: Task, late: bool) -> str:
    if late:
        return f"it was not ready after {task.limits.task_s:g} s"
    return "its first process ended early (out of memory or of processes?)"


def _records(reader: int, limit_s: float, wanted: int) -> tuple[list[Any], bool]:
    """The lines that come through the pipe, and whether the time ran out before all were there."""
    deadline_s, received, lines = time.monotonic() + limit_s, b"", list[bytes]()
    while len(lines) < wanted:
        remaining_s = deadline_s - time.monotonic()
        if remaining_s <= 0:
            return _decoded(lines), True
        if not select.select([reader], [], [], remaining_s)[0]:
            continue
        part = os.read(reader, 2**16)
        if not part:
            break
        received += part
        lines = received.split(b"\n")[:-1]
    return _decoded(lines), False


def _decoded(lines: list[bytes]) -> list[Any]:
    return [json.loads(line) for line in lines]


def _kill(guard: int) -> None:
    """End the guard and its session; with a namespace the kernel then ends the rest."""
    for end in (os.killpg, os.kill):
        try:
            end(guard, signal.SIGTERM)
        except (ProcessLookupError, PermissionError):
            continue


def _guard(task: Task, writer: int) -> Never:
    """Enter new namespaces, start the first process there, and end what is left when it has ended."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    os.setsid()
    refusal, inside = "", 0
    try:
        if kernel.available():
            kernel.die_with_parent(signal.SIGTERM)
            kernel.adopt_orphans()
            isolation.try_out(task.folder)
            isolation.leave()
        else:
            refusal = f"{sys.platform} has no namespaces"
    except OSError as error:
        refusal = str(error.strerror or error)
    try:
        inside = os.fork()
        if inside == 0:
            _inside(task, writer, refusal)
        os.close(writer)
        os.waitpid(inside, 0)
    finally:
        if inside:
            _sweep(inside)
        os._exit(0)


def _sweep(inside: int) -> None:
    """End the first process, and without namespaces also every process that it left behind."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for _ in range(SWEEPS):
        children = _children() or [inside]
        for child in children:
            try:
                os.kill(child, signal.SIGKILL)
            except ProcessLookupError:
                continue
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.01)


def _children() -> list[int]:
    try:
        with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:
            return [int(each) for each in file.read().split()]
    except (OSError, ValueError):
        return []


def _inside(task: Task, writer: int, refusal: str) -> Never:
    """Run the checks, and send a line for each as soon as it is done; the first says how they are isolated."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        if refusal:
            apply(task.limits, private=False)
            folder = task.folder
            counted = os.getuid() != 0
        else:
            kernel.die_with_parent(signal.SIGKILL)
            folder = isolation.settle(task.folder, task.others, task.limits)
            counted = os.getuid() != 0 or isolation.counts_processes()
    except Exception as error:  # whatever it is: it is not the student's
        why = error.strerror if isinstance(error, OSError) else None
        _send(writer, {"failure": why or f"{type(error).__name__}: {error}"})
        os._exit(1)
    _send(writer, {"isolated": not refusal, "refusal": refusal, "counted": counted})
    nodes.START_METHOD.set("fork")  # this process has imported torch, and has no threads
    nodes.WORK_LIMIT_S.set(task.limits.work_s)
    checks: tuple[Check, ...] = import_module(f"{task.package}.check").CHECKS
    for place, within in zip(task.checks, task.within, strict=True):
        found = checks[place].faults(folder / within)
        _send(writer, [[each.key, dict(each.values)] for each in found])
    os._exit(0)


def _send(writer: int, record: Any) -> None:
    data = json.dumps(record).encode() + b"\n"
    while data:
        data = data[os.write(writer, data) :]


if __name__ == "__main__":
    main(sys.argv[1])
