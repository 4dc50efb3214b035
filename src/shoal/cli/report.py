"""`shoal report`: a page about one finished run."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from shoal.cli import text
from shoal.cli.browser import open_page
from shoal.cli.command import Command, Given
from shoal.cli.findings import show_findings
from shoal.config.flags import Flags
from shoal.errors import ConfigError


@dataclass(frozen=True)
class ReportFlags(Flags):
    """Where the report goes."""

    out: Path | None = None
    """Folder of the report (default reports/NAME-TIME)."""
    lang: Literal["en", "zh"] = "en"
    """Language of the report."""
    open: bool = False
    """Open the page in a browser."""
    timeline: bool = False
    """Write no page: show here what each worker did in the median and the slowest step, also of an unfinished run."""


def run(given: Given[ReportFlags]) -> int:
    """Write a page about one finished run: numbers, curves, where the time went, settings, environment.

    RUN is a run folder. Nothing is trained, and torch is not needed. `shoal compare` puts several runs side by side.
    """
    from shoal.api.runs import reported
    from shoal.api.settings import MODULE
    from shoal.config.schema import named_code
    from shoal.report.words import page_words

    lang = given.flags.lang
    if given.flags.timeline:
        return _show_timeline(Path(given.words[0]), given.flags)
    config, made = reported(Path(given.words[0]), given.flags.out, lang)
    text.show(text.rows(made.numbers))
    show_findings(made.findings, page_words(lang, "shoal.compare"))
    text.show(str(made.page))
    if given.flags.open:
        open_page(made.page)
    if not (Path(given.words[0]) / "config.toml").exists():
        text.next_step("shoal", "trace", given.words[0])  # the profile of a program
        return 0
    own = named_code(config)
    if not any(custom.name.startswith(f"{MODULE}:") for _, custom in own):  # `shoal.fit` gave it objects
        recipe = Path(given.words[0]) / "config.toml"
        text.next_step("shoal", "compare", recipe, *["--trust-code"] * bool(own))
    return 0


def _show_timeline(folder: Path, flags: ReportFlags) -> int:
    from shoal.report.timeline import read_timeline
    from shoal.report.timeline_text import as_lines
    from shoal.report.words import page_words

    unused = ["--out"] * (flags.out is not None) + ["--open"] * flags.open
    if unused:
        raise ConfigError(
            f"{unused[0]} has no effect with --timeline, which writes no page", "Leave one out."
        )
    timeline = read_timeline(folder)
    for problem in timeline.problems:
        text.warn(f"warning: {problem}")
    wrap = partial(text.wrapped, indent=0)
    words = page_words(flags.lang)
    text.show("\n".join(as_lines(timeline, words, text.page_width(), text.on_colour, wrap)))
    return 0


COMMAND = Command("report", run, ReportFlags, words="RUN")
