"""Fair timing on a noisy machine: rivals take turns within one run, and only ratios of medians are believed.

A benchmark is a script with a `main` that

1. puts its rivals into a table, name → a callable that does one round's work (on a GPU, to the synchronize);
2. hands the table to `interleave`: every round runs each rival once, in an order drawn anew, so that a slow
   second of the machine falls on all alike;
3. prints `report`: a table for people, or with `--json` one line for programs.

A script that is run as `python bench/data.py` finds this file beside it: `from common import interleave`.
"""

import argparse
import gc
import json
import platform
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

import torch


@dataclass(frozen=True)
class Row:
    """One rival's result."""

    case: str
    median_s: float
    low_s: float
    """First quartile."""
    high_s: float
    """Third quartile."""
    ratio: float
    """Median of this case divided by the baseline's median: below 1 is faster than the baseline."""


@dataclass(frozen=True)
class Target:
    """A promise: the median of `slow` over the median of `fast` is `at_least` this, or `at_most` that."""

    slow: str
    fast: str
    at_least: float | None = None
    at_most: float | None = None

    def measured(self, seconds: Mapping[str, Sequence[float]]) -> float:
        """The ratio of medians this target speaks of."""
        return statistics.median(seconds[self.slow]) / statistics.median(seconds[self.fast])

    def met(self, seconds: Mapping[str, Sequence[float]]) -> bool:
        """Whether the measured ratio keeps the promise."""
        ratio = self.measured(seconds)
        above = self.at_least is None or ratio >= self.at_least
        below = self.at_most is None or ratio <= self.at_most
        return above and below


def interleave(
    cases: Mapping[str, Callable[[], None]],
    rounds: int,
    warm_up: int = 2,
    seed: int = 0,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Seconds of each round of each case, on a clock.

    Every case runs `warm_up` times unmeasured; then, in each of `rounds` rounds, all cases run once in random
    order. The garbage collector is off while the clock runs, and restored after.
    """
    shuffler = random.Random(seed)
    seconds: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(warm_up):
        for work in cases.values():
            work()
    was_collecting = gc.isenabled()
    try:
        for _ in range(rounds):
            order = list(cases)
            shuffler.shuffle(order)
            for name in order:
                gc.collect()
                gc.disable()
                start = clock()
                cases[name]()
                seconds[name].append(clock() - start)
    finally:
        if was_collecting:
            gc.enable()
    return seconds


def rows(seconds: Mapping[str, Sequence[float]], baseline: str) -> list[Row]:
    """Medians, quartiles and ratios to the baseline, in the order of the cases."""
    base = statistics.median(seconds[baseline])
    result: list[Row] = []
    for case, samples in seconds.items():
        low, median, high = statistics.quantiles(samples, n=4) if len(samples) > 1 else [samples[0]] * 3
        result.append(Row(case, median, low, high, median / base))
    return result


def report(
    title: str,
    seconds: Mapping[str, Sequence[float]],
    baseline: str,
    targets: Sequence[Target] = (),
    as_json: bool = False,
) -> bool:
    """Print what was measured; True when every target is met."""
    results = rows(seconds, baseline)
    verdicts = [(target, target.measured(seconds), target.met(seconds)) for target in targets]
    if as_json:
        record = {
            "title": title,
            "machine": machine(),
            "rounds": len(seconds[baseline]),
            "baseline": baseline,
            "cases": [asdict(row) for row in results],
            "targets": [asdict(target) | {"measured": ratio, "met": met} for target, ratio, met in verdicts],
        }
        print(json.dumps(record))
    else:
        print(f"{title}   ({machine()})")
        width = max(len(row.case) for row in results)
        print(f"  {'':{width}}   {'median':>10}   {'quartiles':>21}   ÷ {baseline}")
        for row in results:
            spread = f"{in_units(row.low_s)} … {in_units(row.high_s)}"
            print(f"  {row.case:{width}}   {in_units(row.median_s):>10}   {spread:>21}   {row.ratio:.3f}")
        for target, ratio, met in verdicts:
            wanted = f"≥ {target.at_least:g}" if target.at_least is not None else f"≤ {target.at_most:g}"
            print(
                f"  {'met   ' if met else 'MISSED'}   {target.slow} ÷ {target.fast}: {ratio:.2f} ({wanted})"
            )
    return all(met for _, _, met in verdicts)


def in_units(seconds: float) -> str:
    """Seconds in the unit that leaves one to three digits before the point."""
    for factor, unit in ((1.0, "s"), (1e3, "ms"), (1e6, "µs")):
        if seconds * factor >= 1.0:
            return f"{seconds * factor:.2f} {unit}"
    return f"{seconds * 1e9:.0f} ns"


def machine() -> str:
    """What the numbers were measured on, in words."""
    gpu = f", {torch.cuda.get_device_name()}" if torch.cuda.is_available() else ""
    return f"torch {torch.__version__}, {torch.get_num_threads()} threads, {platform.machine()}{gpu}"


def options(description: str, rounds: int) -> argparse.ArgumentParser:
    """The options every benchmark has; add your own and call `parse_args`."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument(
        "--rounds", type=int, default=rounds, help="rounds of every case (default %(default)s)"
    )
    parser.add_argument("--json", action="store_true", help="one JSON line per table, for programs")
    return parser
