import pytest
from outcomes import assert_complete, assert_says, cases_of

from shoal.labs.optimise.compression import claims
from shoal.report.findings import Measured


def num(value, spread=0.1):
    return Measured(value, spread, "steps", 30)


LOW, NEAR, HIGH = num(1.0), num(1.1), num(5.0)
SENT = {"none": 400, "sign": 13}
PAIRS = [("20mbit", "int8"), ("loopback", "int8")]
BELOW = dict(zip(PAIRS, (True, False), strict=True))

OUTCOMES = {
    claims.bytes_as_declared: {"holds": [(SENT, SENT)], "fails": [(SENT, {"none": 400, "sign": 14})]},
    claims.pays_on_a_slow_link: {
        "holds": [(HIGH, LOW, "sign")],
        "fails": [(LOW, HIGH, "sign")],
        "undecided": [(NEAR, LOW, "sign")],
    },
    claims.not_on_a_fast_link: {
        "holds": [(LOW, HIGH, "fp16")],
        "fails": [(HIGH, LOW, "fp16")],
        "undecided": [(LOW, NEAR, "fp16")],
    },
    claims.fewest_bytes_win: {
        "holds": [(LOW, HIGH, "powersgd", "sign")],
        "fails": [(HIGH, LOW, "powersgd", "sign")],
        "undecided": [(LOW, NEAR, "powersgd", "sign")],
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
        "holds": [((0.940, 0.942), {"int8": (0.941, 0.942), "sign": (0.937, 0.939)})],
        "fails": [((0.940, 0.942), {"int8": (0.941, 0.942), "sign": (0.90, 0.902)})],
        "undecided": [((0.940, 0.942), {"sign": (0.940, 0.915)}), ((0.94,), {"sign": (0.94,)})],
    },
    claims.feedback_is_needed: {
        "holds": [((0.94, 0.93), (0.90, 0.891), 0.01)],
        "fails": [((0.90, 0.891), (0.94, 0.93), 0.01)],
        "undecided": [((0.94, 0.90), (0.93, 0.92), 0.01)],
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
            ({"20mbit": num(10.0, 5.0)}, {"20mbit": num(10.0, 5.0)}),  # the best codec itself
            ({"20mbit": num(10.1, 0.01)}, {"20mbit": num(10.0, 0.01)}),
        ],
        "fails": [({"20mbit": HIGH, "loopback": LOW}, {"20mbit": LOW, "loopback": LOW})],
        "undecided": [({"20mbit": num(10.0, 1.0)}, {"20mbit": num(9.8, 1.0)})],
    },
}


@pytest.mark.parametrize(("finding", "verdict", "args"), cases_of(OUTCOMES))
@pytest.mark.parametrize("lang", ["en", "zh"])
def test_every_finding_can_come_out_either_way_and_says_so(finding, verdict, args, lang):
    assert_says(finding, verdict, args, "shoal.labs.optimise", lang)


def test_every_finding_has_its_words_and_every_explanation_its_case():
    assert_complete(OUTCOMES, "shoal.labs.optimise", claims)
