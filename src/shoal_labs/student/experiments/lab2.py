"""Lab 2 with the student's averages: nodes that agree by each of them, against one machine with the whole batches."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from shoal.kit.findings import Finding, by_rounds, by_seeds, inside_run
from shoal_labs.check.nodes import Node
from shoal_labs.lab2.check.averages import AVERAGES
from shoal_labs.runs import Runs
from shoal_labs.student import claims
from shoal_labs.student.host import StudentHost
from shoal_labs.student.loop import BATCH, accuracy, batches, digits, network, train
from shoal_labs.student.nodes.lab2 import DELAY_S, NODES, UNEVEN, function_of, timed, trained
from shoal_labs.student.part import StudentMeasured, StudentPart, StudentPlan, StudentRun
from shoal_labs.student.spec import StudentExperiment, student_lab
from shoal_labs.student.submission import why_wrong
from shoal_labs.timing.contest import until_settled

EQUAL_WITHIN = 1e-4
"""Of the largest weight: after a few steps in float32 a right average differs by less."""
EVEN, SLOW = "even", "slow"
PARTS = {name: (function_of(name),) for name in ("allreduce", "allgather", "reduce")}


def one_machine(seed: int, samples: int, steps: int) -> StudentRun:
    """The same training in one process."""
    dataset = digits(samples)
    model = network(dataset, seed)
    losses = train(dataset, model, batches(dataset, seed, steps))
    return StudentRun(losses, accuracy(model, dataset))


def measure(plan: StudentPlan, names: Sequence[str], host: StudentHost, runs: Runs) -> dict[str, StudentPart]:
    """Every average that was written."""
    size, parts = plan.size, dict[str, StudentPart]()
    runs.say("progress.own_right")
    right = tuple(one_machine(seed, size.samples, size.steps) for seed in plan.seeds)
    runs.say("progress.own_times")
    given = (list(names), size.samples, size.rounds)
    times = average_times(names, lambda: host.nodes(timed, NODES, *given)[0])
    for name in names:
        label = runs.words(f"own_name.{name}")
        runs.say("progress.own_part", part=label)
        given = (name, list(plan.seeds), size.samples, size.steps, size.equal_steps)
        nodes = host.nodes(trained, NODES, *given)
        answers = [list(each) for each in zip(*(node.answer for node in nodes), strict=True)]
        made = (size.steps + 2 * size.equal_steps) * len(plan.seeds)
        part = _part(name, label, answers, right, calls_in(nodes, made))
        parts[name] = with_times(part, times[name, EVEN], times[name, SLOW])
    return parts


def average_times(names: Sequence[str], measure: Callable[[], Node]) -> dict[tuple[str, str], list[float]]:
    """Milliseconds of each average without and with a slow node, round by round, until they can be told apart."""
    bases = {(name, SLOW): (name, EVEN) for name in names}
    bases |= {(second, EVEN): (first, EVEN) for first, second in pairwise(names)}

    def rounds() -> dict[tuple[str, str], list[float]]:
        answer = measure().answer
        return {
            (name, kind): [pair[place] for pair in answer[name]]
            for name in names
            for place, kind in enumerate((EVEN, SLOW))
        }

    return until_settled(rounds, bases)


def calls_in(nodes: Sequence[Node], averages: int) -> dict[str, float]:
    """How often one of `averages` averages calls each collective, on the node that calls it most."""
    names = sorted({call.partition("(")[0] for node in nodes for call in node.calls})
    counts = [Counter(call.partition("(")[0] for call in node.calls) for node in nodes]
    return {name: max(each[name] for each in counts) / averages for name in names}


def _part(
    name: str,
    label: str,
    answers: Sequence[Sequence[Mapping[str, Any]]],
    right: tuple[StudentRun, ...],
    calls: Mapping[str, float],
) -> StudentPart:
    """A part from what its nodes answered, seed by seed."""
    own = tuple(
        StudentRun(
            [sum(each) / NODES for each in zip(*(node["losses"] for node in nodes), strict=True)],
            nodes[0]["accuracy"],
        )
        for nodes in answers
    )
    worst = {
        key: max(node[key] for nodes in answers for node in nodes)
        for key in ("difference", "uneven", "between")
    }
    return StudentPart(
        name,
        label,
        own,
        right,
        [BATCH * (step + 1) for step in range(len(own[0].losses))],
        {**worst, "calls": calls},
        {
            "difference": worst["difference"],
            "called": ", ".join(f"{count:g} × {call}" for call, count in calls.items()) or "–",
        },
    )


def with_times(part: StudentPart, even_ms: Sequence[float], slow_ms: Sequence[float]) -> StudentPart:
    """The same part with the times of its average."""
    numbers = {**part.numbers, "even_ms": even_ms, "slow_ms": slow_ms}
    return replace(part, numbers=numbers, cells={**part.cells, "time": inside_run(even_ms)})


def findings(measured: StudentMeasured) -> list[Finding]:
    """About each average, then about their times."""
    steps, parts = measured.plan.size.equal_steps, measured.parts
    own: list[Finding] = []
    uneven: list[Finding] = []
    cost: list[Finding] = []
    for name, part in parts.items():
        label, numbers = part.label, part.numbers
        named, instead = AVERAGES[function_of(name)]
        accuracies = [part.accuracies(of) for of in (part.right, part.runs)]
        between = numbers["between"]
        own += [
            claims.equal(
                label, numbers["difference"], EQUAL_WITHIN, steps, why_wrong(PARTS[name], measured.verdicts)
            ),
            # Weights that are not numbers cannot be compared.
            *([claims.same_on_all(label, between, EQUAL_WITHIN)] if math.isfinite(between) else []),
            claims.calls(label, named, list(numbers["calls"]), instead),
            claims.as_accurate(label, by_seeds(*accuracies)),
        ]
        # An average that is wrong with even shares needs no finding about uneven ones.
        if numbers["difference"] <= EQUAL_WITHIN:
            uneven.append(claims.uneven(label, numbers["uneven"], EQUAL_WITHIN, UNEVEN))
        slow = by_rounds(numbers["slow_ms"], numbers["even_ms"])
        cost.append(claims.slow_node(label, slow, 1e3 * DELAY_S))
    for first, second in pairwise(parts.values()):
        times = by_rounds(first.numbers["even_ms"], second.numbers["even_ms"])
        calls = [sum(part.numbers["calls"].values()) for part in (first, second)]
        cost.append(claims.faster(first.label, second.label, times, calls))
    return [*own, *uneven, *cost]


LAB = student_lab(
    StudentExperiment(number="2", file="dist_utils.py", parts=PARTS, measure=measure, findings=findings)
)
