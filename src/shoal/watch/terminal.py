"""The live view on a terminal: a table with a row per worker, and the loss as a small curve; plain lines elsewhere."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import numpy as np

from shoal.printable import printable
from shoal.report.ownership import BARS
from shoal.watch.follow import FollowedRun
from shoal.watch.lines import COLUMNS, cells_of, log_lines, numbers_of, slow_sentences
from shoal.watch.snapshot import Curves, Snapshot, snapshot
from shoal.words import Words, read_words

if TYPE_CHECKING:
    from rich.console import RenderableType

PERIOD_S, LINE_EVERY_S = 1.0, 10.0
CURVE_ROWS, CURVE_COLUMNS = 5, 60
LOG_LINES = 5
NARROW = 80
"""With fewer columns than this the table has smaller gaps."""
OVER = ("finished", "stopped", "failed", "gone")
"""States after which nothing more comes."""


def show(run: Path, beside: Path | None, lang: str, stream: TextIO) -> None:
    """Show the run until it is over: a table that changes on a terminal, else a line every ten seconds."""
    followed = FollowedRun(run)
    other = FollowedRun(beside) if beside else None
    words = read_words(lang, "shoal.watch")
    if other:
        other.read()
    curves = snapshot(other).curves if other else None
    if stream.isatty():
        _show_table(followed, curves, words, stream)
    else:
        _show_lines(followed, words, stream)


def _show_table(run: FollowedRun, other: Curves | None, words: Words, stream: TextIO) -> None:
    from rich.console import Console
    from rich.live import Live

    console = Console(file=stream, highlight=False)
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
        while True:
            run.read()
            now = snapshot(run)
            live.update(drawn(now, other, words, run.folder.path.resolve().name, console.width), refresh=True)
            if now.state in OVER:
                return
            time.sleep(PERIOD_S)


def drawn(now: Snapshot, other: Curves | None, words: Words, name: str, columns: int) -> "RenderableType":
    """The whole view: numbers, the curve, the table of workers, what is slow or damaged, and the newest log lines."""
    from rich.cells import cell_len
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    numbers = "   ".join(f"{key} {value}" for key, value in numbers_of(now, words).items())
    table = Table(box=None, pad_edge=False, padding=(0, 2 if columns >= NARROW else 1, 0, 0))
    rows = [cells_of(row, words) for row in now.workers]
    for place, column in enumerate(COLUMNS):
        least = max((cell_len(cells[place]) for cells in rows), default=1)  # headings are broken first
        side = "left" if column == "state" else "right"
        table.add_column(words(f"workers.{column}"), justify=side, min_width=least)
    for row, cells in zip(now.workers, rows, strict=True):
        table.add_row(*map(Text, cells), style="bold yellow" if row.slower else "")
    room = min(CURVE_COLUMNS, columns - 10)
    curve = [Text(line, style="blue") for line in curve_lines(now.curves, room)]
    if other is not None and len(other.loss):
        beside = words("watch.beside", name=other.name)
        curve.append(Text(f"{beside}: {words('tile.loss')} {other.loss[-1]:.4f}", style="dim"))
    notes = [Text(f"{claim} {figures}", style="yellow") for claim, figures in slow_sentences(now, words)]
    notes += [Text(printable(problem), style="yellow") for problem in now.problems]
    log = [
        Text(line, style="dim", overflow="ellipsis", no_wrap=True)
        for line in log_lines(now, {}, words)[-LOG_LINES:]
    ]
    title = Text.assemble((printable(name), "bold"), f"  {words(f'state.{now.state}')}")
    return Group(title, Text(numbers), *curve, Text(""), table, Text(""), *notes, *log)


def curve_lines(curves: Curves, columns: int, rows: int = CURVE_ROWS) -> list[str]:
    """The loss as bars of so many rows, with the largest and the smallest loss beside it; nothing before two steps.

    As on the page, the scale is logarithmic where all losses are above zero.
    """
    if len(curves.loss) < 2:
        return []
    losses = np.interp(np.linspace(curves.steps[0], curves.steps[-1], columns), curves.steps, curves.loss)
    low, high = float(losses.min()), float(losses.max())
    scaled, least, most = (np.log(each) if low > 0 else np.asarray(each) for each in (losses, low, high))
    heights = np.rint((scaled - least) / ((most - least) or 1.0) * (8 * rows - 1)).astype(int) + 1
    lines = [
        "".join(" " if high < 8 * row + 1 else BARS[min(high - 8 * row, 8) - 1] for high in heights.tolist())
        for row in reversed(range(rows))
    ]
    lines[0], lines[-1] = f"{lines[0]} {high:.4g}", f"{lines[-1]} {low:.4g}"
    return [line.rstrip() for line in lines]


def _show_lines(run: FollowedRun, words: Words, stream: TextIO) -> None:
    """A line for every new entry of the log, and every ten seconds one with the numbers."""

    def say(line: str) -> None:
        stream.write(printable(line) + "\n")
        stream.flush()

    said: set[str] = set()
    last_s = 0.0
    while True:
        run.read()
        now = snapshot(run)
        last_s = _say_news(now, said, last_s, words, say)
        if now.state in OVER:
            return
        time.sleep(PERIOD_S)


def _say_news(
    now: Snapshot, said: set[str], last_s: float, words: Words, say: Callable[[str], None]
) -> float:
    """Say what was not said before; when the numbers were said last."""
    slow = [f"{claim} {numbers}" for claim, numbers in slow_sentences(now, words)]
    keys = [claim for claim, _ in slow_sentences(now, words)]
    news = [(line, line) for line in (*now.problems, *log_lines(now, {}, words))] + [
        *zip(keys, slow, strict=True)
    ]
    for key, line in news:
        if key not in said:
            said.add(key)
            say(line)
    moment_s = time.monotonic()
    is_over = now.state in OVER
    if not is_over and moment_s - last_s < LINE_EVERY_S:
        return last_s
    state = words(f"state.{now.state}")
    say("  ".join([state, *(f"{name} {value}" for name, value in numbers_of(now, words).items())]))
    return moment_s
