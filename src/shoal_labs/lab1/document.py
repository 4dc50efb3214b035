"""The sections of the report that are particular to the lab."""

from shoal.report.document import Block, Bullets, Code, Formula, Heading, Paragraph, Table
from shoal.report.findings import accuracy_over, over_seeds
from shoal_labs.handout.regions import keep
from shoal_labs.lab1.experiment import sweep_notes
from shoal_labs.lab1.measure import WINDOW, Lab1Measurements, Series
from shoal_labs.lab1.plan import BATCH_SIZE, NAMES
from shoal_labs.lab1.solution import MyOptimizer
from shoal_labs.lab1.sweep import Sweep
from shoal_labs.page.page import Page, source


def principle(page: Page) -> list[Block]:
    """What the three rules are and why they differ."""
    blocks: list[Block] = [Paragraph(page("principle.problem"))]
    for name in NAMES:
        blocks += [*page.parts("principle", [name]), Formula(page(f"principle.{name}_formula"))]
    return [*blocks, Paragraph(page("principle.adam_after"))]


def code(page: Page) -> list[Block]:
    """The three rules as classes: our solution of the hand-out, from the source itself."""
    kinds = (MyOptimizer.BaseOptimizer, MyOptimizer.SgdOptimizer, MyOptimizer.AdamOptimizer)
    return [
        *(Code(keep(source(kind)), page(f"code.{kind.__name__}")) for kind in kinds),
        Paragraph(page("code.gd")),
    ]


def set_up(measured: Lab1Measurements, page: Page) -> list[Block]:
    """Data, model, hyper-parameters."""
    plan = measured.plan
    return [
        Bullets(
            [
                page("setup.data", data=plan.data.name, **measured.samples),
                page(f"setup.{plan.model.name}", parameters=measured.parameters),
                page("setup.loss"),
                page("setup.choice", held_out=100 * plan.data.validation),
                page("setup.seeds", seeds=plan.seeds),
                page("setup.time"),
            ]
        ),
        hyper_parameters(measured, page),
    ]


def hyper_parameters(measured: Lab1Measurements, page: Page) -> Table:
    """What each optimizer was run with."""
    rows = [
        [
            page(f"name.{name}"),
            f"{measured.sweeps[name].best.rate:g}",
            page("hyper.whole_set") if name == "gd" else str(BATCH_SIZE),
            str(measured.plan.passes(name)),
            str(measured.plan.sweep_passes(name)),
            page(f"hyper.{name}"),
        ]
        for name in NAMES
    ]
    header = page.header("hyper", "optimizer", "rate", "batch", "passes", "sweep_passes", "other")
    return page.table("hyper", header, rows, right=frozenset({1, 2, 3, 4}))


def result_table(measured: Lab1Measurements, page: Page) -> Table:
    """The end of training, a row for each optimizer."""
    columns = ("optimizer", "accuracy", "loss", "steps", "samples", "seconds", "rate")
    rows = [_result_row(measured.series[name], measured.samples["test"], page) for name in NAMES]
    return page.table("results", page.header("results", *columns), rows, window=WINDOW)


def _result_row(series: Series, test_samples: int, page: Page) -> list[str]:
    return [
        page(f"name.{series.name}"),
        f"{accuracy_over(series.results('test_accuracy'), test_samples).scaled(100):.2f}",
        f"{over_seeds(series.last_losses()):.4f}",
        f"{series.runs[0].result['steps']:,}",
        f"{series.samples():,}",
        f"{over_seeds(series.results('seconds')):.2f}",
        f"{over_seeds(series.results('samples_per_s')):,.0f}",
    ]


def results(measured: Lab1Measurements, page: Page) -> list[Block]:
    """The search of the learning rate, the curves, the table."""
    notes = [note for name in NAMES for note in sweep_notes(measured.sweeps[name], page)]
    return [
        *page.section("sweep"),
        *(sweep_table(measured.sweeps[name], page) for name in NAMES),
        *([Bullets(notes)] if notes else []),
        page.figure("sweep"),
        Heading(page("results.curves"), 3),
        Paragraph(page("results.intro", window=WINDOW)),
        page.figure("loss", "results", window=WINDOW),
        Heading(page("results.numbers"), 3),
        result_table(measured, page),
    ]


def sweep_table(result: Sweep, page: Page) -> Table:
    """The candidates of one optimizer; the chosen one is strong."""

    def cells(texts: list[str]) -> list[str]:
        chosen = [trial == result.best for trial in result.trials]
        return [f"**{text}**" if best else text for text, best in zip(texts, chosen, strict=True)]

    rates = [f"{trial.rate:g}" for trial in result.trials]
    losses = [
        page("sweep.diverged") if trial.diverged else f"{trial.validation_loss:.4f}"
        for trial in result.trials
    ]
    header, row = [page("sweep.rate_row"), *cells(rates)], [page("sweep.loss_row"), *cells(losses)]
    return page.table("sweep", header, [row], optimizer=page(f"name.{result.optimizer}"))
