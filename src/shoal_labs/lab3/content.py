"""What fills the lab's page: values, tables, code; and the tables for other programs that it does not show."""

from collections.abc import Sequence

from shoal.kit.base import Phrase
from shoal.kit.division import order, partition
from shoal.kit.findings import by_rounds, first_lower
from shoal.kit.page import Records
from shoal_labs.lab3 import own_loop, wrong_samplers
from shoal_labs.lab3.batches import BATCH_RATE, DRAWS, SMALLEST, rate_of, seeds_of
from shoal_labs.lab3.claims import ROUNDING
from shoal_labs.lab3.figures import speed_rows
from shoal_labs.lab3.measure import Lab3Measurements, Learnt
from shoal_labs.lab3.own_loop import SELDOM, WRONG
from shoal_labs.lab3.plan import (
    ALIKE,
    BATCH_SIZE,
    DIVISIONS,
    EQUAL_RATE,
    ONE_CORE,
    RATE,
    SLOW,
    SLOWDOWN,
    UNLIKE,
)
from shoal_labs.page.page import source
from shoal_labs.page.table import Cell, PageTable
from shoal_labs.page.template import Content
from shoal_labs.words import counted

SHOWN = {
    "random": partition.random_partition,
    "sampling": order.sample_draws,
    "loop": own_loop.train_epoch,
    "seldom": own_loop.average_weights,
    "range": wrong_samplers.OneWorkersRange.__iter__,
    "rank_seed": wrong_samplers.SeedPerRank.__iter__,
}
"""The code that the report prints."""


def content(measured: Lab3Measurements) -> Content:
    """Everything but figures and findings."""
    plan, size = measured.plan, measured.plan.size
    rounds = [
        {"workers": workers, "value": len(measured.paces[workers][ONE_CORE].rounds_ms)}
        for workers in plan.workers
    ]
    # On a busy machine this happens, and a speed-up of eight on two cores needs an explanation.
    slow = first_lower(by_rounds(measured.one_core.rounds_ms, measured.all_cores.rounds_ms)) == "holds"
    return Content(
        values={
            **measured.num_samples,
            "data": plan.data.name,
            "model": plan.size.model.name,
            "timed_model": plan.timed_model.name,
            "parameters": measured.parameters,
            "batch": BATCH_SIZE,
            "epochs": counted("epoch", size.epochs),
            "seeds": plan.seeds,
            "few": plan.seeds[: size.few_seeds],
            "cores": plan.cores,
            "rounds": tuple(Phrase("each.workers", values) for values in rounds),
            "slow": SLOW,
            "slowdown": SLOWDOWN,
            "bound": ROUNDING,
            "rate": RATE,
            "equal_rate": EQUAL_RATE,
            "steps": size.equal_steps,
            "timed_steps": size.timed_steps,
            "most": plan.most,
            "batch_rate": BATCH_RATE,
            "smallest": SMALLEST,
            "draws": DRAWS,
            "batch_seeds": seeds_of(plan),
        },
        each={
            "on_gpu": [{"gpus": plan.gpus}] * (plan.device == "cuda"),
            "workers": [{"workers": workers} for workers in plan.workers],
            "slow_all_cores": [{}] * slow,
            "refusals": [
                {"sampler": named(way), "said": said or Phrase("wrong.nothing")}
                for way, said in measured.refusals.items()
            ],
        },
        tables={
            "owners": _owners(measured),
            "training": _training(measured),
            "equality": _equality(measured),
            "speed": [_speed(measured, workers) for workers in plan.workers],
            "unlike": _unlike(measured),
            "batches": _batches(measured),
            "wrong": _wrong(measured),
        },
        code={name: source(what) for name, what in SHOWN.items()},
    )


def named(name: str) -> Phrase:
    """A division, or a way of the lab's own loop, in words."""
    return Phrase(f"division.{name}" if name in DIVISIONS else f"way.{name}")


def _owners(measured: Lab3Measurements) -> PageTable:
    """What the workers see of the data set under every division."""
    columns = {"division": "", "fewest samples": ",d", "most samples": ",d", "skew": ".2f"}
    columns |= {"coverage (%)": ".1f", "overlap (%)": ".1f", "coverage at the end (%)": ".1f"}

    def row(name: str) -> list[Cell]:
        seen = measured.divided[name, measured.plan.most].seen[0]
        parts, survey = seen.first.per_worker, seen.first
        percents = (100 * part for part in (survey.coverage, survey.overlap, seen.coverage[-1]))
        return [named(name), min(parts), max(parts), seen.skew, *percents]

    return PageTable(columns, [row(name) for name in DIVISIONS])


def _training(measured: Lab3Measurements) -> PageTable:
    """Loss and accuracy of every division against one machine."""
    numbers = measured.plan.workers
    columns = {"division": "", **{f"loss (nat), {workers} workers": ".3f" for workers in numbers}}
    columns |= {f"accuracy (%), {workers} workers": ".2f" for workers in numbers}
    learnt = {"single": [measured.single for _ in numbers]}
    learnt |= {name: [measured.divided[name, w].learnt for w in numbers] for name in (*ALIKE, *UNLIKE)}
    return PageTable(
        columns,
        [
            [
                named(name),
                *(each.final_loss for each in several),
                *(each.test_accuracy.scaled(100) for each in several),
            ]
            for name, several in learnt.items()
        ],
    )


def _equality(measured: Lab3Measurements) -> PageTable:
    """What is the same as one machine, weight by weight."""
    most = measured.plan.most
    rows: list[Sequence[Cell]] = [
        [Phrase("equality.global", {"workers": workers}), difference]
        for workers, difference in measured.from_single.items()
    ]
    rows += [
        [Phrase("equality.same_order", {"division": named(name), "workers": most}), difference]
        for name, difference in measured.from_same_order.items()
        if name != "global"
    ]
    return PageTable({"compared": "", "relative difference": "sci"}, rows)


def _speed(measured: Lab3Measurements, workers: int) -> PageTable:
    """How fast, how many times as fast, and where the time goes."""
    columns = {"division": "", "samples per second (1/s)": ",.0f", "step (ms)": ".2f"}
    columns |= {"times all cores": ".2f", "times one core": ".2f"}
    columns |= {"own work (%)": ".0f", "waiting (%)": ".0f", "moving (%)": ".0f"}
    return PageTable(
        columns,
        [
            [
                label,
                pace.samples_per_s,
                pace.step_ms,
                pace.against_all_cores,
                pace.against_one_core,
                *(100 * part for part in (pace.own, pace.wait, pace.move)),
            ]
            for label, pace in speed_rows(measured, workers)
            if pace
        ],
        {"workers": workers},
    )


def _unlike(measured: Lab3Measurements) -> PageTable:
    """Different data for different workers: synchronised in every step, and once an epoch."""
    most = measured.plan.most
    learnt = [("step", name, measured.divided[name, most].learnt) for name in ("random", "label")]
    learnt += [("epoch", way.removeprefix("seldom-"), measured.own[way, most].learnt) for way in SELDOM]
    return PageTable(
        {"synchronised": "", "division": "", "accuracy (%)": ".2f"},
        [
            [Phrase(f"unlike.{how}"), named(name), each.test_accuracy.scaled(100)]
            for how, name, each in learnt
        ],
    )


def _batches(measured: Lab3Measurements) -> PageTable:
    """Variance and accuracy of every batch size."""
    columns = {"batch": "d", "variance (1)": ".2f", "accuracy at the fixed rate (%)": ".2f"}
    columns |= {"scaled rate": "g", "accuracy at the scaled rate (%)": ".2f"}

    def row(size: int) -> list[Cell]:
        batch = measured.batches[size]
        fixed, scaled = (batch.accuracy(rate).scaled(100) for rate in ("fixed", "scaled"))
        return [size, batch.variance, fixed, rate_of(size), scaled]

    return PageTable(columns, [row(size) for size in measured.batches])


def _wrong(measured: Lab3Measurements) -> PageTable:
    """The two common errors: what they see, and what they do."""
    columns = {"sampler": "", "workers": "d", "coverage (%)": ".1f", "formula (%)": ".1f"}
    columns |= {"coverage at the end (%)": ".1f", "loss (nat)": ".3f", "accuracy (%)": ".2f"}
    return PageTable(
        columns,
        [
            [
                named(way),
                workers,
                own.first_coverage.scaled(100),
                100 * own.predicted,
                100 * float(own.coverage[:, -1].mean()),
                own.learnt.final_loss,
                own.learnt.test_accuracy.scaled(100),
            ]
            for (way, workers), own in measured.own.items()
            if way in ("right", *WRONG)
        ],
    )


def tables(measured: Lab3Measurements) -> dict[str, Records]:
    """What no table of the page shows: every run's end, the curves, and what was seen with every seed."""
    return {"results": _results(measured), "curves": _curves(measured), "coverage": _coverage(measured)}


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


def _coverage(measured: Lab3Measurements) -> Records:
    seeds_of = measured.plan.seeds_of
    seen = [
        (name, workers, seed, each.first.coverage, each.first.overlap, each.coverage[-1], each.skew)
        for (name, workers), divided in measured.divided.items()
        for seed, each in zip(seeds_of(name, workers), divided.seen, strict=True)
    ]
    seen += [
        (f"own-{way}", workers, seed, own.coverage[row, 0], own.overlap.value, own.coverage[row, -1], "")
        for (way, workers), own in measured.own.items()
        for row, seed in enumerate(seeds_of(way, workers))
    ]
    columns = (
        "division",
        "workers",
        "seed",
        "coverage of the first epoch (1)",
        "overlap (1)",
        "coverage at the end (1)",
    )
    return [dict(zip((*columns, "skew (1)"), row, strict=True)) for row in seen]
