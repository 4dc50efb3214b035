"""Pages as templates: both languages have the same places, and every claim its sentences."""

import re
import string

import pytest
from outcomes import OUTCOMES_OF_A_COMPARISON

from shoal.report.document import Judgement
from shoal.report.findings import Finding, Pairs
from shoal.report.paired import by_seeds
from shoal_labs.catalogue import LABS
from shoal_labs.claims import Bound, Pair, judged
from shoal_labs.frame import load_lab
from shoal_labs.page.pictures import Pictures
from shoal_labs.page.template import Content, Page, pieces
from shoal_labs.student.claims import NAMES
from shoal_labs.words import LANGUAGES

SPECS = {name: spec for name in LABS if (spec := load_lab(name)).content}
SPECS |= {
    f"{name} --solution": spec
    for name, lab in LABS.items()
    if lab.hand_out and (spec := load_lab(name, solution=True)).content
}
VERDICTS = ("holds", "fails", "undecided")


def places(lines):
    """The places in some lines, with their formats."""
    return sorted(
        {(name, form) for line in lines for _, name, form, _ in string.Formatter().parse(line) if name}
    )


def template(spec, lang):
    return list(pieces(spec.template(lang)))


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_all_languages_have_the_same_pieces_and_places(spec):
    first, *others = (template(spec, lang) for lang in LANGUAGES)
    for other in others:
        assert [(each.kind, each.name, each.repeat) for each in other] == [
            (each.kind, each.name, each.repeat) for each in first
        ]
        for mine, theirs in zip(first, other, strict=True):
            if mine.kind not in ("formula", "sh"):
                assert places(mine.lines) == places(theirs.lines), mine
            assert mine.parts.keys() == theirs.parts.keys(), mine
            if mine.kind == "table":
                assert mine.lines[1].count(" | ") == theirs.lines[1].count(" | "), mine


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
@pytest.mark.parametrize("lang", LANGUAGES)
def test_every_claim_has_a_place_and_another_explanation_for_each_verdict(spec, lang):
    sentences = {each.name: each.parts for each in template(spec, lang) if each.kind == "finding"}
    whole = load_lab(spec.number).claims if spec.whole_lab or not spec.more_words else ()
    assert sentences.keys() == {claim.name for claim in whole} | set(NAMES if spec.more_words else ())
    for name, parts in sentences.items():
        reasons = [parts[verdict] for verdict in VERDICTS if verdict in parts]
        assert {"", "numbers", "holds", "fails"} <= parts.keys(), name
        assert len(set(reasons)) == len(reasons), name


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
@pytest.mark.parametrize("lang", LANGUAGES)
def test_a_number_that_a_fraction_bounds_is_not_shown_with_all_its_digits(spec, lang):
    shown = {each.name: each.parts["numbers"] for each in template(spec, lang) if each.kind == "finding"}
    for claim in spec.claims:
        if isinstance(claim, Bound) and claim.name in shown:
            bounded = set(re.findall(r"(\w+) [<>=]+ [\d.]+e-\d+", claim.rule))
            assert not {name for name, form in places([shown[claim.name]]) if not form} & bounded, claim.name


PAIRS = [(name, claim) for name, spec in SPECS.items() for claim in spec.claims if isinstance(claim, Pair)]


@pytest.mark.parametrize(("lab", "claim"), PAIRS, ids=[f"{name}-{claim.name}" for name, claim in PAIRS])
def test_a_comparison_can_come_out_either_way(lab, claim):
    lower, higher, same = (claim.verdict(by_seeds(*each)) for each in OUTCOMES_OF_A_COMPARISON)
    _, sign, _, *margin = claim.rule.split()
    if margin:  # the second number may be lower than the first by no more than a small margin
        assert (lower, higher) == ("holds", "fails")
    else:
        assert (lower, higher, same) == (("holds", "fails") if sign == "<" else ("fails", "holds")) + (
            "undecided",
        )


def page_of(claims, measured, words):
    return Page(Content(), judged(claims, measured), Pictures({}), words, {})


@pytest.mark.parametrize("lang", LANGUAGES)
def test_a_finding_is_added_by_a_row_and_its_sentences(lang):
    claims = (Bound("small", "error <= 1e-6", lambda error: {"error": error}),)
    sentences = "{finding:small}\n: The error is small.\n: numbers: {error:sci}\n: holds: rounding\n: fails: a mistake"
    words = load_lab("1").words(lang)
    for error, verdict, reason in ((1e-7, "holds", "rounding"), (0.5, "fails", "a mistake")):
        document, _ = page_of(claims, error, words).document(f"# A page\n\n{sentences}\n")
        (found,) = (block for block in document.blocks if isinstance(block, Judgement))
        assert (found.verdict, found.reason) == (verdict, reason)
        assert found.numbers == ("1.0 · 10⁻⁷" if error < 1e-6 else "5.0 · 10⁻¹")


def test_a_place_that_the_lab_does_not_fill_is_an_error():
    words = load_lab("1").words("en")
    page = page_of((), None, words)
    for text in (
        "{nothing}",
        "{figure:nothing}\n: a\n: alt: b",
        "{table:nothing}\n: a\n| b |",
        "{finding:nothing}",
    ):
        with pytest.raises(KeyError, match="nothing"):
            page.document(f"# A page\n\n{text}\n")


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
@pytest.mark.parametrize("lang", LANGUAGES)
def test_a_template_has_no_marks_but_those_that_a_page_knows(spec, lang):
    for piece in template(spec, lang):
        if piece.kind not in ("formula", "sh", "text") or piece.kind == "text":
            for line in piece.lines:
                plain = re.sub(r"\*\*.+?\*\*|`[^`]*`", "", line)
                assert not re.search(r"\*[^\s*][^*\n]*\*", plain), line


def test_a_finding_says_yes_and_no_and_how_often_the_sign_was_the_same():
    words = load_lab("1").words("en")
    finding = Finding("sinks", {"deep": True}, "fails", Pairs(14, 15, "rounds"))
    page = Page(Content(), {"sinks": [finding]}, Pictures({}), words, {})
    document, _ = page.document(
        "{finding:sinks}\n: It sinks.\n: numbers: Deep: {deep}.\n: holds: A\n: fails: B\n"
    )
    (found,) = document.blocks
    assert found.numbers == "Deep: yes. Round by round the difference has the same sign in 14 of 15 pairs."


@pytest.mark.parametrize(("lang", "sentence"), [("en", "does not hold 1,"), ("zh", "不成立 1 条")])
def test_one_is_counted_without_a_plural(lang, sentence):
    words = load_lab("1").words(lang)
    assert sentence in words("analysis.counts", holds=0, fails=1, undecided=1)
