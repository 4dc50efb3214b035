"""Print the picture of the README: the time of a step for each worker of finished runs, as an SVG.

    python tools/picture.py reports/compare-*/runs/{ddp,ddp-slow,ddp-balanced} > docs/time.svg

It is the figure that the page of `shoal compare` shows on a phone, so its letters are large enough everywhere. A style
sheet in it follows the reader's light or dark theme. `--lang zh` labels it in Chinese.
"""

import argparse
import re
import sys
from importlib import resources
from pathlib import Path

from shoal.compare.comparison import compare
from shoal.compare.run_figures import time_figure
from shoal.report.svg import FRAME
from shoal.report.words import page_words


def picture(runs: list[Path], lang: str) -> str:
    """The time of a step for each worker of these runs."""
    return as_file(time_figure(compare(runs), page_words(lang, "shoal.compare")).narrow_svg)


def as_file(drawing: str) -> str:
    """A drawing of our pages as a file: on paper of its own, with the dark colours of our pages."""
    paper = f'<rect width="100%" height="100%" fill="var(--figure-paper, {FRAME["paper"]})"/>'
    sheet = (resources.files("shoal.report") / "page.css").read_text(encoding="utf-8")
    colours = re.findall(r"(--figure-[\w-]+): (#[0-9a-f]{6})", sheet)
    dark = "; ".join(f"{name}: {colour}" for name, colour in colours if f"{name}," in drawing + paper)
    style = f"<style>@media (prefers-color-scheme: dark) {{ svg {{ {dark} }} }}</style>"
    drawing = " ".join(drawing.split())
    return drawing.replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg"', 1).replace(
        ">", f">{style}{paper}", 1
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Print the picture of the README.")
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN")
    parser.add_argument("--lang", choices=("en", "zh"), default="en")
    given = parser.parse_args()
    sys.stdout.write(picture(given.runs, given.lang) + "\n")
