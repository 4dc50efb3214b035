"""Tables for other programs that the page does not show: every run's end, and its curve."""

from shoal.report.plain_tables import Records
from shoal_labs.lab1.measure import Lab1Measurements


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
