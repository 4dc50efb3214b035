"""The analysis of a report: findings by section, each with its verdict, its numbers and the reason for the verdict.

A finding's words are under its name in a lab's word files: `finding.<claim>.claim`, `.numbers`, and one explanation for
each verdict that it can have: `.holds`, `.fails`, `.undecided`. Without the last, the words that all labs share follow:
no cause is given for times that decide nothing.
"""

from collections.abc import Mapping, Sequence
from typing import get_args

from shoal.report.document import Block, Heading, Judgement, Paragraph
from shoal.report.findings import SPREADS, Finding, Verdict
from shoal_labs.words import Words

Findings = Mapping[str, Sequence[Finding]]
"""The findings by section of the analysis."""


def analysis(findings: Findings, words: Words) -> list[Block]:
    """The whole section, with a count of the verdicts at its end."""
    blocks: list[Block] = [
        Heading(words("analysis.heading")),
        Paragraph(words("analysis.intro", spreads=SPREADS)),
    ]
    for section, made in findings.items():
        blocks += [Heading(words(f"analysis.{section}"), 3), Paragraph(words(f"analysis.{section}_intro"))]
        blocks += [judgement(finding, words) for finding in made]
    verdicts = [finding.verdict for made in findings.values() for finding in made]
    counts = {verdict: verdicts.count(verdict) for verdict in get_args(Verdict)}
    return [*blocks, Heading(words("analysis.summary"), 3), Paragraph(words("analysis.counts", **counts))]


def judgement(finding: Finding, words: Words) -> Judgement:
    """A finding in words, with the explanation that follows its verdict. True and false become yes and no."""
    claim = f"finding.{finding.claim}"
    numbers = {
        key: words("answer.yes" if value else "answer.no") if isinstance(value, bool) else value
        for key, value in finding.numbers.items()
    }
    pairs = finding.pairs
    paired = (
        words(f"analysis.pairs_by_{pairs.by}", agreeing=pairs.agreeing, count=pairs.count) if pairs else ""
    )
    return Judgement(
        finding.verdict,
        words(f"verdict.{finding.verdict}"),
        words(f"{claim}.claim", **numbers),
        words(f"{claim}.numbers", **numbers) + paired,
        _reason(finding, words, numbers),
    )


def _reason(finding: Finding, words: Words, numbers: Mapping[str, object]) -> str:
    if finding.other_work:
        return words("analysis.busy", part=finding.other_work)
    key = f"finding.{finding.claim}.{finding.verdict}"
    if finding.verdict == "undecided" and key not in words.sentences:
        return words("analysis.undecided")
    return words(key, **numbers)
