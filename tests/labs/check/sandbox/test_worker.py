"""A worker where namespaces are refused or a sandbox fails: it says so, and the limits of the process still hold."""

import json
import subprocess
import sys

import pytest
from hand_ins import ADAM, SGD, after, hand_in

from shoal_labs.check.sandbox.limits import Limits
from shoal_labs.check.sandbox.task import Answer, Task
from shoal_labs.check.solution import tasks_of

PROGRAM = """
from shoal_labs.check.sandbox import isolation, worker

def refused():
    raise PermissionError(1, "Operation not permitted")

isolation.leave = refused
worker.main("shoal_labs.lab1")
"""


def test_without_namespaces_tasks_are_checked_with_limits(tmp_path):
    folder = hand_in(
        tmp_path,
        after(SGD, "while True: pass"),
        after(ADAM, "hoard = bytearray(64 * 2**30)"),
    )
    tasks: list[Task] = tasks_of("1", folder, Limits(work_s=5))[:4]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input="".join(json.dumps(task.to_plain()) + "\n" for task in tasks),
        capture_output=True,
        text=True,
        timeout=300,
    )
    answers = [Answer.from_plain(json.loads(line)) for line in done.stdout.splitlines()[1:]]
    assert [answer.isolated for answer in answers] == [False] * 4, done.stderr
    assert "not permitted" in answers[0].refusal
    found = [[fault.key for fault in answer.faults[0]] for answer in answers]
    assert found == [[], [], ["too_long"], ["raises"]]


FAILING = """
import os
from shoal_labs.check.sandbox import isolation, worker

def fail(*_):
    {failure}

isolation.refusal = lambda: ""
isolation.leave = lambda *_: None
isolation.settle = fail
worker.main("shoal_labs.lab1")
"""


@pytest.mark.parametrize(
    ("failure", "why"),
    [
        ("raise OSError(2, 'mount /in/bo: No such file or directory')", "mount /in/bo: No such file"),
        ("raise ValueError('embedded null byte')", "ValueError: embedded null byte"),
        ("os._exit(1)", "its first process ended early"),
    ],
)
def test_a_sandbox_that_cannot_be_set_up_is_not_the_students_fault(tmp_path, failure, why):
    (task, *_) = tasks_of("1", hand_in(tmp_path), Limits(work_s=5))
    done = subprocess.run(
        [sys.executable, "-c", FAILING.format(failure=failure)],
        input=json.dumps(task.to_plain()) + "\n",
        capture_output=True,
        text=True,
        timeout=60,
    )
    answer = Answer.from_plain(json.loads(done.stdout.splitlines()[1]))
    assert why in answer.failure
    assert answer.faults == ()
