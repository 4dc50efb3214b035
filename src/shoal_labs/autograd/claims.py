"""The lab's claims."""

import math
from collections.abc import Callable

from shoal.kit.findings import Finding, Number, Paired, by_rounds, inside_run, lower, typical
from shoal_labs.autograd.experiment import AutogradMeasurements
from shoal_labs.claims import Bound, Claim, Computed, Pair
from shoal_labs.timing.contest import Contest

PAYS_WITHIN = 100
"""Training steps after which the time saved must exceed the time of compiling."""

Contests = Callable[[AutogradMeasurements], Contest]


def _timed(
    name: str,
    rule: str,
    contest: Contests,
    also: Callable[[AutogradMeasurements], dict[str, Number]] = lambda _: {},
) -> Pair[AutogradMeasurements]:
    """Two rivals of a contest, in ms, and their ratio."""
    rival, _, base = rule.split()
    return Pair(
        name,
        rule,
        lambda m: contest(m).compared(rival, base)[0],
        lambda m: {"ratio": contest(m).ratio(rival, base), **also(m)},
    )


def _by_ratios(first: Contest, second: Contest, rival: str, base: str) -> Paired:
    """How many times as long a rival takes in two contests; the shorter one decides how many rounds count."""
    ratios = first.ratios(rival, base), second.ratios(rival, base)
    count = min(map(len, ratios))
    return by_rounds(*(each[:count] for each in ratios))


def pays(measured: AutogradMeasurements) -> Finding:
    """Compiling pays for itself within a hundred training steps. It shows the time of compiling as the page does."""
    mlp = measured.networks["mlp"]
    once, saved = inside_run(mlp.cold_ms), mlp.step.compared("dynamic", "static")[0].difference
    steps = math.ceil(once.value / saved.value) if saved.value > 0 else math.inf
    numbers = {"compile": once, "saved": saved, "steps": steps, "within": PAYS_WITHIN}
    return Finding("pays", numbers, lower(typical(mlp.cold_ms), saved.scaled(PAYS_WITHIN)), timed=True)


def _kib(measured: AutogradMeasurements, **what: str) -> dict[str, Number]:
    """Bytes of every network in KiB: `static="peak static"` is the number of the peaks by engine."""
    numbers: dict[str, Number] = {}
    for name, network in measured.networks.items():
        for label, attribute in what.items():
            field, _, engine = attribute.partition(" ")
            value = getattr(network, field)
            numbers[f"{name}_{label}"] = (value[engine] if engine else value) / 1024
    return numbers


def _removed(measured: AutogradMeasurements) -> dict[str, Number]:
    """The share of operations and of bytes written that the passes took away, in per cent."""
    first, *_, last = measured.networks["mlp"].stages
    return {
        "operations": 100 * (1 - last.num_operations / first.num_operations),
        "bytes": 100 * (1 - last.num_bytes / first.num_bytes),
    }


CLAIMS: tuple[Claim[AutogradMeasurements], ...] = (
    Bound(
        "by_hand",
        "error <= 1e-5 and slopes <= 1e-6",  # rounding in float32; the error of central differences in float64
        lambda m: {"error": m.course.error, "slopes": m.course.slope_error},
    ),
    Bound(
        "same_gradients",
        "mlp <= 1e-5 and lenet <= 1e-5",
        lambda m: {name: network.difference for name, network in m.networks.items()},
    ),
    Bound(
        "branches",
        "dynamic and static",
        lambda m: {"dynamic": m.branch.dynamic_works, "static": bool(m.branch.refusal)},
    ),
    _timed("mlp_step", "static < dynamic", lambda m: m.networks["mlp"].step),
    _timed("lenet_step", "static < dynamic", lambda m: m.networks["lenet"].step),
    Pair(
        "overhead",
        "mlp < lenet",
        lambda m: _by_ratios(m.networks["mlp"].step, m.networks["lenet"].step, "static", "dynamic"),
    ),
    _timed("latency", "static < dynamic", lambda m: m.networks["mlp"].forward[1]),
    Computed("pays", pays),
    Bound(
        "peak",
        "mlp_static <= mlp_dynamic and lenet_static <= lenet_dynamic",
        lambda m: _kib(m, dynamic="peak dynamic", static="peak static"),
    ),
    Bound(
        "planning",
        "mlp_part < 0.5 and lenet_part < 0.5",
        lambda m: {
            f"{name}_part": each.planned_bytes / each.separate_bytes for name, each in m.networks.items()
        },
        lambda m: _kib(m, separate="separate_bytes", planned="planned_bytes"),
    ),
    Bound(
        "passes",
        "operations > bytes",
        _removed,
        lambda m: {
            "before": m.networks["mlp"].stages[0].num_operations,
            "after": m.networks["mlp"].stages[-1].num_operations,
        },
    ),
    _timed(
        "caching_saves",
        "sharing < plain",
        lambda m: m.caching.recurring[-1].time,
        lambda m: {"count": m.caching.recurring[-1].count},
    ),
    _timed(
        "caching_costs",
        "sharing > plain",
        lambda m: m.caching.distinct.time,
        lambda m: {"count": m.caching.distinct.count},
    ),
    _timed(
        "chain_order",
        "compiled < written",
        lambda m: m.chains[-1].time,
        lambda m: {"size": m.chains[-1].size},
    ),
    Pair(
        "chain_grows",
        "large < small",
        lambda m: _by_ratios(m.chains[-1].time, m.chains[0].time, "compiled", "written"),
        lambda m: {"small_size": m.chains[0].size, "large_size": m.chains[-1].size},
    ),
)
