import pytest
from outcomes import OUTCOMES_OF_A_COMPARISON, assert_complete, assert_says, cases_of

from shoal.report.paired import by_seeds
from shoal_labs.lab4 import findings
from shoal_labs.page.analysis import judgement
from shoal_labs.words import load_words

LOWER, HIGHER, SAME = (by_seeds(*each) for each in OUTCOMES_OF_A_COMPARISON)
ROUNDS = (-0.01, 0.0, 0.01) * 5
BUBBLES = {1: [0.66 + off for off in ROUNDS], 4: [0.35 + off for off in ROUNDS]}
IDEAL = {1: 0.66, 4: 0.33}

OUTCOMES = {
    findings.equals_one_machine: {
        "holds": [({"rpc": 1e-7, "1f1b": 0.0},)],
        "fails": [({"rpc": 1e-7, "1f1b": 1e-2},)],
    },
    findings.memory_is_divided: {
        "holds": [(1000, {"rpc": 900, "tensor": 400})],
        "fails": [(1000, {"rpc": 1000, "tensor": 400})],
    },
    findings.fewer_activations: {
        "holds": [((4, 4, 4), (3, 2, 1))],
        "fails": [((2, 2), (2, 2)), ((4, 4), (1, 5))],
    },
    findings.overlap_shortens: {
        "holds": [(HIGHER, 2.0)],
        "fails": [(LOWER, 2.0)],
        "undecided": [(SAME, 2.0)],
    },
    findings.zero_bubble_shortens: {
        "holds": [(HIGHER, 1.2)],
        "fails": [(LOWER, 1.2)],
        "undecided": [(SAME, 1.2)],
    },
    findings.microbatches_shorten_rpc: {
        "holds": [(HIGHER, 4, (0.1, 3.0, 1.0))],
        "fails": [(LOWER, 4, (0.1, 3.0, 1.0))],
        "undecided": [(SAME, 4, (0.1, 3.0, 1.0))],
    },
    findings.bubble_falls: {
        "holds": [(HIGHER, (1, 8))],
        "fails": [(LOWER, (1, 8))],
        "undecided": [(SAME, (1, 8))],
    },
    findings.bubble_as_formula: {
        "holds": [(BUBBLES, 3, IDEAL)],
        "fails": [({**BUBBLES, 4: [0.7 + off for off in ROUNDS]}, 3, IDEAL)],
        "undecided": [({**BUBBLES, 4: [0.5 + 20 * off for off in ROUNDS]}, 3, IDEAL)],
    },
    findings.balanced_cut_fastest: {
        "holds": [(LOWER, "conv2", "fc1", {"conv2": 3.0, "fc1": 9.0})],
        "fails": [(HIGHER, "conv2", "fc1", {"conv2": 3.0, "fc1": 9.0})],
        "undecided": [(SAME, "conv2", "fc1", {"conv2": 3.0, "fc1": 9.0})],
    },
    findings.does_not_pay: {
        "holds": [(HIGHER, "gpipe")],
        "fails": [(LOWER, "gpipe")],
        "undecided": [(SAME, "gpipe")],
    },
}


@pytest.mark.parametrize(("finding", "verdict", "args"), cases_of(OUTCOMES))
@pytest.mark.parametrize("lang", ["en", "zh"])
def test_every_finding_can_come_out_either_way_and_says_so(finding, verdict, args, lang):
    assert_says(finding, verdict, args, "shoal_labs.lab4", lang)


def test_every_finding_has_its_words_and_every_explanation_its_case():
    assert_complete(OUTCOMES, "shoal_labs.lab4")


def test_the_slowest_stage_bounds_what_overlap_gains():
    even, uneven = findings.overlap_bound([1.0, 1.0], 10**6), findings.overlap_bound([0.96, 0.04], 10**6)
    assert even == pytest.approx(2.0, rel=1e-5)
    assert uneven == pytest.approx(1 / 0.96, rel=1e-5)  # lenet's convolutions: hardly anything to gain


@pytest.mark.parametrize(
    ("lang", "shares", "bubbles", "fastest"),
    [
        ("en", "90 % (RPC), 40 % (pipeline, 1F1B)", "1: 66 ± 1 % (67 %), 4: 35 ± 1 % (33 %)", "zero bubble"),
        ("zh", "90 %（RPC）、40 %（流水线，1F1B）", "1：66 ± 1 %（67 %）、4：35 ± 1 %（33 %）", "零气泡"),
    ],
)
def test_ways_have_the_names_of_the_language_and_numbers_its_punctuation(lang, shares, bubbles, fastest):
    words = load_words("shoal_labs.lab4", lang)
    held = findings.memory_is_divided(1000, {"rpc": 900, "1f1b": 400})
    assert shares in judgement(held, words).numbers
    assert bubbles in judgement(findings.bubble_as_formula(BUBBLES, 3, IDEAL), words).numbers
    said = judgement(findings.does_not_pay(HIGHER, "zero-bubble"), words).numbers
    assert fastest in said
    assert "zero-bubble" not in said
