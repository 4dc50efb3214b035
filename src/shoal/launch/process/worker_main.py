"""The main program of a worker process: a new interpreter with the launcher's import path, or a copy of a template.

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

from shoal.launch.process.child import die_with_parent, name_process


def main() -> int:
    """Of a new interpreter."""
    parent, descriptor, secret = map(int, sys.argv[-3:])
    die_with_parent(parent)
    return work(json.loads(sys.stdin.read()), descriptor, secret)


def work(task: dict[str, Any], descriptor: int, secret: int) -> int:
    """Do the task and report how it went; return the exit code."""
    name_process(f"shoal rank {os.environ['RANK']}")
    # SIGINT before the work begins exits silently.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    # A crash in native code then prints the Python stack of its thread.
    faulthandler.enable(all_threads=False)

    # These take seconds to load, and the lines above must not wait for them.
    from shoal.comm.rendezvous.secret import receive
    from shoal.launch.failure import failure_of
    from shoal.launch.process.worker_tasks import TASKS
    from shoal.launch.reports import Reporter

    receive(secret)
    reporter = Reporter(descriptor)
    if task["kind"] == "program":  # a run of ours goes on to end silently, until it can stop after a step
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        TASKS[task["kind"]](reporter, task)
        return 0
    except BaseException as error:  # whatever it is, the launcher needs to know
        if isinstance(error, SystemExit) and not error.code and task["kind"] == "program":
            reporter.finished()
            return 0
        failure = failure_of(error)
        reporter.failed(failure)
        # Into this worker's log. A program prints to the terminal, where one box is enough.
        if task["kind"] == "train":
            traceback.print_exception(error)
    return failure.exit_code
