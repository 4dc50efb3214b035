"""The lab's findings: each a function of numbers alone, so that a test can feed it either outcome."""

from statistics import fmean

from shoal.report.findings import Finding, Measured, Verdict, over_seeds
from shoal.report.paired import Paired, by_rounds, by_seeds, first_higher, first_lower
from shoal_labs.lab1.measure import Lab1Measurements
from shoal_labs.lab1.sweep import Sweep
from shoal_labs.numbers import scientific, whether
from shoal_labs.page.analysis import Findings

ROUNDING = 1e-4
"""A relative difference of gradients below this is rounding in float32, not randomness."""


def deterministic(order: float, batch: Measured) -> Finding:
    """The gradient of the whole set does not depend on the order of the samples, a batch's does depend on the batch."""
    verdict = whether(order <= ROUNDING < batch.value)
    return Finding("deterministic", {"order": scientific(order), "batch": batch}, verdict)


def smooth(rises: Paired) -> Finding:
    """GD's loss rises less often from one step to the next than SGD's."""
    numbers = {"gd": rises.first.scaled(100), "sgd": rises.second.scaled(100)}
    return Finding("smooth", numbers, first_lower(rises), rises.pairs)


def noise_grows(noise: Paired) -> Finding:
    """A batch's gradient is noisier, relative to the whole gradient, at the end (first) than at the start."""
    numbers = {"start": noise.second, "end": noise.first}
    return Finding("noise_grows", numbers, first_higher(noise), noise.pairs)


def per_step(losses: Paired, steps: int) -> Finding:
    """After the same number of steps GD's loss is lower than SGD's."""
    numbers = {"gd": losses.first, "sgd": losses.second, "steps": steps}
    return Finding("per_step", numbers, first_lower(losses), losses.pairs)


def per_sample(losses: Paired, samples: int) -> Finding:
    """After the same number of samples SGD's loss is lower than GD's (first)."""
    numbers = {"gd": losses.first, "sgd": losses.second, "samples": samples}
    return Finding("per_sample", numbers, first_higher(losses), losses.pairs)


def per_second(losses: Paired, seconds: float) -> Finding:
    """After the same training time SGD's loss is lower than GD's (first)."""
    numbers = {"gd": losses.first, "sgd": losses.second, "seconds": seconds}
    return Finding("per_second", numbers, first_higher(losses), losses.pairs, timed=True)


def accuracy(accuracies: Paired, gd_samples: int, sgd_samples: int) -> Finding:
    """SGD ends with a higher test accuracy than GD (first)."""
    numbers = {
        "gd": accuracies.first.scaled(100),
        "sgd": accuracies.second.scaled(100),
        "gd_samples": gd_samples,
        "sgd_samples": sgd_samples,
    }
    return Finding("accuracy", numbers, first_lower(accuracies), accuracies.pairs)


def adaptive(losses: Paired, samples: int) -> Finding:
    """After the same number of samples Adam's loss is lower than SGD's."""
    numbers = {"adam": losses.first, "sgd": losses.second, "samples": samples}
    return Finding("adaptive", numbers, first_lower(losses), losses.pairs)


def sensitivity(adam: Sweep, sgd: Sweep) -> Finding:
    """More learning rates train with Adam than with SGD. One candidate more or less is within the grid's resolution."""
    wide, narrow = adam.rates_that_train(), sgd.rates_that_train()
    verdict: Verdict = "undecided" if abs(wide - narrow) <= 1 else "holds" if wide > narrow else "fails"
    numbers = {"adam": wide, "adam_tried": len(adam.trials), "sgd": narrow, "sgd_tried": len(sgd.trials)}
    return Finding("sensitivity", numbers, verdict)


def step_time(times: Paired, gd: Measured, gd_samples: int) -> Finding:
    """A step of Adam takes longer than a step of SGD. Times in ms."""
    numbers = {"adam": times.first, "sgd": times.second, "gd": gd, "gd_samples": gd_samples}
    return Finding("step_time", numbers, first_higher(times), times.pairs)


def throughput(speeds: Paired) -> Finding:
    """GD, whose batch is the whole set, goes through more samples per second than SGD."""
    return Finding(
        "throughput", {"gd": speeds.first, "sgd": speeds.second}, first_higher(speeds), speeds.pairs
    )


def find(measured: Lab1Measurements) -> Findings:
    """Every finding, by section of the analysis."""
    gd, sgd, adam = (measured.series[name] for name in ("gd", "sgd", "adam"))
    samples = sgd.ends("samples")
    # While both trained: the one that ends first is not compared with what the other does later.
    seconds = [min(both) for both in zip(gd.ends("seconds"), sgd.ends("seconds"), strict=True)]
    starts = [noise.start for noise in measured.noise]
    ends = [noise.end for noise in measured.noise]
    return {
        "stochastic": [
            deterministic(max(noise.order for noise in measured.noise), over_seeds(starts)),
            smooth(by_seeds(*([curve.rises() for curve in series.curves] for series in (gd, sgd)))),
            noise_grows(by_seeds(ends, starts)),
        ],
        "progress": [
            per_step(by_seeds(gd.last_losses(), measured.sgd_whole_losses), round(gd.ends("steps")[0])),
            per_sample(by_seeds(gd.losses_at("samples", samples), sgd.last_losses()), round(samples[0])),
            per_second(by_seeds(*(each.losses_at("seconds", seconds) for each in (gd, sgd))), fmean(seconds)),
            accuracy(
                by_seeds(gd.results("test_accuracy"), sgd.results("test_accuracy")),
                gd.samples(),
                sgd.samples(),
            ),
        ],
        "adaptive": [
            adaptive(by_seeds(adam.last_losses(), sgd.last_losses()), round(samples[0])),
            sensitivity(measured.sweeps["adam"], measured.sweeps["sgd"]),
        ],
        "cost": _cost(measured),
    }


def _cost(measured: Lab1Measurements) -> list[Finding]:
    """From steps that took turns: the steps of the runs were made at different times."""
    small, large, samples = measured.steps.small.seconds, measured.steps.large, measured.step_samples
    speeds = {name: [samples[name] / each for each in large.seconds[name]] for name in ("gd", "sgd")}
    return [
        step_time(by_rounds(small["adam"], small["sgd"]).scaled(1e3), large.ms("gd"), samples["gd"]),
        throughput(by_rounds(speeds["gd"], speeds["sgd"])),
    ]
