"""The lab's claims."""

from statistics import fmean

from shoal.kit.findings import Finding, Paired, Verdict, by_rounds, by_seeds, over_seeds
from shoal_labs.claims import Bound, Claim, Computed, Pair
from shoal_labs.lab1.measure import Lab1Measurements


def _last_samples(measured: Lab1Measurements) -> dict[str, int]:
    return {"samples": round(measured.series["sgd"].ends("samples")[0])}


def _per_sample(measured: Lab1Measurements) -> Paired:
    gd, sgd = measured.series["gd"], measured.series["sgd"]
    return by_seeds(sgd.last_losses(), gd.losses_at("samples", sgd.ends("samples")))


def _while_both_train(measured: Lab1Measurements) -> list[float]:
    """The one that ends first is not compared with what the other does later."""
    return [
        min(both)
        for both in zip(*(measured.series[name].ends("seconds") for name in ("gd", "sgd")), strict=True)
    ]


def _per_second(measured: Lab1Measurements) -> Paired:
    seconds = _while_both_train(measured)
    return by_seeds(*(measured.series[name].losses_at("seconds", seconds) for name in ("sgd", "gd")))


def _accuracies(measured: Lab1Measurements) -> Paired:
    return by_seeds(*(measured.series[name].results("test_accuracy") for name in ("sgd", "gd")))


def _step_times(measured: Lab1Measurements) -> Paired:
    """From steps that took turns: the steps of the runs were made at different times."""
    seconds = measured.steps.small.seconds
    return by_rounds(seconds["adam"], seconds["sgd"]).scaled(1e3)


def _speeds(measured: Lab1Measurements) -> Paired:
    seconds, samples = measured.steps.large.seconds, measured.step_samples
    return by_rounds(*([samples[name] / each for each in seconds[name]] for name in ("gd", "sgd")))


def sensitivity(measured: Lab1Measurements) -> Finding:
    """One candidate more or less is within the grid's resolution."""
    adam, sgd = measured.sweeps["adam"], measured.sweeps["sgd"]
    wide, narrow = adam.rates_that_train(), sgd.rates_that_train()
    verdict: Verdict = "undecided" if abs(wide - narrow) <= 1 else "holds" if wide > narrow else "fails"
    numbers = {"adam": wide, "adam_tried": len(adam.trials), "sgd": narrow, "sgd_tried": len(sgd.trials)}
    return Finding("sensitivity", numbers, verdict)


CLAIMS: tuple[Claim[Lab1Measurements], ...] = (
    Bound(
        "deterministic",
        "order <= 1e-4 and batch > 1e-4",  # below this, a relative difference is rounding in float32
        lambda m: {
            "order": max(noise.order for noise in m.noise),
            "batch": over_seeds([noise.start for noise in m.noise]),
        },
    ),
    Pair(
        "smooth",
        "gd < sgd",
        lambda m: by_seeds(*([curve.rises() for curve in m.series[name].curves] for name in ("gd", "sgd"))),
        scale=100,
    ),
    Pair(
        "noise_grows",
        "end > start",
        lambda m: by_seeds([noise.end for noise in m.noise], [noise.start for noise in m.noise]),
    ),
    Pair(
        "per_step",
        "gd < sgd",
        lambda m: by_seeds(m.series["gd"].last_losses(), m.sgd_whole_losses),
        lambda m: {"steps": round(m.series["gd"].ends("steps")[0])},
    ),
    Pair("per_sample", "sgd < gd", _per_sample, _last_samples),
    Pair(
        "per_second", "sgd < gd", _per_second, lambda m: {"seconds": fmean(_while_both_train(m))}, timed=True
    ),
    Pair(
        "accuracy",
        "sgd > gd",
        _accuracies,
        lambda m: {"gd_samples": m.series["gd"].samples(), "sgd_samples": m.series["sgd"].samples()},
        scale=100,
    ),
    Pair(
        "adaptive",
        "adam < sgd",
        lambda m: by_seeds(*(m.series[name].last_losses() for name in ("adam", "sgd"))),
        _last_samples,
    ),
    Computed("sensitivity", sensitivity),
    Pair(
        "step_time",
        "adam > sgd",
        _step_times,
        lambda m: {"gd": m.steps.large.ms("gd"), "gd_samples": m.step_samples["gd"]},
    ),
    Pair("throughput", "gd > sgd", _speeds),
)
