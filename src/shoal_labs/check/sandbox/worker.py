"""A process that has imported torch and checks task after task, each in a sandbox that is forked from it.

python -P -m shoal_labs.check.sandbox.worker PACKAGE

It says that it is ready, reads a task from each line of its input and writes an answer for each. A sandbox is two
processes: a guard that enters new namespaces and watches what is used there, and the first process of these namespaces,
which runs the checks. That one starts further processes for the student's code, which it never runs itself, and alone
writes verdicts. When it ends, the kernel ends everything that the student's code has started.
"""

import json
import os
import select
import signal
import sys
import time
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, Never

from shoal_labs.check import nodes
from shoal_labs.check.fault import Check, fault, from_plain, to_plain
from shoal_labs.check.sandbox import isolation, kernel
from shoal_labs.check.sandbox.limits import Limits, apply, exceeded
from shoal_labs.check.sandbox.task import READY, Answer, Task, unanswered
from shoal_labs.check.trial import faults_of, load

PRELOADED = (
    *("torch.distributed", "torch.distributed.rpc", "torch.distributed.optim", "torch.utils.data"),
    *("torch._dynamo", "shoal.data"),  # torch's optimizers import the first when they are made
)
SWEEPS = 100
"""Rounds in which processes that outlived their sandbox are ended; each round can reveal more of them."""
WATCH_S, LONGEST_WATCH_S = 0.05, 0.5
"""How often the guard looks at what the student's processes use: at least, and if there are many of them."""
WATCHED = 10
"""The guard sleeps this many times as long as it computes, so that it takes little of a core."""
EXCEEDED = {3: "over_memory", 4: "over_processes"}
"""Exit codes of a guard that ended its sandbox."""
MOST_BYTES = 2**24
"""Of all verdicts on a task."""


def main(package: str) -> None:
    """Answer until the input ends."""
    for module in PRELOADED:
        import_module(module)
    for check in import_module(f"{package}.check").CHECKS:
        load(check)
    refusal = isolation.refusal()
    if not refusal:
        isolation.needed_paths()  # once for all tasks
    _write(READY)
    for line in sys.stdin:
        _write(json.dumps(run(Task.from_plain(json.loads(line)), refusal).to_plain()))


def _write(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def run(task: Task, refusal: str) -> Answer:
    """Check in a sandbox, or with limits alone if the system refuses one; what takes too long is ended."""
    reader, writer = os.pipe()
    guard = os.fork()
    if guard == 0:
        os.close(reader)
        _guard(task, writer, refusal)
    os.close(writer)
    records, late = _records(reader, task.limits.task_s, len(task.checks) + 1)
    _kill(guard)
    code = os.waitstatus_to_exitcode(os.waitpid(guard, 0)[1])
    os.close(reader)
    # The first record comes before any code of the student: without it, the fault is not the student's.
    early = "its first process ended early (out of memory or of processes?)"
    no_record = f"it was not ready after {task.limits.task_s:g} s" if late else early
    started: dict[str, Any] = records[0] if records else {"failure": no_record}
    if "failure" in started:
        return Answer((), **started)
    found = [from_plain(each) for each in records[1:]]
    why = EXCEEDED.get(code, "too_long" if late else "died")
    limits = {"gib": task.limits.memory_gib, "processes": task.limits.processes} if code in EXCEEDED else {}
    return Answer(unanswered(task, found, fault(why, **limits)), **started)


def _records(reader: int, limit_s: float, wanted: int) -> tuple[list[Any], bool]:
    """The lines that come through the pipe, and whether the time ran out before all were there."""
    deadline_s, received, lines = time.monotonic() + limit_s, b"", list[bytes]()
    while len(lines) < wanted and len(received) < MOST_BYTES:
        remaining_s = deadline_s - time.monotonic()
        if remaining_s <= 0:
            return [json.loads(line) for line in lines], True
        if not select.select([reader], [], [], remaining_s)[0]:
            continue
        part = os.read(reader, 2**16)
        if not part:
            break
        received += part
        lines = received.split(b"\n")[:-1]
    return [json.loads(line) for line in lines[:wanted]], False


def _kill(guard: int) -> None:
    """End the guard and its session; with a namespace the kernel then ends the rest."""
    for end in (os.killpg, os.kill):
        try:
            end(guard, signal.SIGTERM)
        except (ProcessLookupError, PermissionError):
            continue


def _guard(task: Task, writer: int, refusal: str) -> Never:
    """Enter new namespaces, start the first process there, and end what is left when it has ended."""
    code = inside = 0
    try:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit())
        os.setsid()
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):  # the worker's own: no sandbox reads its tasks or writes its answers
            os.dup2(nowhere, stream)
        os.close(nowhere)
        if kernel.available():
            os.chdir("/proc")  # of all processes: the sandbox will have another one
            kernel.die_with_parent(signal.SIGTERM)
            kernel.adopt_orphans()
        if not refusal:
            isolation.leave()
        inside = os.fork()
        if inside == 0:
            _inside(task, writer, refusal)
        os.close(writer)
        code = _watch(inside, task.limits)
    except OSError as error:
        _send_failure(writer, error)
    finally:
        if inside:
            _sweep(inside)
        os._exit(code)


def _watch(inside: int, limits: Limits) -> int:
    """Wait for the end of the first process; the exit code if its processes use more than they may."""
    codes = {key: code for code, key in EXCEEDED.items()}
    while not os.waitpid(inside, os.WNOHANG)[0]:
        began_s = time.process_time()
        if kernel.available():
            # Once the new root is there, it is this process's root, too.
            own = os.path.exists("/proc/1") and not os.path.samefile("/proc", ".")
            place, first = ("/proc", 1) if own else (".", os.getpid())
            if excess := exceeded(limits, place, first):
                return codes[excess]
        time.sleep(min(LONGEST_WATCH_S, WATCH_S + WATCHED * (time.process_time() - began_s)))
    return 0


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
    for number in (signal.SIGTERM, signal.SIGINT):  # the kernel then ignores those of the student's code
        signal.signal(number, signal.SIG_DFL)
    checks: tuple[Check, ...] = import_module(f"{task.package}.check").CHECKS
    try:
        with suppress(OSError):  # if memory runs out, the kernel ends these processes first
            Path("/proc/self/oom_score_adj").write_text("1000")
        if refusal:
            os.chdir(task.folder)
            apply(task.limits, private=False)
            folder = task.folder
        else:
            kernel.die_with_parent(signal.SIGKILL)
            folder = isolation.settle(task.folder, task.limits)
        for place, within in zip(task.checks, task.within, strict=True):
            (folder / within / checks[place].file).open("rb").close()  # one that cannot be read is not wrong
        if kernel.available():
            kernel.show_memory(False)
    except Exception as error:  # whatever it is: it is not the student's
        _send_failure(writer, error)
        os._exit(1)
    nodes.tell(writer, {"isolated": not refusal, "refusal": refusal})
    nodes.START_METHOD.set("fork")  # this process has imported torch, and has no threads
    nodes.WORK_LIMIT_S.set(task.limits.work_s)
    for place, within in zip(task.checks, task.within, strict=True):
        try:
            found = faults_of(checks[place], folder / within)
        except Exception:  # an answer that no check of ours would give
            found = [fault("died")]
        nodes.tell(writer, to_plain(found))
    os._exit(0)


def _send_failure(writer: int, error: Exception) -> None:
    why = error.strerror if isinstance(error, OSError) else None
    nodes.tell(writer, {"failure": why or f"{type(error).__name__}: {error}"})


if __name__ == "__main__":
    main(sys.argv[1])
