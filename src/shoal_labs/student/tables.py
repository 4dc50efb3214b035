"""Every number of the report of a student's code, as tables for other programs."""

from shoal.report.plain_tables import Records
from shoal_labs.student.part import StudentMeasured


def tables(measured: StudentMeasured) -> dict[str, Records]:
    """The tables by name."""
    both = [
        (part, who, trained)
        for part in measured.parts.values()
        for who, trained in (("student", part.runs), ("right", part.right))
    ]
    return {
        "tasks": task_records(measured),
        "runs": [
            {
                "part": part.name,
                "code": who,
                "seed": seed,
                "final loss (nat)": each.final_loss,
                "test accuracy (1)": "" if each.accuracy is None else each.accuracy,
            }
            for part, who, trained in both
            for seed, each in enumerate(trained, start=measured.plan.first_seed)
        ],
        "curves": [
            {
                "part": part.name,
                "code": who,
                "seed": seed,
                "x": f"{x:.6g}",
                "loss (nat)": f"{loss:.6g}",
            }
            for part, who, trained in both
            for seed, each in enumerate(trained, start=measured.plan.first_seed)
            for x, loss in zip(part.x, each.losses, strict=True)
        ],
    }


def task_records(measured: StudentMeasured) -> Records:
    """What the check says, a row for each task."""
    return [
        {"task": task, "verdict": verdict.word, "why": verdict.why}
        for verdict in measured.verdicts
        for task in verdict.tasks
    ]
