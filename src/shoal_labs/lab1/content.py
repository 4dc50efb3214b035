"""What fills the lab's page: values, tables, code; and the tables for other programs."""

from shoal.kit.base import Phrase
from shoal.kit.findings import accuracy_over, over_seeds
from shoal.kit.page import Records
from shoal_labs.handout.regions import keep
from shoal_labs.lab1.experiment import sweep_notes
from shoal_labs.lab1.measure import WINDOW, Lab1Measurements
from shoal_labs.lab1.plan import BATCH_SIZE, NAMES, Name
from shoal_labs.lab1.solution import MyOptimizer
from shoal_labs.page.page import source
from shoal_labs.page.table import PageTable
from shoal_labs.page.template import Content

RULES = (MyOptimizer.BaseOptimizer, MyOptimizer.SgdOptimizer, MyOptimizer.AdamOptimizer)


def content(measured: Lab1Measurements) -> Content:
    """Everything but figures and findings."""
    plan = measured.plan
    return Content(
        values={
            **measured.samples,
            "data": plan.data.name,
            "parameters": measured.parameters,
            "held_out": 100 * plan.data.validation,
            "seeds": plan.seeds,
            "window": WINDOW,
        },
        each={
            "lenet": [{}] * (plan.model.name == "lenet"),
            "mlp": [{}] * (plan.model.name == "mlp"),
            "search_notes": [{"note": note} for name in NAMES for note in sweep_notes(measured.sweeps[name])],
        },
        tables={
            "hyper": hyper_parameters(measured),
            "sweep": [candidates(measured, name) for name in NAMES],
            "results": results(measured),
        },
        code={kind.__name__: keep(source(kind)) for kind in RULES},
    )


def hyper_parameters(measured: Lab1Measurements) -> PageTable:
    """What each optimizer was run with."""
    columns = {
        "optimizer": "",
        "learning rate": "g",
        "batch": "d",
        "passes": "d",
        "passes of the search": "d",
        "other": "",
    }
    return PageTable(
        columns,
        [
            [
                Phrase(f"name.{name}"),
                measured.sweeps[name].best.rate,
                Phrase("hyper.whole_set") if name == "gd" else BATCH_SIZE,
                measured.plan.passes(name),
                measured.plan.sweep_passes(name),
                Phrase(f"hyper.{name}"),
            ]
            for name in NAMES
        ],
    )


def candidates(measured: Lab1Measurements, name: Name) -> PageTable:
    """The candidates of one optimizer's search; the chosen one is strong."""
    result = measured.sweeps[name]
    rows = [
        [trial.rate, Phrase("sweep.diverged") if trial.diverged else trial.validation_loss]
        for trial in result.trials
    ]
    chosen = frozenset(place for place, trial in enumerate(result.trials) if trial == result.best)
    return PageTable(
        {"learning rate": "g", "validation loss (nat)": ".4f"},
        rows,
        {"optimizer": Phrase(f"name.{name}")},
        chosen,
    )


def results(measured: Lab1Measurements) -> PageTable:
    """The end of training, a row for each optimizer."""
    columns = {
        "optimizer": "",
        "test accuracy (%)": ".2f",
        "loss (nat)": ".4f",
        "steps": ",d",
        "samples": ",d",
        "seconds (s)": ".2f",
        "samples per second (1/s)": ",.0f",
    }
    return PageTable(
        columns,
        [
            [
                Phrase(f"name.{name}"),
                accuracy_over(series.results("test_accuracy"), measured.samples["test"]).scaled(100),
                over_seeds(series.last_losses()),
                int(series.runs[0].result["steps"]),
                series.samples(),
                over_seeds(series.results("seconds")),
                over_seeds(series.results("samples_per_s")),
            ]
            for name, series in measured.series.items()
        ],
    )


def tables(measured: Lab1Measurements) -> dict[str, Records]:
    """The tables by name."""
    return {
        "runs": [
            {
                "optimizer": name,
                "seed": run.config.seed,
                "learning rate": measured.sweeps[name].best.rate,
                "test accuracy (1)": run.result["test_accuracy"],
                "test loss (nat)": run.result["test_loss"],
                "steps": run.result["steps"],
                "samples": run.samples,
                "seconds (s)": run.result["seconds"],
                "samples per second (1/s)": run.result["samples_per_s"],
            }
            for name, series in measured.series.items()
            for run in series.runs
        ],
        "curves": [
            {
                "optimizer": name,
                "seed": run.config.seed,
                "steps before": f"{steps:.6g}",
                "samples before": f"{samples:.6g}",
                "seconds before (s)": f"{seconds:.6g}",
                "loss (nat)": f"{loss:.6g}",
            }
            for name, series in measured.series.items()
            for run in series.runs
            for steps, samples, seconds, loss in zip(
                run.curve.steps, run.curve.samples, run.curve.seconds, run.curve.loss, strict=True
            )
        ],
    }
