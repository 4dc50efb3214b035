"""`shoal report`: a page about one finished run."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from shoal.cli import text
from shoal.cli.browser import open_page
from shoal.cli.command import Command, Given
from shoal.cli.findings import show_findings
from shoal.config.flags import Flags


@dataclass(frozen=True)
class ReportFlags(Flags):
    """Where the report goes."""

    out: Path | None = None
    """Folder of the report (default reports/NAME-TIME)."""
    lang: Literal["en", "zh"] = "en"
    """Language of the report."""
    open: bool = False
    """Open the page in a browser."""


def run(given: Given[ReportFlags]) -> int:
    """Write a page about one finished run: numbers, curves, where the time went, settings, environment.

    RUN is a run folder. Nothing is trained, and torch is not needed. `shoal compare` puts several runs side by side.
    """
    from shoal.api.runs import reported
    from shoal.api.settings import MODULE
    from shoal.config.schema import named_code
    from shoal.report.words import page_words

    lang = given.flags.lang
    config, made = reported(Path(given.words[0]), given.flags.out, lang)
    text.show(text.rows(made.numbers))
    show_findings(made.findings, page_words(lang, "shoal.compare"))
    text.show(str(made.page))
    if given.flags.open:
        open_page(made.page)
    own = named_code(config)
    if not any(custom.name.startswith(f"{MODULE}:") for _, custom in own):  # `shoal.fit` gave it objects
        recipe = Path(given.words[0]) / "config.toml"
        text.next_step("shoal", "compare", recipe, *["--trust-code"] * bool(own))
    return 0


COMMAND = Command("report", run, ReportFlags, words="RUN")
