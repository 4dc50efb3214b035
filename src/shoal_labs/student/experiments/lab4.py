"""Lab 4 with the student's split model: the program as it is, step by step against one process with the same weights.

The program runs with its own data, optimizer and seed. In every step all workers report to the driver, so its times
are not used.
"""

from collections.abc import Sequence

from shoal.kit.findings import Finding
from shoal_labs.check.fault import Fault, fault
from shoal_labs.check.nodes import Node
from shoal_labs.lab4.check.parts import MICROBATCHES, microbatch_flag, workers_of
from shoal_labs.lab4.check.program import run_workers
from shoal_labs.runs import Runs
from shoal_labs.student import claims
from shoal_labs.student.host import StudentHost, raise_failures
from shoal_labs.student.nodes.lab4 import watched
from shoal_labs.student.part import StudentMeasured, StudentPart, StudentPlan, StudentRun
from shoal_labs.student.spec import StudentExperiment, student_lab
from shoal_labs.student.submission import because, in_words, joined

PARTS: dict[str, tuple[str, ...]] = {
    "whole": ("stages", "forward", "init_parameters", "parameter_rrefs", "train_step"),
    "microbatches": ("forward_microbatches",),
}
STEPS_PART = 10
"""The program makes this many times fewer steps than the runs of other labs: it is watched in each of them."""
LIMIT_S = 120.0
EQUAL_WITHIN = 1e-3
"""Of the largest weight: parts of a batch are added in another order."""


def steps_of(plan: StudentPlan) -> int:
    """The steps that the program makes."""
    return max(2, plan.size.steps // STEPS_PART)


def measure(plan: StudentPlan, names: Sequence[str], host: StudentHost, runs: Runs) -> dict[str, StudentPart]:
    """The program as it is and, if its micro-batches were written, with them."""
    folder, parts = plan.submission.file.parent, dict[str, StudentPart]()
    for name in names:
        label = runs.words(f"own_name.{name}")
        runs.say("progress.own_part", part=label)
        flags = [f"{microbatch_flag(folder)}={MICROBATCHES}"] if name == "microbatches" else []
        nodes = run_workers(watched, folder, workers_of(folder), steps_of(plan), flags, limit_s=LIMIT_S)
        raise_failures([node for node in nodes[:1] if not node.answer], host.submission, host.words)
        parts[name] = part_of(name, label, nodes, host)
    return parts


def part_of(name: str, label: str, nodes: Sequence[Node], host: StudentHost) -> StudentPart:
    """What the workers saw; a program that stopped has fewer steps, or none."""
    answer = nodes[0].answer
    losses, difference, where = answer.get("losses", []), answer.get("difference"), answer.get("places", {})
    shown = "; ".join(f"{worker}: {', '.join(layers)}" for worker, layers in where.items())
    return StudentPart(
        name,
        label,
        (StudentRun(losses),) if losses else (),
        (StudentRun(answer["right"]),) if losses else (),
        [answer["samples"] * (step + 1) for step in range(len(losses))],
        {
            "steps": answer["steps"],
            "why": because(joined(in_words(why_stopped(nodes), host.words), host.words), host.words),
            "difference": difference,
            "places": shown,
            "workers": len(where),
        },
        {
            "steps": answer["steps"],
            "difference": difference,
            "places": shown or None,
        },
    )


def why_stopped(nodes: Sequence[Node]) -> list[Fault]:
    """Why the program waits, or stopped in a step."""
    waiting = [
        f"worker{rank}: {node.answer['waits']}"
        for rank, node in enumerate(nodes)
        if node.answer and node.answer["waits"]
    ]
    if waiting:
        return [fault("hangs", where="; ".join(waiting))]
    answer = nodes[0].answer
    if not answer["stopped_in"]:
        return []
    return [Fault(key, values) for key, values in answer["faults"][answer["stopped_in"]]]


def findings(measured: StudentMeasured) -> list[Finding]:
    """Whether it trains, is divided, and equals one process."""
    found: list[Finding] = []
    for part in measured.parts.values():
        numbers, asked = part.numbers, steps_of(measured.plan)
        found.append(claims.trains(part.label, numbers["steps"], asked, numbers["why"]))
        if numbers["places"]:
            found.append(claims.split(part.label, numbers["places"], numbers["workers"]))
        if numbers["difference"] is not None:
            why = "".join(verdict.because for verdict in measured.verdicts if verdict.word == "wrong")
            steps = len(part.runs[0].losses)
            found.append(claims.equal(part.label, numbers["difference"], EQUAL_WITHIN, steps, why))
    return found


LAB = student_lab(
    StudentExperiment(
        number="4",
        file="model.py",
        also=("dist_utils.py",),
        parts=PARTS,
        measure=measure,
        findings=findings,
        stops=False,
    )
)
