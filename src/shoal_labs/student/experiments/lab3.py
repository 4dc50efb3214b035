"""Lab 3 with the student's samplers, in the lab's own loop: workers that divide the digits, against a right sampler.

The loop, the averaging of gradients and the data are Shoal's, so only the division of the data is the student's.
"""

from collections.abc import Sequence

from shoal.kit.division import RandomSampler, expected_coverage_of_sampling, load
from shoal.kit.findings import Finding, by_seeds
from shoal.kit.settings import to_plain
from shoal_labs.lab3.lab import LAB as LAB3
from shoal_labs.lab3.own_loop import WAYS, OwnResult, Way, train_way
from shoal_labs.lab3.plan import Lab3Plan
from shoal_labs.runs import Runs
from shoal_labs.settings import Lab3Settings
from shoal_labs.student import claims
from shoal_labs.student.host import StudentHost
from shoal_labs.student.nodes.lab3 import SAMPLERS, divided, train_student
from shoal_labs.student.part import StudentMeasured, StudentPart, StudentPlan, StudentRun
from shoal_labs.student.spec import StudentExperiment, student_lab
from shoal_labs.student.submission import Submission, why_wrong

PARTS: dict[str, tuple[str, ...]] = {
    "partition": ("set_epoch", "length", "random_partition"),
    "sampling": ("random_sampling",),
}
RIGHT = {
    "partition": WAYS["right"],
    "sampling": Way(lambda data, _, size, rank, seed: RandomSampler(data, size, rank, seed)),
}
"""What each of the student's samplers is compared with."""


def lab_plan(settings: Lab3Settings, submission: Submission) -> Lab3Plan:
    """The numbers of workers, the data and the settings of a run are the lab's."""
    return LAB3.plan(settings)


def measure(plan: StudentPlan, names: Sequence[str], host: StudentHost, runs: Runs) -> dict[str, StudentPart]:
    """Every sampler that was written, with every number of workers."""
    lab: Lab3Plan = plan.lab
    num_samples, parts = len(load(lab.data).train), dict[str, StudentPart]()
    for workers in lab.workers:
        runs.say("progress.own_right")
        configs = [lab.own(workers, seed) for seed in plan.seeds]
        rights = {name: [train_way(RIGHT[name], config) for config in configs] for name in names}
        for name in names:
            right = rights[name]
            label = f"{SAMPLERS[name]} (W = {workers})"
            runs.say("progress.own_part", part=label)
            seen = host.call(divided, name, num_samples, workers, plan.first_seed)
            results = host.call(train_student, name, [to_plain(config) for config in configs])
            own = [OwnResult(**result) for result in results]
            parts[label] = StudentPart(
                f"{name}-{workers}",
                label,
                tuple(StudentRun(each.loss, each.test_accuracy) for each in own),
                tuple(StudentRun(each.loss, each.test_accuracy) for each in right),
                list(range(1, len(right[0].loss) + 1)),
                {**seen, "sampler": name, "workers": workers, "num_samples": num_samples},
                {
                    "coverage": 100 * seen["coverage"],
                    "times": seen["times"],
                    "lengths": tuple(seen["lengths"]),
                },
            )
    return parts


def findings(measured: StudentMeasured) -> list[Finding]:
    """What each sampler divides, then what that does to training."""
    seen: list[Finding] = []
    learnt: list[Finding] = []
    for part in measured.parts.values():
        numbers = part.numbers
        name, workers, coverage = numbers["sampler"], numbers["workers"], numbers["coverage"]
        label, why = SAMPLERS[name], why_wrong(PARTS[name], measured.verdicts)
        if name == "partition":
            seen.append(claims.covers(label, workers, coverage, numbers["times"], why))
        else:
            count = numbers["num_samples"]
            predicted = expected_coverage_of_sampling(count, sum(numbers["lengths"]))
            seen.append(claims.draws(label, workers, coverage, predicted, why))
        seen.append(claims.new_order(label, workers, numbers["changes"]))
        accuracies = [part.accuracies(of) for of in (part.right, part.runs)]
        learnt.append(claims.as_accurate(part.label, by_seeds(*accuracies)))
    return [*seen, *learnt]


LAB = student_lab(
    StudentExperiment(
        number="3",
        file="sampler.py",
        parts=PARTS,
        measure=measure,
        findings=findings,
        takes=frozenset({"workers"}),
        lab_plan=lab_plan,
    )
)
