import pytest
from outcomes import assert_complete, assert_says, cases_of, rounds

from shoal.report.paired import by_rounds
from shoal_labs.optimise.compression import claims
from shoal_labs.page.analysis import judgement
from shoal_labs.words import load_words

LOW, NEAR, HIGH = rounds(1.0), rounds(1.0, noise=-2), rounds(5.0)
DENSE, KEPT = (0.940, 0.942, 0.941, 0.943, 0.940), (0.938, 0.941, 0.939, 0.941, 0.939)
LOST = (0.90, 0.902, 0.901, 0.903, 0.899)
UP, DOWN, EVEN = (by_rounds(*pair) for pair in ((HIGH, LOW), (LOW, HIGH), (NEAR, LOW)))
SENT = {"none": 400, "sign": 13}
PAIRS = [("20mbit", "int8"), ("loopback", "int8")]
BELOW = dict(zip(PAIRS, (True, False), strict=True))

OUTCOMES = {
    claims.bytes_as_declared: {"holds": [(SENT, SENT)], "fails": [(SENT, {"none": 400, "sign": 14})]},
    claims.pays_on_a_slow_link: {
        "holds": [(UP, "sign")],
        "fails": [(DOWN, "sign")],
        "undecided": [(EVEN, "sign")],
    },
    claims.not_on_a_fast_link: {
        "holds": [(UP, "fp16")],
        "fails": [(DOWN, "fp16")],
        "undecided": [(EVEN, "fp16")],
    },
    claims.fewest_bytes_win: {
        "holds": [(DOWN, "powersgd", "sign")],
        "fails": [(UP, "powersgd", "sign")],
        "undecided": [(EVEN, "powersgd", "sign")],
    },
    claims.break_even_predicts: {
        "holds": [
            (dict(zip(PAIRS, ("holds", "fails"), strict=True)), BELOW),
            (dict(zip(PAIRS, ("holds", "undecided"), strict=True)), BELOW),
        ],
        "fails": [(dict(zip(PAIRS, ("holds", "holds"), strict=True)), BELOW)],
        "undecided": [(dict.fromkeys(PAIRS, "undecided"), BELOW)],
    },
    claims.accuracy_is_kept: {
        "holds": [(DENSE, {"int8": KEPT, "sign": DENSE})],
        "fails": [(DENSE, {"int8": KEPT, "sign": LOST})],
        "undecided": [
            (DENSE, {"sign": (0.940, 0.915, 0.96, 0.93, 0.95)}),
            ((0.94, 0.95), {"sign": (0.94, 0.95)}),  # two seeds
            (DENSE, {"sign": tuple(each - 0.5 for each in DENSE)}),  # the same loss with every seed
        ],
    },
    claims.feedback_is_needed: {
        "holds": [(DENSE, LOST[::-1], 0.01)],
        "fails": [(LOST[::-1], DENSE, 0.01)],
        "undecided": [(DENSE, KEPT[::-1], 0.01), (DENSE[:2], LOST[:2], 0.01)],
    },
    claims.auto_adapts: {
        "holds": [({"loopback": "none", "20mbit": "sign"}, "loopback", "20mbit", "none")],
        "fails": [
            ({"loopback": "fp16", "20mbit": "sign"}, "loopback", "20mbit", "none"),
            ({"loopback": "none", "20mbit": "none"}, "loopback", "20mbit", "none"),
        ],
    },
    claims.auto_is_near_the_best: {
        "holds": [
            ({"20mbit": NEAR}, {"20mbit": NEAR}),  # the best codec itself
            ({"20mbit": rounds(1.01)}, {"20mbit": LOW}),
        ],
        "fails": [({"20mbit": HIGH, "loopback": LOW}, {"20mbit": LOW, "loopback": LOW})],
        "undecided": [({"20mbit": NEAR}, {"20mbit": LOW})],
    },
}


@pytest.mark.parametrize(("finding", "verdict", "args"), cases_of(OUTCOMES))
@pytest.mark.parametrize("lang", ["en", "zh"])
def test_every_finding_can_come_out_either_way_and_says_so(finding, verdict, args, lang):
    assert_says(finding, verdict, args, "shoal_labs.optimise", lang)


def test_every_finding_has_its_words_and_every_explanation_its_case():
    assert_complete(OUTCOMES, "shoal_labs.optimise", claims)


@pytest.mark.parametrize(
    ("lang", "shown"),
    [("en", "loopback: uncompressed, 20 Mbit/s: sign"), ("zh", "本机回环：不压缩、20 Mbit/s：sign")],
)
def test_links_and_codecs_have_the_names_of_the_language(lang, shown):
    found = claims.auto_adapts({"loopback": "none", "20mbit": "sign"}, "loopback", "20mbit", "none")
    assert shown in judgement(found, load_words("shoal_labs.optimise", lang)).numbers
