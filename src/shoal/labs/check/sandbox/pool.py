"""Several workers side by side: tasks are answered in their order, as many at once as there are workers."""

import json
import os
import subprocess
import sys
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue

from shoal.labs.check.fault import fault
from shoal.labs.check.sandbox.task import Answer, Task, unanswered


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
        self._command = [sys.executable, "-m", "shoal.labs.check.sandbox.worker", package]
        self._closed = False
        self._process = self._start()

    def _start(self) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,  # Ctrl-C reaches the command alone, which then closes the workers
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"},
        )

    def ask(self, task: Task) -> Answer:
        """The answer to a task. If the worker is ended meanwhile, the task counts as died."""
        try:
            if self._process.poll() is not None and not self._closed:
                self._process = self._start()
            assert self._process.stdin
            assert self._process.stdout
            self._process.stdin.write(json.dumps(task.to_plain()) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except (OSError, ValueError):
            line = ""
        if line:
            return Answer.from_plain(json.loads(line))
        self._process.kill()
        self._process.wait()
        return Answer(unanswered(task, [], fault("died")))

    def close(self) -> None:
        """End the worker; its sandbox ends with it."""
        self._closed = True
        self._process.kill()
        self._process.wait()
