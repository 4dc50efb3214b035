"""The autograd lab with the student's tape: gradients against torch's, a fit by gradient descent, and what it costs."""

from collections.abc import Mapping, Sequence

from shoal.labs.numbers import scientific
from shoal.labs.runs import Runs
from shoal.labs.student import claims
from shoal.labs.student.host import StudentHost
from shoal.labs.student.nodes.autograd import fitted, timed
from shoal.labs.student.part import StudentMeasured, StudentPart, StudentPlan, StudentRun
from shoal.labs.student.spec import StudentExperiment, student_lab
from shoal.labs.student.submission import why_wrong
from shoal.report.findings import Finding
from shoal.report.paired import by_rounds

TASKS = ("mul", "add", "sum", "expand", "grad")
EQUAL_WITHIN = 1e-5


def measure(plan: StudentPlan, names: Sequence[str], host: StudentHost, runs: Runs) -> dict[str, StudentPart]:
    """The tape as a whole: its operations and its walk back need each other."""
    steps, label = plan.size.steps // 4, runs.words("own_name.tape")
    runs.say("progress.own_part", part=label)
    fits = host.call(fitted, plan.seeds, steps)
    times = host.call(timed, plan.size.rounds)
    worst = {key: max(fit[key] for fit in fits) for key in ("first", "second", "difference")}
    return {
        "tape": StudentPart(
            "tape",
            label,
            tuple(StudentRun(fit["losses"]) for fit in fits),
            tuple(StudentRun(fit["right"]) for fit in fits),
            list(range(1, steps + 1)),
            {**worst, **times},
            {
                "gradient": scientific(worst["first"]),
                "second": scientific(worst["second"]),
                "difference": scientific(worst["difference"]),
                "entries": f"{times['entries']} + {times['more']}",
            },
        )
    }


def findings(measured: StudentMeasured) -> Mapping[str, Sequence[Finding]]:
    """Gradients, the gradient's gradient, the fit, the cost."""
    part, why = measured.parts["tape"], why_wrong(TASKS, measured.verdicts)
    numbers, steps = part.numbers, len(part.x)
    return {
        "own": [
            claims.gradient("first", numbers["first"], EQUAL_WITHIN, why),
            claims.gradient("second", numbers["second"], EQUAL_WITHIN, why),
            claims.equal(part.label, numbers["difference"], EQUAL_WITHIN, steps, why),
        ],
        "own_cost": [
            claims.backward_longer(
                by_rounds(numbers["backward"], numbers["forward"]), numbers["entries"], numbers["more"]
            )
        ],
    }


LAB = student_lab(
    StudentExperiment(
        number="autograd",
        file="tape.py",
        parts={"tape": TASKS},
        measure=measure,
        findings=findings,
    )
)
