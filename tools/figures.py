"""Draw the figures of the guide into `docs/figures`: `make figures`.

    python tools/figures.py

Diagrams come from `shoal explain NAME --svg`. The others show runs of the tutorial's own commands: draw them on an idle
machine. They have a Chinese twin, `NAME.zh.svg`.
"""

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from picture import as_file
from shoal.report.canvas import font_for
from shoal.report.curves import Dash, Line, Panel, Style, draw_apart
from shoal.report.finished_runs import read_run
from shoal.report.svg import for_page
from shoal.report.timeline import read_timeline
from shoal.report.timeline_svg import drawings_of
from shoal.report.words import page_words
from shoal.words import Words

DOCS = Path(__file__).parents[1] / "docs"
EXPLAINED = ("ddp", "topk", "zero", "1f1b", "ring", "pipeline", "tensor")
SHOAL = [sys.executable, "-m", "shoal"]
TRAIN = [*SHOAL, "train", "quickstart", "--name"]
DDP = ["--strategy", "ddp", "--workers", "2"]


def draw() -> None:
    """Train in a folder that is deleted afterwards, and write every figure."""
    folder = DOCS / "figures"
    folder.mkdir(exist_ok=True)
    for name in EXPLAINED:
        _run([*SHOAL, "explain", name, "--svg", str(folder / f"{name}.svg")])
    with tempfile.TemporaryDirectory() as scratch:
        os.chdir(scratch)
        figures = dict(_of_runs())
        for lang, ending in (("en", "svg"), ("zh", "zh.svg")):
            words = page_words(lang, "shoal.compare")
            for name, drawn in figures.items():
                (folder / f"{name}.{ending}").write_text(as_file(drawn(words)) + "\n", encoding="utf-8")
        os.chdir(DOCS)


def _of_runs() -> Iterator[tuple[str, Callable[[Words], str]]]:
    """The name of each figure of a run, and what draws it."""
    runs = Path("runs").absolute()
    _run([*TRAIN, "one"])
    yield "one-process", lambda words: _loss(words, runs / "one")
    _run([*TRAIN, "slow", *DDP, "--bottleneck", "rank=1,slowdown=3"])
    median = read_timeline(runs / "slow").median
    yield "who-waits", lambda words: for_page(drawings_of({"median": median}, words)[1])
    _run([*TRAIN, "two", *DDP])
    _interrupt([*TRAIN, "stopped", *DDP])
    _run([*SHOAL, "train", "--resume", "runs/stopped"])
    yield "resumed", lambda words: _loss(words, runs / "two", runs / "stopped")
    page = (DOCS / "en/tutorial/your-own-model.md").read_text(encoding="utf-8")
    Path("model.py").write_text(re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)[0])
    _run([sys.executable, "model.py"])
    (own,) = runs.glob("Sequential-*")
    yield "your-own-model", lambda words: _loss(words, own)


def _loss(words: Words, *runs: Path) -> str:
    """The training loss of runs by step, smoothed; the first is wide, so that a second that coincides is seen on it."""
    alone: tuple[tuple[str, Dash, float], ...] = (("blue", "solid", 1.8),)
    pair: tuple[tuple[str, Dash, float], ...] = (("sky", "solid", 5.0), ("vermilion", "dashed", 1.8))
    lines: list[Line] = []
    for path, (colour, dash, width) in zip(runs, alone if len(runs) == 1 else pair, strict=True):
        curve = read_run(path).curve
        lines.append(Line(Style(path.name, colour, dash, width=width), curve.steps, curve.smoothed(10)))
    labels = words("figure.steps"), words("figure.plain_loss")
    return draw_apart([Panel("", *labels, lines, log_x=False)], font=font_for(words.lang)).narrow_svg


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def _interrupt(command: list[str]) -> None:
    """Run it, and press Ctrl-C after the first epoch."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        next(line for line in running.stdout if "epoch 1" in line)
        running.send_signal(signal.SIGINT)
        running.communicate()


if __name__ == "__main__":
    draw()
