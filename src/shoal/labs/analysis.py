"""The analysis of a report: findings by section, each with its verdict, its numbers and the mechanism.

A lab lists its findings as functions by section; a finding's claim has its function's name, and its words stand under
that name: `finding.<claim>.claim`, `.numbers`, `.reason`.
"""

from collections.abc import Callable, Mapping, Sequence

from shoal.labs.words import Words
from shoal.report.document import Block, Heading, Judgement, Paragraph
from shoal.report.findings import SPREADS, Finding

Groups = Mapping[str, Sequence[Callable[..., Finding]]]
"""The sections of an analysis, each with the functions that make its findings."""


def analysis(groups: Groups, findings: Sequence[Finding], words: Words) -> list[Block]:
    """The whole section, with a count of the verdicts at its end."""
    by_claim = {finding.claim: finding for finding in findings}
    blocks: list[Block] = [
        Heading(words("analysis.heading")),
        Paragraph(words("analysis.intro", spreads=SPREADS)),
    ]
    for group, claims in groups.items():
        blocks += [Heading(words(f"analysis.{group}"), 3), Paragraph(words(f"analysis.{group}_intro"))]
        blocks += [judgement(by_claim[claim.__name__], words) for claim in claims]
    counts = {
        verdict: sum(f.verdict == verdict for f in findings) for verdict in ("holds", "fails", "undecided")
    }
    return [*blocks, Heading(words("analysis.summary"), 3), Paragraph(words("analysis.counts", **counts))]


def judgement(finding: Finding, words: Words) -> Judgement:
    """A finding in words; true and false are yes and no."""
    claim = f"finding.{finding.claim}"
    numbers = {
        key: words("answer.yes" if value else "answer.no") if isinstance(value, bool) else value
        for key, value in finding.numbers.items()
    }
    return Judgement(
        finding.verdict,
        words(f"verdict.{finding.verdict}"),
        words(f"{claim}.claim", **numbers),
        words(f"{claim}.numbers", **numbers),
        words(f"{claim}.reason", **numbers),
    )
