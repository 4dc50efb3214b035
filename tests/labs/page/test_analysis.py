from dataclasses import replace

import pytest

from shoal.report.document import Judgement, Paragraph
from shoal.report.findings import SPREADS, Finding, Pairs
from shoal_labs.page.analysis import analysis, judgement
from shoal_labs.words import Words, load_words


def sinks() -> Finding:
    return Finding("sinks", {"deep": True, "metres": 3}, "fails")


WORDS = Words(
    "en",
    {
        "finding.sinks.claim": "It sinks.",
        "finding.sinks.numbers": "Deep: {deep}; {metres} m.",
        "finding.sinks.holds": "It is heavy.",
        "finding.sinks.fails": "It is {metres} m wide.",
        "verdict.holds": "holds",
        "verdict.fails": "does not hold",
        "answer.yes": "yes",
        "answer.no": "no",
        "analysis.heading": "Analysis",
        "analysis.intro": "Twice: {spreads:g}.",
        "analysis.sea": "The sea",
        "analysis.sea_intro": "Deep.",
        "analysis.summary": "Summary",
        "analysis.counts": "{holds}, {fails}, {undecided}",
    },
)


def test_true_and_false_are_yes_and_no():
    assert judgement(sinks(), WORDS) == Judgement(
        "fails", "does not hold", "It sinks.", "Deep: yes; 3 m.", "It is 3 m wide."
    )


def test_every_section_has_its_findings_and_the_end_counts_them():
    blocks = analysis({"sea": [sinks()]}, WORDS)
    assert Paragraph(f"Twice: {SPREADS:g}.") in blocks
    assert sum(isinstance(block, Judgement) for block in blocks) == 1
    assert blocks[-1] == Paragraph("0, 1, 0")


def test_the_explanation_follows_the_verdict():
    assert judgement(replace(sinks(), verdict="holds"), WORDS).reason == "It is heavy."


@pytest.mark.parametrize(("lang", "sentence"), [("en", "does not hold 1,"), ("zh", "不成立 1 条")])
def test_one_is_counted_without_a_plural(lang, sentence):
    words = load_words("shoal_labs.lab1", lang)
    assert sentence in words("analysis.counts", holds=0, fails=1, undecided=1)


def test_a_paired_comparison_says_how_often_its_sign_was_the_same():
    said = {"analysis.pairs_by_rounds": " {agreeing} of {count}."}
    words = replace(WORDS, sentences={**WORDS.sentences, **said})
    block = judgement(replace(sinks(), pairs=Pairs(14, 15, "rounds")), words)
    assert block.numbers == "Deep: yes; 3 m. 14 of 15."
