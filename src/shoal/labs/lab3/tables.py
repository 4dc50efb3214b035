"""Every number of the report, as tables for other programs."""

from shoal.labs.folder import Rows
from shoal.labs.lab3.measure import Learnt, Measurements


def tables(measured: Measurements) -> dict[str, Rows]:
    """The tables by name."""
    return {
        "results": _results(measured),
        "curves": _curves(measured),
        "speed": _speed(measured),
        "coverage": _coverage(measured),
        "differences": _differences(measured),
    }


def _ways(measured: Measurements) -> list[tuple[str, int, Learnt]]:
    """Everything that was trained to learn something: name, number of workers, what came of it."""
    ways: list[tuple[str, int, Learnt]] = [("single", 1, measured.single)]
    ways += [(name, workers, each.learnt) for (name, workers), each in measured.divided.items()]
    return ways + [(f"own-{way}", workers, each.learnt) for (way, workers), each in measured.own.items()]


def _results(measured: Measurements) -> Rows:
    return Rows(
        ["division", "workers", "test accuracy (1)", "spread (1)", "final loss (nat)", "spread (nat)"],
        [
            [
                name,
                workers,
                learnt.test_accuracy.value,
                learnt.test_accuracy.spread,
                learnt.final_loss.value,
                learnt.final_loss.spread,
            ]
            for name, workers, learnt in _ways(measured)
        ],
    )


def _curves(measured: Measurements) -> Rows:
    plan = measured.plan
    return Rows(
        ["division", "workers", "seed", "epoch", "training loss (nat)", "validation accuracy (1)"],
        [
            [name, workers, seed, epoch + 1, f"{loss:.6g}", f"{accuracy:.6g}"]
            for name, workers, learnt in _ways(measured)
            for row, seed in enumerate(plan.seeds if name == "single" else plan.seeds_of(workers))
            for epoch, (loss, accuracy) in enumerate(zip(learnt.loss[row], learnt.accuracy[row], strict=True))
        ],
    )


def _speed(measured: Measurements) -> Rows:
    paces = [
        ("single, all cores", 1, measured.all_cores),
        ("single, one core", 1, measured.one_core),
        *((name, workers, each.pace) for (name, workers), each in measured.divided.items()),
        *(("random, one worker slow", workers, pace) for workers, pace in measured.slow_random.items()),
    ]
    return Rows(
        [
            *("division", "workers", "samples per second (1/s)", "step (ms)", "spread (ms)"),
            *("times all cores", "times one core", "own work (1)", "waiting (1)", "moving (1)"),
        ],
        [
            [
                *(name, workers, pace.samples_per_s, pace.step_ms.value, pace.step_ms.spread),
                *(pace.against_all_cores, pace.against_one_core, pace.own, pace.wait, pace.move),
            ]
            for name, workers, pace in paces
            if pace
        ],
    )


def _coverage(measured: Measurements) -> Rows:
    seeds_of = measured.plan.seeds_of
    rows = [
        [name, workers, seed, *(seen.first.coverage, seen.first.overlap, seen.coverage[-1], seen.skew)]
        for (name, workers), each in measured.divided.items()
        for seed, seen in zip(seeds_of(workers), each.seen, strict=True)
    ]
    rows += [
        [f"own-{way}", workers, seed, own.coverage[row, 0], own.overlap.value, own.coverage[row, -1], ""]
        for (way, workers), own in measured.own.items()
        for row, seed in enumerate(seeds_of(workers))
    ]
    first = ("coverage of the first epoch (1)", "overlap (1)", "coverage at the end (1)", "skew (1)")
    return Rows(["division", "workers", "seed", *first], rows)


def _differences(measured: Measurements) -> Rows:
    return Rows(
        ["compared", "relative difference"],
        [
            *([f"global, {workers} workers", value] for workers, value in measured.from_single.items()),
            *([f"{name}, same samples", value] for name, value in measured.from_same_order.items()),
        ],
    )
