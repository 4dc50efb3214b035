"""Every number of the report, as tables for other programs."""

from shoal.report.plain_tables import Records
from shoal_labs.lab3.measure import Lab3Measurements, Learnt
from shoal_labs.lab3.plan import SLOW_RANDOM


def tables(measured: Lab3Measurements) -> dict[str, Records]:
    """The tables by name."""
    return {
        "results": _results(measured),
        "curves": _curves(measured),
        "speed": _speed(measured),
        "coverage": _coverage(measured),
        "differences": _differences(measured),
    }


def _ways(measured: Lab3Measurements) -> list[tuple[str, int, Learnt]]:
    """Every way of training: name, number of workers, what was learnt."""
    ways: list[tuple[str, int, Learnt]] = [("single", 1, measured.single)]
    ways += [(name, workers, each.learnt) for (name, workers), each in measured.divided.items()]
    return ways + [(f"own-{way}", workers, each.learnt) for (way, workers), each in measured.own.items()]


def _results(measured: Lab3Measurements) -> Records:
    return [
        {
            "division": name,
            "workers": workers,
            "test accuracy (1)": learnt.test_accuracy.value,
            "spread (1)": learnt.test_accuracy.spread,
            "final loss (nat)": learnt.final_loss.value,
            "spread (nat)": learnt.final_loss.spread,
        }
        for name, workers, learnt in _ways(measured)
    ]


def _curves(measured: Lab3Measurements) -> Records:
    plan = measured.plan
    return [
        {
            "division": name,
            "workers": workers,
            "seed": seed,
            "epoch": epoch,
            "training loss (nat)": f"{loss:.6g}",
            "validation accuracy (1)": f"{accuracy:.6g}",
        }
        for name, workers, learnt in _ways(measured)
        for row, seed in enumerate(
            plan.seeds if name == "single" else plan.seeds_of(name.removeprefix("own-"), workers)
        )
        for epoch, (loss, accuracy) in enumerate(zip(learnt.loss[row], learnt.accuracy[row], strict=True), 1)
    ]


def _speed(measured: Lab3Measurements) -> Records:
    paces = [
        ("single, all cores", 1, measured.all_cores),
        ("single, one core", 1, measured.one_core),
        *((name, workers, each.pace) for (name, workers), each in measured.divided.items()),
        *(
            ("random, one worker slow", workers, paces[SLOW_RANDOM])
            for workers, paces in measured.paces.items()
        ),
    ]
    return [
        {
            "division": name,
            "workers": workers,
            "samples per second (1/s)": pace.samples_per_s,
            "step (ms)": pace.step_ms.value,
            "spread (ms)": pace.step_ms.spread,
            "times all cores": pace.against_all_cores,
            "times one core": pace.against_one_core,
            "own work (1)": pace.own,
            "waiting (1)": pace.wait,
            "moving (1)": pace.move,
        }
        for name, workers, pace in paces
        if pace
    ]


def _coverage(measured: Lab3Measurements) -> Records:
    seeds_of = measured.plan.seeds_of
    counted = [
        (name, workers, seed, seen.first.coverage, seen.first.overlap, seen.coverage[-1], seen.skew)
        for (name, workers), each in measured.divided.items()
        for seed, seen in zip(seeds_of(name, workers), each.seen, strict=True)
    ]
    counted += [
        (f"own-{way}", workers, seed, own.coverage[row, 0], own.overlap.value, own.coverage[row, -1], "")
        for (way, workers), own in measured.own.items()
        for row, seed in enumerate(seeds_of(way, workers))
    ]
    return [
        {
            "division": name,
            "workers": workers,
            "seed": seed,
            "coverage of the first epoch (1)": first,
            "overlap (1)": overlap,
            "coverage at the end (1)": end,
            "skew (1)": skew,
        }
        for name, workers, seed, first, overlap, end, skew in counted
    ]


def _differences(measured: Lab3Measurements) -> Records:
    differences = {f"global, {workers} workers": value for workers, value in measured.from_single.items()}
    differences |= {f"{name}, same samples": value for name, value in measured.from_same_order.items()}
    return [{"compared": compared, "relative difference": value} for compared, value in differences.items()]
