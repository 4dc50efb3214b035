"""`shoal report`: a page about one finished run."""

from dataclasses import dataclass
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


def run(given: Given[ReportFlags]) -> int:
    """Write a page about one finished run: numbers, curves, where the time went, settings, environment.

    RUN is a run folder. Nothing is trained, and torch is not needed. `shoal compare` puts several runs side by side.
    """
    path = Path(given.words[0])
    if not path.is_dir():
        raise ConfigError(f"no run folder {path}", "Runs are in runs/NAME.")

    from shoal.api.settings import MODULE
    from shoal.compare.comparison import compare
    from shoal.compare.one_run import findings
    from shoal.compare.run_report import numbers_of, write_run_report
    from shoal.config.schema import named_code
    from shoal.labs.folder import claimed, report_folder
    from shoal.labs.words import load_words

    words = load_words("shoal.compare", given.flags.lang)
    found = compare([path])
    folder = report_folder(str(given.flags.out or ""), path.resolve().name)
    with claimed(folder):
        write_run_report(folder, found, words)
    text.show(text.rows(numbers_of(found.entries[0], words)))
    show_findings(findings(found, words), words)
    text.show(str(folder / "report.html"))
    if given.flags.open:
        open_page(folder / "report.html")
    own = named_code(found.entries[0].config)
    if not any(custom.name.startswith(f"{MODULE}:") for _, custom in own):  # `shoal.fit` gave it objects
        text.next_step("shoal", "compare", path / "config.toml", *["--trust-code"] * bool(own))
    return 0


COMMAND = Command("report", run, ReportFlags, words="RUN")
