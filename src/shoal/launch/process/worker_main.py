"""The main program of a worker process: a new interpreter with the launcher's import path, or a copy of a template.

`name_worker` and `draw_anew` also serve copies of the launcher (`forks.py`).

Its task comes through standard input, its place in the world from the environment, and the secret of the run through a
pipe; its reports go into another pipe. It is given the numbers of both.
"""

import faulthandler
import json
import os
import signal
import sys
import traceback
from typing import Any

from shoal.launch.process.child import die_with_parent, exit_at_once, name_process


def main() -> int:
    """Of a new interpreter."""
    parent, descriptor, secret = map(int, sys.argv[-3:])
    die_with_parent(parent)
    return work(json.loads(sys.stdin.read()), descriptor, secret)


def work(task: dict[str, Any], descriptor: int, secret: int) -> int:
    """Do the task and report how it went; return the exit code."""
    name_worker()
    # SIGINT before the work begins exits silently.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})

    # These take seconds to load, and the lines above must not wait for them.
    from shoal.comm.rendezvous.secret import receive
    from shoal.launch.failure import failure_of
    from shoal.launch.process.worker_tasks import TASKS
    from shoal.launch.reports import Reporter

    receive(secret)
    reporter = Reporter(descriptor)
    if task["kind"] == "program":  # a run of ours goes on to end silently, until it can stop after a step
        signal.signal(signal.SIGINT, signal.default_int_handler)
    code = 0
    try:
        TASKS[task["kind"]](reporter, task)
    except BaseException as error:  # whatever it is, the launcher needs to know
        if isinstance(error, SystemExit) and not error.code and task["kind"] == "program":
            reporter.finished()
            return 0
        failure = failure_of(error)
        code = failure.exit_code
        reporter.failed(failure)
        # Into this worker's log. A program prints to the terminal, where one box is enough.
        if task["kind"] == "train":
            traceback.print_exception(error)
    if task["kind"] == "train":
        exit_at_once(code)
    return code  # a program ends as Python ends it


def name_worker() -> None:
    """Name this process after its rank; a crash in native code then prints the Python stack of its thread."""
    name_process(f"shoal rank {os.environ['RANK']}")
    faulthandler.enable(all_threads=False)


def draw_anew() -> None:
    """In a copy: as in new interpreters, random numbers that nobody seeds differ between workers."""
    sys.modules["torch"].default_generator.seed()
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()
