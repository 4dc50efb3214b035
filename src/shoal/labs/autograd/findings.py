"""The lab's findings: each a function of numbers alone, so that a test can feed it either outcome."""

import math
from collections.abc import Mapping

from shoal.labs.autograd.experiment import Measurements
from shoal.labs.numbers import scientific, whether
from shoal.labs.page.analysis import Findings
from shoal.report.findings import Finding, Measured, lower

ROUNDING = 1e-5
"""A relative difference of gradients below this is rounding in float32."""
SLOPE_ERROR = 1e-6
"""A relative difference from central differences in float64 below this is the error of the differences themselves."""
PAYS_WITHIN = 100
"""Training steps after which the time saved must exceed the time of compiling."""
SAME = Measured(1.0, 0.0, "none", 1)
"""The ratio of equal things."""


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


def mlp_step(dynamic: Measured, static: Measured, ratio: Measured) -> Finding:
    """A static training step of the mlp takes less time than a dynamic one."""
    numbers = {"dynamic": dynamic, "static": static, "ratio": ratio}
    return Finding("mlp_step", numbers, lower(ratio, SAME))


def lenet_step(dynamic: Measured, static: Measured, ratio: Measured) -> Finding:
    """A static training step of lenet takes less time than a dynamic one."""
    numbers = {"dynamic": dynamic, "static": static, "ratio": ratio}
    return Finding("lenet_step", numbers, lower(ratio, SAME))


def overhead(mlp: Measured, lenet: Measured) -> Finding:
    """The static step gains more, relatively, where the operations themselves are short."""
    return Finding("overhead", {"mlp": mlp, "lenet": lenet}, lower(mlp, lenet))


def latency(dynamic: Measured, static: Measured, ratio: Measured) -> Finding:
    """A static forward pass of one sample takes less time than a dynamic one."""
    numbers = {"dynamic": dynamic, "static": static, "ratio": ratio}
    return Finding("latency", numbers, lower(ratio, SAME))


def pays(compile_ms: Measured, saved_ms: Measured) -> Finding:
    """Compiling pays for itself within a hundred training steps."""
    steps = f"{math.ceil(compile_ms.value / saved_ms.value):,}" if saved_ms.value > 0 else "∞"
    return Finding(
        "pays",
        {"compile": compile_ms, "saved": saved_ms, "steps": steps, "within": PAYS_WITHIN},
        lower(compile_ms, saved_ms.scaled(PAYS_WITHIN)),
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


def caching_saves(plain: Measured, sharing: Measured, ratio: Measured, count: int) -> Finding:
    """Where a sub-expression recurs, a tape that shares is faster."""
    numbers = {"plain": plain, "sharing": sharing, "ratio": ratio, "count": count}
    return Finding("caching_saves", numbers, lower(ratio, SAME))


def caching_costs(plain: Measured, sharing: Measured, ratio: Measured, count: int) -> Finding:
    """Where nothing recurs, a tape that shares records more slowly."""
    numbers = {"plain": plain, "sharing": sharing, "ratio": ratio, "count": count}
    return Finding("caching_costs", numbers, lower(SAME, ratio))


def chain_order(written: Measured, compiled: Measured, ratio: Measured, size: int) -> Finding:
    """The compiler's order of a matrix chain is faster than the written one, at the largest size."""
    numbers = {"written": written, "compiled": compiled, "ratio": ratio, "size": size}
    return Finding("chain_order", numbers, lower(ratio, SAME))


def chain_grows(small: Measured, large: Measured, small_size: int, large_size: int) -> Finding:
    """The larger the matrices, the smaller the part of the written order's time that the compiled one takes."""
    numbers = {"small": small, "large": large, "small_size": small_size, "large_size": large_size}
    return Finding("chain_grows", numbers, lower(large, small))


def find(measured: Measurements) -> Findings:
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
            mlp_step(*mlp.step.compared("dynamic", "static")),
            lenet_step(*lenet.step.compared("dynamic", "static")),
            overhead(mlp.step.ratio("static", "dynamic"), lenet.step.ratio("static", "dynamic")),
            latency(*mlp.forward[1].compared("dynamic", "static")),
            pays(mlp.compile_ms, mlp.step.saved_ms("static", "dynamic")),
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
            caching_saves(*often.time.compared("plain", "sharing"), often.count),
            caching_costs(*never.time.compared("plain", "sharing"), never.count),
        ],
        "chain": [
            chain_order(*large.time.compared("written", "compiled"), large.size),
            chain_grows(
                small.time.ratio("compiled", "written"),
                large.time.ratio("compiled", "written"),
                small.size,
                large.size,
            ),
        ],
    }


def kib(num_bytes: int) -> float:
    """Bytes in KiB."""
    return num_bytes / 1024
