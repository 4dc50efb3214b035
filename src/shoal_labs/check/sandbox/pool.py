"""Several workers side by side: tasks are answered in their order, as many at once as there are workers."""

import json
import os
import subprocess
import sys
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from threading import Timer

import shoal
from shoal_labs.check.fault import fault
from shoal_labs.check.sandbox.task import READY, Answer, Task, unanswered

START_LIMIT_S = 300.0
"""How long a worker may take to import torch, on a busy machine; and beyond a task's own limit, to answer."""
KEPT = ("LANG", "LC_ALL", "LC_CTYPE", "TZ", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "PYTHONHOME")
"""Variables of the user's that a worker gets: of the language, and without which Python or torch may not start."""


def answers(tasks: Sequence[Task], jobs: int) -> Generator[Answer]:
    """The answer to every task, in their order."""
    jobs = max(1, min(jobs, len(tasks)))
    idle: SimpleQueue[Worker] = SimpleQueue()
    workers = [Worker(task.package) for task in tasks[:jobs]]
    for worker in workers:
        idle.put(worker)

    def ask(task: Task) -> Answer:
        worker = idle.get()
        try:
            return worker.ask(task)
        finally:
            idle.put(worker)

    executor = ThreadPoolExecutor(jobs)
    try:
        yield from executor.map(ask, tasks)
    finally:
        for worker in workers:
            worker.close()
        executor.shutdown(wait=True, cancel_futures=True)


class Worker:
    """A worker process; one that died is replaced."""

    def __init__(self, package: str) -> None:
        self._command = [sys.executable, "-P", "-m", "shoal_labs.check.sandbox.worker", package]
        self._closed = self._ready = False
        self._process = self._start()

    def _start(self) -> "subprocess.Popen[str]":
        """A process that finds no module, variable or open file of a student's or of the user's shell."""
        return subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,  # Ctrl-C reaches the command alone, which then closes the workers
            cwd="/",
            env=environment(),
        )

    def ask(self, task: Task) -> Answer:
        """The answer to a task. If the worker is ended meanwhile, the task counts as died."""
        if self._process.poll() is not None and not self._closed:
            self._process, self._ready = self._start(), False
        self._ready = self._ready or self._line(START_LIMIT_S) == READY
        if not self._ready:
            self._end()
            return Answer((), failure="the process that sets it up did not start")
        line = self._line(task.limits.task_s + START_LIMIT_S, json.dumps(task.to_plain()))
        try:
            answer = Answer.from_plain(json.loads(line))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            answer = None
        if answer and (answer.failure or len(answer.faults) == len(task.checks)):
            return answer
        self._end()
        return Answer(unanswered(task, [], fault("died")))

    def _line(self, limit_s: float, asked: str = "") -> str:
        """What the worker answers; nothing if it ends meanwhile, or has to be ended because it does not answer."""
        assert self._process.stdin
        assert self._process.stdout
        timer = Timer(limit_s, self._process.kill)
        timer.start()
        try:
            if asked:
                self._process.stdin.write(f"{asked}\n")
                self._process.stdin.flush()
            return self._process.stdout.readline().rstrip("\n")
        except (OSError, ValueError):
            return ""
        finally:
            timer.cancel()

    def _end(self) -> None:
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """End the worker; its sandbox ends with it."""
        self._closed = True
        self._end()


def environment() -> dict[str, str]:
    """The variables of a worker, and so of students' code: few, and none with a secret or a place of the user's."""
    kept = {name: os.environ[name] for name in KEPT if name in os.environ}
    # The current directory can be a student's folder, and be on the path: `python -m` puts it there.
    own, here = os.path.dirname(os.path.dirname(shoal.__file__)), os.getcwd()
    path = [os.path.abspath(entry) for entry in sys.path if entry]
    return kept | {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": "/tmp",
        "TMPDIR": "/tmp",
        "PYTHONPATH": os.pathsep.join(entry for entry in path if entry == own or entry != here),
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
    }
