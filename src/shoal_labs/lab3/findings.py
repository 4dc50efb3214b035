"""The lab's findings, from its measurements."""

from shoal.data.division.coverage import expected_coverage_of_sampling
from shoal.report.findings import Finding
from shoal.report.paired import by_rounds, by_seeds
from shoal_labs.lab3 import claims
from shoal_labs.lab3.measure import Lab3Measurements
from shoal_labs.lab3.own_loop import WRONG
from shoal_labs.lab3.plan import ALL_CORES, BATCH_SIZE, DECIDING, ONE_CORE, PARTITIONS, SLOW_RANDOM
from shoal_labs.page.analysis import Findings


def find(measured: Lab3Measurements) -> Findings:
    """Every finding, by section of the analysis."""
    plan, own = measured.plan, measured.own
    most, fitting, steps = plan.most, plan.fitting, plan.size.equal_steps
    learnt = {name: measured.divided[name, most].learnt.test_accuracies for name in DECIDING}
    seldom = [own[f"seldom-{way}", most].learnt.test_accuracies for way in ("random", "label")]
    paces = measured.paces[fitting]
    parts = by_rounds(paces["dirichlet-0.1"].rounds_ms, paces["random"].rounds_ms).scaled(BATCH_SIZE)
    largest = measured.divided["dirichlet-0.1", fitting].seen[0].largest_part
    return {
        "one_machine": [
            claims.global_equals_one(measured.from_single, steps),
            claims.order_decides(measured.from_same_order, most, steps),
        ],
        "coverage": _coverage(measured),
        "alike": [
            claims.random_no_worse(by_seeds(measured.single.test_accuracies, learnt["random"]), most),
            claims.sampling_no_worse(by_seeds(learnt["random"], learnt["sampling"]), most),
        ],
        "unlike": [
            claims.label_no_worse(by_seeds(learnt["random"], learnt["label"]), most),
            claims.dirichlet_no_worse(by_seeds(learnt["random"], learnt["dirichlet-0.1"]), most),
            claims.seldom_label_costs(by_seeds(*seldom), most),
            claims.uneven_parts_slow(parts, largest, fitting),
        ],
        "wrong": _wrong(measured),
        "speed": _speed(measured),
    }


def _coverage(measured: Lab3Measurements) -> list[Finding]:
    plan, own = measured.plan, measured.own
    num_samples = measured.num_samples["train"]
    divided = {name: [measured.divided[name, w] for w in plan.workers] for name in (*PARTITIONS, "sampling")}
    coverages = {way: {w: own[way, w].first_coverage for w in plan.workers} for way in WRONG}
    predicted = {way: {w: own[way, w].predicted for w in plan.workers} for way in WRONG}
    once = {name: all(seen.once for each in divided[name] for seen in each.seen) for name in PARTITIONS}
    return [
        claims.partitions_cover_once(once),
        claims.sampling_covers(
            measured.divided["sampling", plan.most].coverage,
            expected_coverage_of_sampling(num_samples, num_samples),
        ),
        claims.range_covers(coverages["range"], predicted["range"]),
        claims.rank_seed_covers(coverages["rank-seed"], predicted["rank-seed"]),
    ]


def _wrong(measured: Lab3Measurements) -> list[Finding]:
    most = measured.plan.most
    right, ranged, rank_seed = (measured.own[way, most].learnt for way in ("right", "range", "rank-seed"))
    return [
        claims.range_costs(by_seeds(right.test_accuracies, ranged.test_accuracies), most),
        claims.rank_seed_costs(by_seeds(right.test_accuracies, rank_seed.test_accuracies), most),
        claims.loss_hides_it(by_seeds(right.final_losses, ranged.final_losses), most),
        claims.wrong_is_refused(measured.refusals),
    ]


def _speed(measured: Lab3Measurements) -> list[Finding]:
    plan, fitting = measured.plan, measured.plan.fitting
    paces = measured.paces[fitting]
    one, several = paces[ONE_CORE], paces["global"]
    ideal = min(fitting, plan.gpus or plan.cores)
    best = [each / ideal for each in one.rounds_ms]
    against_one = by_rounds(one.rounds_ms, several.rounds_ms)
    against_all = by_rounds(paces[ALL_CORES].rounds_ms, several.rounds_ms)
    if plan.gpus:
        faster = [claims.faster_than_one_process(against_one, fitting, plan.gpus)]
    else:
        faster = [
            claims.faster_than_one_core(against_one, fitting),
            claims.faster_than_all_cores(against_all, fitting),
        ]
    findings = [
        *faster,
        claims.communication_limits(
            one.step_ms,
            by_rounds(several.rounds_ms, best).scaled(BATCH_SIZE),
            several.communication * several.step_ms.value,
            ideal,
        ),
        claims.speed_parts_help(by_rounds(paces[SLOW_RANDOM].rounds_ms, paces["speed"].rounds_ms), fitting),
    ]
    if not plan.gpus and fitting <= plan.cores < plan.most:
        crowded = measured.paces[plan.most]["global"]
        many, few = (_against_one(measured, workers) for workers in (plan.most, fitting))
        count = min(len(many), len(few))
        ratios = by_rounds(many[:count], few[:count])
        counts = (fitting, plan.most, plan.cores)
        findings.append(claims.crowded_is_slower(ratios, several.step_ms, crowded.step_ms, counts))
    return findings


def _against_one(measured: Lab3Measurements, workers: int) -> list[float]:
    """The time of several workers as a multiple of one process's, round by round."""
    paces = measured.paces[workers]
    rounds = zip(paces["global"].rounds_ms, paces[ONE_CORE].rounds_ms, strict=True)
    return [several / one for several, one in rounds]
