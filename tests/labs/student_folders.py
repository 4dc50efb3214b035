"""Folders of students: our solution with some tasks written otherwise, and the report of one with a tiny plan."""

import textwrap

import pytest
from reports import undrawn

from shoal.compare.watch import QuietWatch
from shoal.report.folder import write_files
from shoal_labs.frame import load_lab, run_plan
from shoal_labs.handout.regions import Region, parts
from shoal_labs.handout.start import _sources
from shoal_labs.student.part import StudentPlan, StudentSize
from shoal_labs.student.submission import TaskVerdict, read_submission

TINY = StudentSize(seeds=2, steps=8, equal_steps=3, samples=192, rounds=2)


def written_by_student(folder, number, **bodies):
    """A folder in the shape of the hand-out; tasks that are named have another body."""
    files = {}
    for path, source in _sources(number).items():
        lines = []
        for part in parts(source):
            if isinstance(part, Region) and part.name in bodies:
                body = textwrap.dedent(bodies[part.name]).strip("\n")
                lines += textwrap.indent(body, part.indent).splitlines()
            else:
                lines += part.lines if isinstance(part, Region) else [part]
        files[path] = "\n".join(lines) + "\n"
    write_files(folder, files)
    return folder


def report_of(folder, number, file, out, lang="en", lab_plan=None, tasks=None, watch=None, drawn=False):
    """The report with a tiny plan; with `tasks`, these count as right and nothing is checked."""
    lab = load_lab(number, solution=True)
    words = lab.words(lang)
    plan = StudentPlan(read_submission(number, folder, file), TINY, quick=True)
    if lab_plan:
        plan = StudentPlan(plan.submission, TINY, quick=True, lab=lab_plan(plan.submission))
    with pytest.MonkeyPatch.context() as patch:
        if not drawn:
            patch.setattr("shoal_labs.frame.draw_all", undrawn)
        if tasks:
            verdicts = tuple(TaskVerdict((task,), "right", "") for task in tasks)
            patch.setattr("shoal_labs.student.spec.check_submission", lambda *_: verdicts)
        return run_plan(lab, plan, out, f"shoal lab {number}", words, watch or QuietWatch()), words
