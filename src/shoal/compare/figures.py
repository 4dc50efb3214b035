"""The two figures of a comparison: all losses together, and where a step's time goes."""

from collections.abc import Sequence
from typing import Any

from shoal.compare.comparison import KINDS, ComparedRun, Comparison
from shoal.report.figures import COLOURS, DASHES, Drawing, painted

SMOOTHED_OVER = 10
MOST_BARS = 24
"""With more workers than this, a bar is the mean of a run's workers."""
ORANGE, SKY = "#E69F00", "#56B4E9"
PALETTE = tuple(dict.fromkeys([*COLOURS.values(), ORANGE, SKY]))
LOOKS: dict[str, tuple[str, str]] = {
    "compute": (COLOURS["blue"], ""),
    "move": (COLOURS["vermilion"], "////"),
    "wait": (ORANGE, "...."),
    "other": ("#c8ccd0", ""),
}
"""Colour and hatching of each kind of time: distinct in grey, too."""
REFERENCE_STYLE: dict[str, Any] = {"color": "#b4bac1", "linewidth": 6.0, "solid_capstyle": "round"}


def loss_figure(comparison: Comparison) -> Drawing:
    """Training loss against steps, where equal runs coincide, and against seconds, where they do not.

    The reference is a wide band, so that a curve on top of it can be seen.
    """

    def paint(figure: Any) -> None:
        axes: Any = figure.subplots(1, 2, sharey=True)
        others = [entry for entry in comparison.entries if entry is not comparison.reference]
        styles = {entry.name: _line_style(index) for index, entry in enumerate(others)}
        for entry in comparison.entries:
            curve = entry.run.curve
            loss = curve.smoothed(SMOOTHED_OVER)
            style = styles.get(entry.name, REFERENCE_STYLE)
            axes[0].plot(curve.steps, loss, label=entry.name, **style)
            axes[1].plot(curve.seconds, loss, **style)
        labels = (("by step", "steps"), ("by time", "training time (s)"))
        for axis, (title, label) in zip(axes, labels, strict=True):
            axis.set(title=title, xlabel=label, yscale="log")
            _grid(axis)
            _decimal_ticks(axis)
        axes[0].set_ylabel(f"training loss (nats, mean of {SMOOTHED_OVER} steps)")
        figure.legend(loc="outside lower center", ncols=min(4, len(comparison.entries)), frameon=False)

    return painted(paint, 9.6, 4.9)


def time_figure(comparison: Comparison) -> Drawing:
    """A bar for each worker: how long a step takes it, and what that time consists of."""
    bars = _bars(comparison.entries)
    positions = _positions([name for name, _, _ in bars])

    def paint(figure: Any) -> None:
        axis: Any = figure.subplots()
        lefts = [0.0] * len(bars)
        for kind, (colour, hatch) in LOOKS.items():
            lengths = [milliseconds[kind] for _, _, milliseconds in bars]
            looks = {"color": colour, "hatch": hatch, "edgecolor": "white", "linewidth": 0.4}
            axis.barh(positions, lengths, 0.8, lefts, label=kind, **looks)
            lefts = [left + length for left, length in zip(lefts, lengths, strict=True)]
        axis.set_yticks(positions, [f"{name}  {worker}" for name, worker, _ in bars])
        axis.invert_yaxis()
        axis.set_xlabel("time of a step (ms, mean)")
        _grid(axis)
        axis.grid(False, axis="y")
        axis.tick_params(axis="y", length=0)
        figure.legend(loc="outside lower center", ncols=len(KINDS), frameon=False)

    return painted(paint, 9.6, 1.3 + 0.27 * len(bars))


def _bars(entries: Sequence[ComparedRun]) -> list[tuple[str, str, dict[str, float]]]:
    """Name of the run, the worker, and milliseconds by kind."""
    by_worker = sum(len(entry.ranks) for entry in entries) <= MOST_BARS
    bars: list[tuple[str, str, dict[str, float]]] = []
    for entry in entries:
        shares = {"mean": entry.shares}
        if by_worker:
            several = len(entry.ranks) > 1
            shares = {
                f"rank {rank.rank}" * several: {kind: getattr(rank, kind) for kind in KINDS}
                for rank in entry.ranks
            }
        step_ms = 1e3 * max(rank.train_s / rank.steps for rank in entry.ranks)
        for worker, parts in shares.items():
            bars.append((entry.name, worker, {kind: step_ms * part for kind, part in parts.items()}))
    return bars


def _positions(names: Sequence[str]) -> list[float]:
    """Positions of the bars: those of one run are close together."""
    positions: list[float] = []
    for index, name in enumerate(names):
        step = 0.86 if index and name == names[index - 1] else 1.35
        positions.append(positions[-1] + step if positions else 0.0)
    return positions


def _line_style(index: int) -> dict[str, Any]:
    dashes = list(DASHES.values())
    colour, dash = PALETTE[index % len(PALETTE)], dashes[index % len(dashes)]
    return {"color": colour, "linestyle": dash, "linewidth": 1.5}


def _grid(axis: Any) -> None:
    axis.grid(True, color="#d8dce0", linewidth=0.6)
    axis.set_axisbelow(True)


def _decimal_ticks(axis: Any) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.yaxis.set_minor_formatter(NullFormatter())
