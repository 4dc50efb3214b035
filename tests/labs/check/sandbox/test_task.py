import json
from pathlib import Path

from shoal_labs.check.fault import fault
from shoal_labs.check.sandbox.limits import Limits
from shoal_labs.check.sandbox.task import Answer, Task, unanswered

TASK = Task("shoal_labs.lab1", (0, 2), Path("/in/an"), (Path("a"), Path("a/b")), Limits(work_s=3))


def test_tasks_and_answers_travel_as_json():
    assert Task.from_plain(json.loads(json.dumps(TASK.to_plain()))) == TASK
    answer = Answer(((), (fault("sum", nodes=3),)), isolated=False, refusal="no namespaces")
    failed = Answer((), failure="mount /in/bo: No such file or directory")
    for each in (answer, failed):
        assert Answer.from_plain(json.loads(json.dumps(each.to_plain()))) == each


def test_a_check_without_an_answer_gets_a_fault_of_its_own():
    assert unanswered(TASK, [[fault("sum")]], fault("died")) == ((fault("sum"),), (fault("died"),))
