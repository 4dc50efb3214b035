"""The lab's findings: each a function of numbers alone, so that a test can feed it either outcome."""

from collections.abc import Sequence

from shoal.labs.lab1.measure import Measurements, Series, at, last
from shoal.labs.lab1.sweep import Sweep
from shoal.labs.numbers import scientific, whether
from shoal.labs.page.analysis import Findings
from shoal.report.findings import Finding, Measured, Verdict, higher, lower, over_seeds

ROUNDING = 1e-4
"""A relative difference of gradients below this is rounding in float32, not randomness."""


def deterministic(order: float, batch: Measured) -> Finding:
    """The gradient of the whole set does not depend on the order of the samples, a batch's does depend on the batch."""
    verdict = whether(order <= ROUNDING < batch.value)
    return Finding("deterministic", {"order": scientific(order), "batch": batch}, verdict)


def smooth(gd: Measured, sgd: Measured) -> Finding:
    """GD's loss rises less often from one step to the next than SGD's."""
    return Finding("smooth", {"gd": gd.scaled(100), "sgd": sgd.scaled(100)}, lower(gd, sgd))


def noise_grows(start: Measured, end: Measured) -> Finding:
    """A batch's gradient is noisier, relative to the whole gradient, at the end than at the start."""
    return Finding("noise_grows", {"start": start, "end": end}, higher(end, start))


def per_step(gd: Measured, sgd: Measured, steps: int) -> Finding:
    """After the same number of steps GD's loss is lower than SGD's."""
    return Finding("per_step", {"gd": gd, "sgd": sgd, "steps": steps}, lower(gd, sgd))


def per_sample(gd: Measured, sgd: Measured, samples: int) -> Finding:
    """After the same number of samples SGD's loss is lower than GD's."""
    return Finding("per_sample", {"gd": gd, "sgd": sgd, "samples": samples}, lower(sgd, gd))


def per_second(gd: Measured, sgd: Measured, seconds: float) -> Finding:
    """After the same training time SGD's loss is lower than GD's."""
    return Finding("per_second", {"gd": gd, "sgd": sgd, "seconds": seconds}, lower(sgd, gd))


def accuracy(gd: Measured, sgd: Measured, gd_samples: int, sgd_samples: int) -> Finding:
    """SGD ends with a higher test accuracy than GD."""
    numbers = {
        "gd": gd.scaled(100),
        "sgd": sgd.scaled(100),
        "gd_samples": gd_samples,
        "sgd_samples": sgd_samples,
    }
    return Finding("accuracy", numbers, higher(sgd, gd))


def adaptive(adam: Measured, sgd: Measured, samples: int) -> Finding:
    """After the same number of samples Adam's loss is lower than SGD's."""
    return Finding("adaptive", {"adam": adam, "sgd": sgd, "samples": samples}, lower(adam, sgd))


def sensitivity(adam: Sweep, sgd: Sweep) -> Finding:
    """More learning rates train with Adam than with SGD. One candidate more or less is within the grid's resolution."""
    wide, narrow = adam.rates_that_train(), sgd.rates_that_train()
    verdict: Verdict = "undecided" if abs(wide - narrow) <= 1 else "holds" if wide > narrow else "fails"
    numbers = {"adam": wide, "adam_tried": len(adam.trials), "sgd": narrow, "sgd_tried": len(sgd.trials)}
    return Finding("sensitivity", numbers, verdict)


def step_time(adam: Measured, sgd: Measured, gd: Measured) -> Finding:
    """A step of Adam takes longer than a step of SGD."""
    return Finding("step_time", {"adam": adam, "sgd": sgd, "gd": gd}, higher(adam, sgd))


def throughput(gd: Measured, sgd: Measured) -> Finding:
    """GD, whose batch is the whole set, goes through more samples per second than SGD."""
    return Finding("throughput", {"gd": gd, "sgd": sgd}, higher(gd, sgd))


def find(measured: Measurements) -> Findings:
    """Every finding, by section of the analysis."""
    gd, sgd, adam = (measured.series[name] for name in ("gd", "sgd", "adam"))
    steps = _end(gd, "steps")
    samples = _end(sgd, "samples")
    seconds = _end(sgd, "seconds")
    starts = over_seeds([noise.start for noise in measured.noise])
    ends = over_seeds([noise.end for noise in measured.noise])
    return {
        "stochastic": [
            deterministic(max(noise.order for noise in measured.noise), starts),
            smooth(*(over_seeds([curve.rises() for curve in series.curves]) for series in (gd, sgd))),
            noise_grows(starts, ends),
        ],
        "progress": [
            per_step(gd.losses(last), sgd.losses(at("steps", steps)), round(steps)),
            per_sample(gd.losses(at("samples", samples)), sgd.losses(last), round(samples)),
            per_second(gd.losses(at("seconds", seconds)), sgd.losses(last), seconds),
            accuracy(gd.results("test_accuracy"), sgd.results("test_accuracy"), gd.samples(), sgd.samples()),
        ],
        "adaptive": [
            adaptive(adam.losses(last), sgd.losses(last), round(samples)),
            sensitivity(measured.sweeps["adam"], measured.sweeps["sgd"]),
        ],
        "cost": [
            step_time(adam.step_ms(), sgd.step_ms(), gd.step_ms()),
            throughput(gd.results("samples_per_s"), sgd.results("samples_per_s")),
        ],
    }


def _end(series: Series, axis: str) -> float:
    """The mean end of an optimizer's runs on an axis."""
    ends: Sequence[float] = [float(getattr(curve, axis)[-1]) for curve in series.curves]
    return sum(ends) / len(ends)
