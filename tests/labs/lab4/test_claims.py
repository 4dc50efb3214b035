from types import SimpleNamespace

import pytest

from shoal_labs.lab4 import claims
from shoal_labs.words import load_words

BOUNDS = {claim.name: claim for claim in claims.CLAIMS}
ROUNDS = (-0.01, 0.0, 0.01) * 5


def bubbles(few, many, noise=1.0):
    """Measurements of the bubble with one micro-batch and with four."""
    plan = SimpleNamespace(workers=3, counted=lambda: {1: "microbatches-1", 4: "1f1b"})
    found = {"microbatches-1": few, "1f1b": many}
    return SimpleNamespace(
        plan=plan,
        rounds={
            name: SimpleNamespace(bubble=[part + noise * off for off in ROUNDS])
            for name, part in found.items()
        },
        pipelined={name: SimpleNamespace(ideal=SimpleNamespace(bubble=part)) for name, part in found.items()},
    )


@pytest.mark.parametrize(
    ("measured", "verdict"),
    [
        (bubbles(0.66, 0.35), "holds"),
        (bubbles(0.66, 0.7), "fails"),
        (bubbles(0.66, 0.5, noise=20), "undecided"),
    ],
)
def test_the_bubble_is_the_formulas_or_not(measured, verdict):
    assert claims.bubble_as_formula(measured).verdict == verdict


@pytest.mark.parametrize(
    ("claim", "holds", "fails"),
    [
        ("equals_one_machine", {"difference": 1e-7, "bound": 1e-5}, {"difference": 1e-2, "bound": 1e-5}),
        ("memory_is_divided", {"one": 1000.0, "most": 900.0}, {"one": 1000.0, "most": 1000.0}),
        ("fewer_activations", {"no_more": True, "fewer": True}, {"no_more": False, "fewer": True}),
    ],
)
def test_what_is_counted_holds_or_fails(claim, holds, fails):
    assert (BOUNDS[claim].verdict(holds), BOUNDS[claim].verdict(fails)) == ("holds", "fails")


def held(**totals):
    """Measurements in which one worker of each way holds so many bytes."""
    ways = {
        name.replace("f1b", "1f1b"): SimpleNamespace(held=[SimpleNamespace(total=n)])
        for name, n in totals.items()
    }
    return SimpleNamespace(ways=ways)


def test_the_worker_that_holds_most_is_compared_with_one_machine():
    finding = BOUNDS["memory_is_divided"].judge(held(single=1000, rpc=900, f1b=300, tensor=1000))
    assert finding.verdict == "fails"
    assert (
        BOUNDS["memory_is_divided"].judge(held(single=1000, rpc=900, f1b=300, tensor=400)).verdict == "holds"
    )


def test_the_slowest_stage_bounds_what_overlap_gains():
    even, uneven = claims.overlap_bound([1.0, 1.0], 10**6), claims.overlap_bound([0.96, 0.04], 10**6)
    assert even == pytest.approx(2.0, rel=1e-5)
    assert uneven == pytest.approx(1 / 0.96, rel=1e-5)  # lenet's convolutions: hardly anything to gain


@pytest.mark.parametrize(
    ("lang", "shares", "shown"),
    [
        ("en", "90 % (RPC), 30 % (pipeline, 1F1B)", "1: 66 ± 1 % (67 %), 4: 35 ± 1 % (33 %)"),
        ("zh", "90 %（RPC）、30 %（流水线，1F1B）", "1：66 ± 1 %（67 %）、4：35 ± 1 %（33 %）"),
    ],
)
def test_ways_have_the_names_of_the_language_and_numbers_its_punctuation(lang, shares, shown):
    words = load_words("shoal_labs.lab4", lang)
    said = (
        BOUNDS["memory_is_divided"].judge(held(single=1000, rpc=900, f1b=300, tensor=400)).numbers["shares"]
    )
    assert words.shown(said).startswith(shares)
    assert words.shown(claims.bubble_as_formula(bubbles(0.66, 0.35)).numbers["bubbles"]) == shown
