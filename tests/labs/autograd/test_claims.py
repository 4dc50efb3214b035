from types import SimpleNamespace

import pytest
from outcomes import STEADY, rounds

from shoal_labs.autograd import claims
from shoal_labs.timing.contest import Contest

BOUNDS = {claim.name: claim for claim in claims.CLAIMS}


@pytest.mark.parametrize(
    ("claim", "holds", "fails"),
    [
        ("by_hand", {"error": 1e-7, "slopes": 1e-9}, {"error": 0.0, "slopes": 0.1}),
        ("same_gradients", {"mlp": 0.0, "lenet": 1e-7}, {"mlp": 0.1, "lenet": 0.0}),
        ("branches", {"dynamic": True, "static": True}, {"dynamic": True, "static": False}),
        (
            "peak",
            {"mlp_dynamic": 10, "mlp_static": 9, "lenet_dynamic": 10, "lenet_static": 10},
            {"mlp_dynamic": 10, "mlp_static": 9, "lenet_dynamic": 10, "lenet_static": 11},
        ),
        ("planning", {"mlp_part": 0.4, "lenet_part": 0.4}, {"mlp_part": 0.4, "lenet_part": 0.5}),
        ("passes", {"operations": 50.0, "bytes": 10.0}, {"operations": 10.0, "bytes": 50.0}),
    ],
)
def test_what_is_counted_holds_or_fails(claim, holds, fails):
    assert (BOUNDS[claim].verdict(holds), BOUNDS[claim].verdict(fails)) == ("holds", "fails")


def paying(cold_ms, dynamic_ms, static_ms, noise=1.0):
    """Measurements of compiling and of steps, of which noise falls on the dynamic ones."""
    wobble = [1 + noise * 0.01 * (-1) ** number for number in range(len(STEADY))]
    dynamic = [1e-3 * each * extra for each, extra in zip(rounds(dynamic_ms), wobble, strict=True)]
    step = Contest({"dynamic": tuple(dynamic), "static": tuple(1e-3 * each for each in rounds(static_ms))})
    return SimpleNamespace(networks={"mlp": SimpleNamespace(cold_ms=cold_ms, step=step)})


@pytest.mark.parametrize(
    ("measured", "verdict"),
    [
        (paying(rounds(50.0), 2.0, 1.0), "holds"),
        (paying(rounds(50.0), 1.0, 2.0), "fails"),
        (paying(rounds(500.0), 2.0, 1.0), "fails"),
        (paying(rounds(95.0), 2.0, 1.0, noise=9), "undecided"),
        (paying([50.0], 2.0, 1.0), "undecided"),
    ],
)
def test_compiling_pays_within_a_hundred_steps_or_not(measured, verdict):
    assert claims.pays(measured).verdict == verdict


def test_the_time_of_compiling_is_the_median_as_in_the_text_above():
    numbers = claims.pays(paying([10.0, 11.0, 12.0, 90.0], 4.0, 2.0, noise=0)).numbers
    assert (numbers["compile"].value, numbers["steps"]) == (11.5, 6)


def test_a_compilation_that_saves_nothing_is_never_paid_for():
    assert claims.pays(paying(rounds(50.0), 1.0, 2.0)).numbers["steps"] == float("inf")
    assert claims.pays(paying(rounds(50.0), 4.0, 2.0, noise=0)).numbers["steps"] == 25
