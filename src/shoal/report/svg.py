"""SVG drawings for a page or a file, in colours that follow the reader's light or dark theme.

A colour becomes `var(--figure-blue, #0072b2)`: the style sheet of the page redefines the variable for the dark theme,
and printing falls back to the colour itself. Names inside a drawing get a prefix, since a page has many.
"""

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Mapping
from functools import cache
from html import escape
from importlib import resources

COLOURS = {
    "blue": "#0072b2",
    "vermilion": "#d55e00",
    "green": "#009e73",
    "orange": "#e69f00",
    "purple": "#cc79a7",
    "black": "#000000",
    "sky": "#56b4e9",
    "brown": "#8c5a2b",
    "olive": "#8a8f00",
    "indigo": "#5b4fc9",
    "grey": "#b4bac1",
}
"""For data. The first seven are those of Okabe and Ito, which colour-blind readers can distinguish."""
FRAME = {"ink": "#1d2125", "grid": "#d8dce0", "faint": "#eceef0", "rule": "#aeb6bf", "paper": "#ffffff"}
"""For text and axes, for grid lines, and for gaps that show the page behind the drawing."""
GRAPH = {
    "forward": "#dbeafe", "forward-line": "#1d4ed8", "backward": "#ffedd5", "backward-line": "#c2410c",
    "source": "#f1f5f9", "source-line": "#475569", "result": "#dcfce7", "result-line": "#15803d",
    "title": "#0f172a", "legend": "#334155", "arrow": "#64748b",
}  # fmt: skip
"""Of drawn graphs (`autograd.drawing`)."""
LOOKS: dict[str, tuple[str, str]] = {
    "compute": (COLOURS["blue"], ""),
    "wait": (COLOURS["orange"], "||||"),
    "move": (COLOURS["vermilion"], "////"),
    "encode": (COLOURS["green"], "...."),
    "other": (COLOURS["grey"], ""),
}
"""Colour and hatching of each kind of time: distinct in grey, too. In the order of a step, as in the labs."""
SMALL, FONT, LARGE = 11, 12, 15
"""Sizes of text."""
VARIABLES: Mapping[str, str] = {
    colour: f"--figure-{name}" for name, colour in {**COLOURS, **FRAME, **GRAPH}.items()
}


def for_page(svg: str) -> str:
    """A drawing as an element of a page: no prolog, metadata or paper, unique names, colours as variables.

    >>> for_page('<?xml version="1.0"?><svg viewBox="0 0 9 9"><path style="stroke: #0072B2"/></svg>')
    '<svg viewBox="0 0 9 9"><path style="stroke: var(--figure-blue, #0072b2)"/></svg>'
    """
    svg = svg[svg.index("<svg") :].strip()
    svg = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", svg, flags=re.DOTALL)
    # The page is the paper: what is behind the drawing, such as the sign that it can be scrolled, must be visible.
    svg = re.sub(r'<rect width="[\d.]+" height="[\d.]+" fill="#ffffff"/>\s*', "", svg, count=1)
    svg = re.sub(r' (?:xmlns(?::\w+)?|version)="[^"]*"', "", svg).replace("xlink:href", "href")
    # Only names that the drawing refers to remain.
    prefix = f"f{hashlib.sha256(svg.encode()).hexdigest()[:8]}-"
    used = set(re.findall(r'(?:url\(#|href="#)([^)"]+)', svg))
    svg = re.sub(r' id="([^"]*)"', lambda match: f' id="{prefix}{match[1]}"' if match[1] in used else "", svg)
    svg = re.sub(r'(url\(#|href="#)', rf"\g<1>{prefix}", svg)

    def variable(match: re.Match[str]) -> str:
        colour = match[0].lower()
        return f"var({VARIABLES[colour]}, {colour})" if colour in VARIABLES else colour

    return re.sub(r"#[0-9a-fA-F]{6}\b", variable, svg)


def for_file(svg: str) -> str:
    """A drawing as a file of its own: a style sheet in it replaces its colours where the theme is dark.

    >>> print(for_file('<svg viewBox="0 0 9 9"><path fill="#ffffff"/></svg>'))
    <svg viewBox="0 0 9 9"><style>@media screen and (prefers-color-scheme: dark) {
    [fill="#ffffff"] { fill: #15181b }
    }</style><path fill="#ffffff"/></svg>
    """
    used = sorted(set(re.findall(r'\b(fill|stroke)="(#[0-9a-f]{6})"', svg)))
    rules = [
        f'[{attribute}="{colour}"] {{ {attribute}: {dark} }}'
        for attribute, colour in used
        if (dark := _dark_colours().get(VARIABLES.get(colour, "")))
    ]
    style = "\n".join(["@media screen and (prefers-color-scheme: dark) {", *rules, "}"])
    return re.sub(r"<svg[^>]*>", lambda match: f"{match[0]}<style>{style}</style>", svg, count=1)


@cache
def _dark_colours() -> dict[str, str]:
    """The dark theme's colour of each variable, from the style sheet of pages."""
    sheet = (resources.files("shoal.report") / "page.css").read_text(encoding="utf-8")
    return dict(re.findall(r"(--figure-[\w-]+): (#[0-9a-f]{6})", sheet))


def inverted_for_file(svg: str) -> str:
    """As `for_file`, for drawings with maps of shades: where the theme is dark, all of it is inverted; hues stay."""
    return re.sub(r"<svg[^>]*>", lambda match: match[0] + _DARK_FILE, svg, count=1)


_DARK_FILE = """<style>@media screen and (prefers-color-scheme: dark) {
  :root { background: #14181b; } :root > * { filter: invert(.91) hue-rotate(180deg); } }</style>"""


def svg_of(width: float, height: float, parts: Iterable[str]) -> str:
    """A drawing on paper, as an SVG element that is no wider than its page."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
        f'font-family="system-ui, sans-serif" font-size="{FONT}" style="max-width: 100%; height: auto">'
    )
    paper = f'<rect width="{width:.0f}" height="{height:.0f}" fill="{FRAME["paper"]}"/>'
    return "\n".join([head, paper, *parts, "</svg>"]) + "\n"


def svg_text(words: str, x: float, y: float, fill: str, more: str = "") -> str:
    """Text at a place, with more attributes."""
    return f'<text x="{x:.1f}" y="{y:g}" {more}{" " * bool(more)}fill="{fill}">{escape(words)}</text>'


def svg_box(x: float, y: float, width: float, height: float, fill: str, line: str) -> str:
    """A box with a line around it."""
    return f'<rect x="{x:.1f}" y="{y:g}" width="{width:.1f}" height="{height:g}" rx="2" fill="{fill}" stroke="{line}"/>'


def text_width(text: str, size: float) -> float:
    """About how wide a text is: Chinese characters are as wide as they are high."""
    return size * sum(1.0 if unicodedata.east_asian_width(letter) in "WF" else 0.6 for letter in text)
