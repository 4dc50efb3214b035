"""The live page of a run: parts of HTML that replace their predecessors when they change.

Figures, tables and findings are the blocks of reports, drawn and styled by the same functions.
"""

from collections.abc import Sequence
from html import escape
from importlib import resources
from pathlib import Path, PurePosixPath

from shoal.printable import printable
from shoal.report.curve_svg import drawings_of as curve_drawings
from shoal.report.curves import Line, Panel, Style
from shoal.report.document import Block, Bullets, Figure, Heading, Judgement, Table
from shoal.report.html import LANGUAGE_TAGS, inline, rendered
from shoal.report.svg import for_page
from shoal.report.timeline_svg import drawings_of
from shoal.report.words import page_words
from shoal.watch.follow import FollowedRun
from shoal.watch.lines import COLUMNS, cells_of, log_lines, numbers_of, slow_sentences
from shoal.watch.snapshot import SMOOTHED_OVER, Curves, Snapshot, snapshot, timeline_of
from shoal.words import Words

MOST_LINES = 60
"""Of the log."""
PARTS = ("state", "problems", "slow", "loss", "workers", "timeline", "speed", "log")
"""The parts of the page, in their order."""


class LivePage:
    """The page of a run, and of an earlier one beside it."""

    def __init__(self, run: Path, beside: Path | None, lang: str) -> None:
        self._run = FollowedRun(run)
        self._beside = FollowedRun(beside) if beside else None
        self._words = page_words(lang, "shoal.watch")
        self._slow_since: dict[int, tuple[int, float]] = {}
        self._timeline: tuple[int, str] | None = None
        self.parts: dict[str, str] = {}
        """The HTML of each part."""

    def refresh(self) -> None:
        """Read what is new, and draw the parts again."""
        for each in filter(None, (self._run, self._beside)):
            each.read()
        now, words = snapshot(self._run), self._words
        other = snapshot(self._beside).curves if self._beside else None
        slow = {row.rank: self._slow_since.get(row.rank, (now.steps, row.slower)) for row in now.slow}
        self._slow_since |= slow
        lines = log_lines(now, self._slow_since, words)[: -MOST_LINES - 1 : -1]
        judged = [
            Judgement("fails", words("slow.word"), claim, numbers)
            for claim, numbers in slow_sentences(now, words)
        ]
        blocks: dict[str, Sequence[Block]] = {
            "problems": [Bullets(now.problems)] if now.problems else [],
            "slow": judged,
            "loss": _loss(now.curves, other, words),
            "workers": [Heading(words("workers.title")), _workers(now, words)],
            "speed": _speed(now.curves, other, words),
            "log": [Heading(words("section.log"))],
        }
        parts = {name: rendered(own) for name, own in blocks.items()}
        parts["state"], parts["timeline"] = _state(now, other, words), self._drawn_timeline(now)
        parts["log"] += _listed(lines) if lines else f"<p>{inline(words('watch.empty'))}</p>"
        self.parts = {name: printable(parts[name]) for name in PARTS}

    def _drawn_timeline(self, now: Snapshot) -> str:
        """The timeline of the newest step with spans; drawn again only for another step."""
        step, words = now.timeline_step, self._words
        if step is not None and (self._timeline is None or self._timeline[0] != step):
            found = timeline_of(self._run, step)
            if found is not None:
                wide, narrow = map(for_page, drawings_of({"newest": found}, words))
                title, caption = words("section.timeline"), words("figure.timeline_caption")
                self._timeline = step, rendered([Heading(title), _figure(wide, narrow, caption, title)])
        return self._timeline[1] if self._timeline else ""

    def html(self) -> str:
        """The whole page, with the parts as they are now: also without its script it shows the run."""
        words, name = self._words, self._run.folder.path.resolve().name
        sections = "\n".join(
            f'<section id="{part}"{_LIVE.get(part, "")}>{self.parts.get(part, "")}</section>'
            for part in PARTS
        )
        said = {key: words(f"watch.{key}", time="{time}") for key in ("lost", "refused", "ended", "held")}
        data = " ".join(f'data-{key}="{escape(sentence)}"' for key, sentence in said.items())
        title = escape(words("watch.title", name=name))
        return printable(
            f'<!doctype html>\n<html lang="{LANGUAGE_TAGS.get(words.lang, words.lang)}">\n<head>\n'
            '<meta charset="utf-8">\n<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f'<meta name="description" content="{escape(words("watch.description"))}">\n<title>{title}</title>\n'
            '<link rel="icon" href="data:,">\n<link rel="stylesheet" href="page.css">\n'
            '<script src="timeline.js" defer></script>\n<script src="watch.js" defer></script>\n</head>\n'
            f"<body>\n<main {data}>\n<h1>{title}</h1>\n"
            f'<p id="connection" role="status" hidden></p>\n{sections}\n'
            f"<noscript><p>{inline(words('watch.no_script'))}</p></noscript>\n</main>\n</body>\n</html>\n"
        )


_LIVE = {"slow": ' aria-live="polite"', "problems": ' aria-live="polite"'}


def files() -> dict[str, tuple[str, str]]:
    """The other files of the page: the kind of each, and what is in it."""

    def text(package: str, name: str) -> str:
        return (resources.files(package) / name).read_text(encoding="utf-8")

    style = text("shoal.report", "page.css") + text("shoal.watch", "watch.css")
    return {
        "page.css": ("text/css", style),
        "timeline.js": ("text/javascript", text("shoal.report", "timeline.js")),
        "watch.js": ("text/javascript", text("shoal.watch", "watch.js")),
    }


def _state(now: Snapshot, other: Curves | None, words: Words) -> str:
    """The numbers of the run as tiles, the state first, and a bar for the steps."""
    tiles = {words("state.label"): words(f"state.{now.state}"), **numbers_of(now, words)}
    rows = "".join(
        f"<div{_TONES.get(now.state, '') if place == 0 else ''}><dt>{inline(name)}</dt><dd>{inline(value)}</dd></div>"
        for place, (name, value) in enumerate(tiles.items())
    )
    done = min(1.0, now.steps / now.total_steps) if now.total_steps else 0.0
    label = escape(words("tile.step"))
    bar = f'<progress max="1" value="{done:.4f}" aria-label="{label}"></progress>' if now.total_steps else ""
    beside = (
        f'<p class="beside">{inline(words("watch.beside", name=escape_marks(other.name)))}</p>'
        if other
        else ""
    )
    return f'<dl class="tiles">{rows}</dl>{bar}{beside}'


_TONES = {
    "training": ' class="good"', "evaluating": ' class="good"', "finished": ' class="good"',
    "failed": ' class="bad"', "gone": ' class="bad"',
}  # fmt: skip


def escape_marks(text: str) -> str:
    """A name without the signs that mark code and strong words."""
    return text.replace("`", "'").replace("**", "* *")


def _listed(lines: Sequence[str]) -> str:
    items = "\n".join(f"<li>{escape(line)}</li>" for line in lines)
    return f'<ol class="log" tabindex="0" reversed>\n{items}\n</ol>'


def _workers(now: Snapshot, words: Words) -> Table:
    steps = max((row.shares.steps for row in now.workers if row.shares), default=0)
    header = [words(f"workers.{column}") for column in COLUMNS]
    rows = [cells_of(row, words) for row in now.workers]
    return Table(words("workers.caption", steps=steps), header, rows, frozenset(range(2, len(COLUMNS))))


def _loss(own: Curves, other: Curves | None, words: Words) -> list[Block]:
    if not len(own.steps):
        return []
    lines: list[Line] = []
    for curves, loss_colour, validation_colour in ((other, "grey", "grey"), (own, "blue", "vermilion")):
        if curves is None:
            continue

        def name(what: str, curves: Curves = curves) -> str:
            said = words(f"figure.{what}", count=SMOOTHED_OVER)
            return words("figure.of_run", what=said, name=curves.name) if curves is other else said

        if len(curves.steps):
            raw = curves.raw if curves is own else None
            lines.append(Line(Style(name("training"), loss_colour), curves.steps, curves.loss, raw=raw))
        if len(curves.validation):
            style = Style(name("validation"), validation_colour, "dashed", marker="o")
            lines.append(Line(style, curves.validation_steps, curves.validation))
    above_zero = all(line.y.min() > 0 for line in lines) and float(own.raw.min()) > 0
    panel = Panel("", words("figure.steps"), words("figure.loss_label"), lines, log_x=False, log_y=above_zero)
    return [_figure(*curve_drawings(panel), "", words("figure.loss_alt"))]


def _speed(own: Curves, other: Curves | None, words: Words) -> list[Block]:
    lines = [
        Line(Style(curves.name, colour), curves.speed_steps, curves.samples_per_s)
        for curves, colour in ((other, "grey"), (own, "green"))
        if curves is not None and len(curves.speed_steps) > 1
    ]
    if not any(line.style.colour == "green" for line in lines):
        return []
    axes = words("figure.steps"), words("figure.speed_label")
    panel = Panel("", *axes, lines, log_x=False, log_y=False, from_zero=True)
    figure = _figure(*curve_drawings(panel), "", words("figure.speed_alt"))
    return [Heading(words("section.speed")), figure]


def _figure(wide: str, narrow: str, caption: str, alt: str) -> Figure:
    return Figure(PurePosixPath("live.svg"), wide, caption, alt, narrow)
