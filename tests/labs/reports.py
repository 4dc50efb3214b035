"""What the tests of all labs look at: a finished report, and the progress that was reported while it was made."""

import csv
import re
from pathlib import PurePosixPath

import pytest

from shoal.compare.watch import QuietWatch
from shoal.report.canvas import Drawing
from shoal_labs.frame import run_plan
from shoal_labs.page.pictures import Pictures, Svg
from shoal_labs.words import load_words

SECTIONS = ("principle", "code", "setup", "results", "analysis")
VERDICTS = ("holds", "fails", "undecided")


class Listening(QuietWatch):
    def __init__(self):
        self.lines = []

    def say(self, line):
        self.lines.append(line)


def undrawn(words, draws):
    """Figures without their pictures: drawing takes longer than the training of a test."""
    return Pictures(
        {
            name: draw.draw(words) if isinstance(draw, Svg) else Drawing(b"", b"", "", "")
            for name, draw in draws.items()
        }
    )


def again_in_chinese(lab, plan, folder, earlier, *trainers):
    """The same report in the other language, from the runs of an earlier one: training again would fail the test."""

    def train(*_):
        raise AssertionError("trained again")

    with pytest.MonkeyPatch.context() as patch:
        for name in ("shoal_labs.student.host.launch_run", "shoal_labs.timing.turns.launch_run", *trainers):
            patch.setattr(name, train)
        patch.setattr("shoal_labs.frame.draw_all", undrawn)
        words = load_words(lab.package, "zh")
        return run_plan(lab, plan, folder, f"shoal lab {lab.number}", words, QuietWatch(), earlier)


def rows(folder, name):
    with (folder / "tables" / f"{name}.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def findings_in(folder):
    """The findings of a report: claim, verdict, and the numbers by name, as the CSV has them."""
    found = {}
    for row in rows(folder, "findings"):
        finding = found.setdefault(
            row["finding"], {"claim": row["claim"], "verdict": row["verdict"], "numbers": {}}
        )
        finding["numbers"][row["number"]] = row["value"]
    return list(found.values())


def text_of(folder):
    return (folder / "report.md").read_text(encoding="utf-8")


def assert_whole(folder, words):
    """Every section of the course, no place left empty, every figure there."""
    text = text_of(folder)
    for section in SECTIONS:
        assert f"## {words(f'{section}.heading')}" in text
    prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    assert "{" not in prose
    assert "pyright" not in text
    shown = re.findall(r"!\[.*?\]\((.*?)\)", text)
    for path in shown:
        assert (folder / path).exists()
    drawn = {path.stem for path in (folder / "figures").glob("*")}
    assert drawn == {PurePosixPath(path).stem for path in shown}, "a figure that no place shows"


def assert_judged(outcome, words, except_for=frozenset(), claims=()):
    """Every claim of the lab, on the terminal and in the table, each with a verdict.

    Findings in `except_for` depend on the machine or the plan.
    """
    table = findings_in(outcome.folder)
    found = {row["claim"] for row in table}
    assert len(outcome.findings) == len(table)
    assert found ^ {claim.name for claim in claims} <= except_for
    assert {row["verdict"] for row in table} <= set(VERDICTS)
    assert {verdict for verdict, _ in outcome.findings} <= {words(f"verdict.{v}") for v in VERDICTS}
