"""The lab's findings: each a function of numbers alone, so that a test can feed it either outcome."""

import math
from collections.abc import Mapping, Sequence

from shoal.report.findings import Finding, Measured, lower
from shoal.report.paired import Paired, by_rounds, first_higher, first_lower, typical
from shoal_labs.autograd.experiment import AutogradMeasurements
from shoal_labs.numbers import scientific, whether
from shoal_labs.page.analysis import Findings
from shoal_labs.timing.contest import Contest

ROUNDING = 1e-5
"""A relative difference of gradients below this is rounding in float32."""
SLOPE_ERROR = 1e-6
"""A relative difference from central differences in float64 below this is the error of the differences themselves."""
PAYS_WITHIN = 100
"""Training steps after which the time saved must exceed the time of compiling."""


def by_hand(error: float, slope_error: float) -> Finding:
    """The tape's gradients of the worked example are those derived by hand, and the slopes of the function."""
    return Finding(
        "by_hand",
        {"error": scientific(error), "slopes": scientific(slope_error)},
        whether(error <= ROUNDING and slope_error <= SLOPE_ERROR),
    )


def same_gradients(mlp: float, lenet: float) -> Finding:
    """Static gradients are the dynamic ones up to rounding."""
    return Finding(
        "same_gradients",
        {"mlp": scientific(mlp), "lenet": scientific(lenet)},
        whether(max(mlp, lenet) <= ROUNDING),
    )


def branches(dynamic_works: bool, static_refuses: bool) -> Finding:
    """A branch on data follows the data on the tape; the compiler refuses it rather than freeze one side."""
    numbers = {"dynamic": dynamic_works, "static": static_refuses}
    return Finding("branches", numbers, whether(dynamic_works and static_refuses))


def mlp_step(times: Paired, ratio: Measured) -> Finding:
    """A static training step of the mlp takes less time than a dynamic one."""
    numbers = {"dynamic": times.second, "static": times.first, "ratio": ratio}
    return Finding("mlp_step", numbers, first_lower(times), times.pairs)


def lenet_step(times: Paired, ratio: Measured) -> Finding:
    """A static training step of lenet takes less time than a dynamic one."""
    numbers = {"dynamic": times.second, "static": times.first, "ratio": ratio}
    return Finding("lenet_step", numbers, first_lower(times), times.pairs)


def overhead(ratios: Paired) -> Finding:
    """The static step gains more, relatively, where the operations themselves are short (first: the mlp)."""
    numbers = {"mlp": ratios.first, "lenet": ratios.second}
    return Finding("overhead", numbers, first_lower(ratios), ratios.pairs)


def latency(times: Paired, ratio: Measured) -> Finding:
    """A static forward pass of one sample takes less time than a dynamic one."""
    numbers = {"dynamic": times.second, "static": times.first, "ratio": ratio}
    return Finding("latency", numbers, first_lower(times), times.pairs)


def pays(compile_ms: Sequence[float], steps_ms: Paired) -> Finding:
    """Compiling pays for itself within a hundred training steps. `steps_ms`: dynamic and static, in turns."""
    once, saved = typical(compile_ms), steps_ms.difference
    steps = f"{math.ceil(once.value / saved.value):,}" if saved.value > 0 else "∞"
    return Finding(
        "pays",
        {"compile": once, "saved": saved, "steps": steps, "within": PAYS_WITHIN},
        lower(once, saved.scaled(PAYS_WITHIN)),
        timed=True,
    )


def peak(dynamic: Mapping[str, int], static: Mapping[str, int]) -> Finding:
    """A static step holds no more bytes at once than a dynamic one, in any network."""
    numbers = {f"{name}_dynamic": kib(dynamic[name]) for name in dynamic}
    numbers |= {f"{name}_static": kib(static[name]) for name in static}
    return Finding("peak", numbers, whether(all(static[name] <= dynamic[name] for name in dynamic)))


def planning(separate: Mapping[str, int], planned: Mapping[str, int]) -> Finding:
    """The memory plan needs less than half of what the values would take one beside the other, in every network."""
    numbers = {f"{name}_separate": kib(separate[name]) for name in separate}
    numbers |= {f"{name}_planned": kib(planned[name]) for name in planned}
    return Finding("planning", numbers, whether(all(2 * planned[n] < separate[n] for n in separate)))


def passes(operations: tuple[int, int], written_bytes: tuple[int, int]) -> Finding:
    """The passes take a larger share of the operations away than of the bytes written; (before, after) of each."""
    fewer, less = (1 - after / before for before, after in (operations, written_bytes))
    numbers = {
        "before": operations[0],
        "after": operations[1],
        "operations": 100 * fewer,
        "bytes": 100 * less,
    }
    return Finding("passes", numbers, whether(fewer > less))


def caching_saves(times: Paired, ratio: Measured, count: int) -> Finding:
    """Where a sub-expression recurs, a tape that shares is faster."""
    numbers = {"plain": times.second, "sharing": times.first, "ratio": ratio, "count": count}
    return Finding("caching_saves", numbers, first_lower(times), times.pairs)


def caching_costs(times: Paired, ratio: Measured, count: int) -> Finding:
    """Where nothing recurs, a tape that shares records more slowly."""
    numbers = {"plain": times.second, "sharing": times.first, "ratio": ratio, "count": count}
    return Finding("caching_costs", numbers, first_higher(times), times.pairs)


def chain_order(times: Paired, ratio: Measured, size: int) -> Finding:
    """The compiler's order of a matrix chain is faster than the written one, at the largest size."""
    numbers = {"written": times.second, "compiled": times.first, "ratio": ratio, "size": size}
    return Finding("chain_order", numbers, first_lower(times), times.pairs)


def chain_grows(ratios: Paired, small_size: int, large_size: int) -> Finding:
    """The larger the matrices (first), the smaller the part of the written order's time that the compiled one takes."""
    sizes = {"small_size": small_size, "large_size": large_size}
    numbers = {"small": ratios.second, "large": ratios.first, **sizes}
    return Finding("chain_grows", numbers, first_lower(ratios), ratios.pairs)


def find(measured: AutogradMeasurements) -> Findings:
    """Every finding, by section of the analysis."""
    mlp, lenet = measured.networks["mlp"], measured.networks["lenet"]
    networks = measured.networks.values()
    often, never = measured.caching.recurring[-1], measured.caching.distinct
    small, large = measured.chains[0], measured.chains[-1]
    return {
        "truth": [
            by_hand(measured.course.error, measured.course.slope_error),
            same_gradients(mlp.difference, lenet.difference),
            branches(measured.branch.dynamic_works, bool(measured.branch.refusal)),
        ],
        "time": [
            mlp_step(*mlp.step.compared("static", "dynamic")),
            lenet_step(*lenet.step.compared("static", "dynamic")),
            overhead(_by_ratios(mlp.step, lenet.step, "static", "dynamic")),
            latency(*mlp.forward[1].compared("static", "dynamic")),
            pays(mlp.cold_ms, mlp.step.compared("dynamic", "static")[0]),
        ],
        "memory": [
            peak({n.name: n.peak["dynamic"] for n in networks}, {n.name: n.peak["static"] for n in networks}),
            planning(
                {n.name: n.separate_bytes for n in networks}, {n.name: n.planned_bytes for n in networks}
            ),
            passes(
                (mlp.stages[0].num_operations, mlp.stages[-1].num_operations),
                (mlp.stages[0].num_bytes, mlp.stages[-1].num_bytes),
            ),
        ],
        "caching": [
            caching_saves(*often.time.compared("sharing", "plain"), often.count),
            caching_costs(*never.time.compared("sharing", "plain"), never.count),
        ],
        "chain": [
            chain_order(*large.time.compared("compiled", "written"), large.size),
            chain_grows(_by_ratios(large.time, small.time, "compiled", "written"), small.size, large.size),
        ],
    }


def _by_ratios(first: Contest, second: Contest, rival: str, base: str) -> Paired:
    """How many times as long a rival takes in two contests; the shorter one decides how many rounds count."""
    ratios = first.ratios(rival, base), second.ratios(rival, base)
    count = min(map(len, ratios))
    return by_rounds(*(each[:count] for each in ratios))


def kib(num_bytes: int) -> float:
    """Bytes in KiB."""
    return num_bytes / 1024
