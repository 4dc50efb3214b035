"""The autograd lab with the student's tape: gradients against torch's, a fit by gradient descent, and what it costs."""

from collections.abc import Sequence

from shoal.kit.findings import Finding, by_rounds
from shoal_labs.runs import Runs
from shoal_labs.student import claims
from shoal_labs.student.host import StudentHost
from shoal_labs.student.nodes.autograd import fitted, timed
from shoal_labs.student.part import StudentMeasured, StudentPart, StudentPlan, StudentRun
from shoal_labs.student.spec import StudentExperiment, student_lab
from shoal_labs.student.submission import why_wrong
from shoal_labs.timing.contest import until_settled

TASKS = ("mul", "add", "sum", "expand", "grad")
EQUAL_WITHIN = 1e-5


def measure(plan: StudentPlan, names: Sequence[str], host: StudentHost, runs: Runs) -> dict[str, StudentPart]:
    """The tape as a whole: its operations and its walk back need each other."""
    steps, label = plan.size.steps // 4, runs.words("own_name.tape")
    runs.say("progress.own_part", part=label)
    fits = host.call(fitted, plan.seeds, steps)
    counted: dict[str, int] = {}

    def rounds() -> dict[str, list[float]]:
        found = host.call(timed, plan.size.rounds)
        counted.update(entries=found["entries"], more=found["more"])
        return {"forward": found["forward"], "backward": found["backward"]}

    times = until_settled(rounds)
    worst = {key: max(fit[key] for fit in fits) for key in ("first", "second")}
    trained = all(fit["losses"] for fit in fits)
    difference = max(fit["difference"] for fit in fits) if trained else None
    return {
        "tape": StudentPart(
            "tape",
            label,
            tuple(StudentRun(fit["losses"]) for fit in fits) if trained else (),
            tuple(StudentRun(fit["right"]) for fit in fits) if trained else (),
            list(range(1, steps + 1)),
            {**worst, **times, **counted, "difference": difference, "shapes": fits[0]["shapes"]},
            {
                "gradient": worst["first"] if trained else None,
                "second": worst["second"],
                "difference": difference,
                "entries": (counted["entries"], counted["more"]),
            },
        )
    }


def findings(measured: StudentMeasured) -> list[Finding]:
    """Gradients, the gradient's gradient, the fit, the cost."""
    part, why = measured.parts["tape"], why_wrong(TASKS, measured.verdicts)
    numbers, steps = part.numbers, len(part.x)
    own = [
        claims.in_shape(numbers["shapes"], why),
        claims.gradient("second", numbers["second"], EQUAL_WITHIN, why),
    ]
    if numbers["difference"] is not None:
        own.insert(1, claims.gradient("first", numbers["first"], EQUAL_WITHIN, why))
        own.append(claims.equal(part.label, numbers["difference"], EQUAL_WITHIN, steps, why))
    times = by_rounds(numbers["backward"], numbers["forward"])
    return [*own, claims.backward_longer(times, numbers["entries"], numbers["more"])]


LAB = student_lab(
    StudentExperiment(
        number="autograd",
        file="tape.py",
        parts={"tape": TASKS},
        measure=measure,
        findings=findings,
    )
)
