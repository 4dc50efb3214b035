import pytest

from shoal.report.findings import Measured, higher, inside_run, lower, over_seeds


def seeds(value, spread=0.1):
    return Measured(value, spread, "seeds", 3)


@pytest.mark.parametrize(
    ("a", "b", "verdict"),
    [
        (seeds(1.0), seeds(2.0), "holds"),
        (seeds(2.0), seeds(1.0), "fails"),
        (seeds(1.0), seeds(1.2), "undecided"),
        (seeds(1.2), seeds(1.0), "undecided"),
        (seeds(1.0, 0.0), seeds(1.0, 0.0), "undecided"),
        (over_seeds([1.0]), over_seeds([9.0]), "undecided"),
        (over_seeds([1.0]), seeds(9.0), "holds"),
    ],
)
def test_a_difference_counts_only_outside_its_spread(a, b, verdict):
    assert lower(a, b) == verdict
    assert higher(b, a) == verdict


def test_a_single_run_claims_no_spread():
    assert over_seeds([0.3]) == Measured(0.3, 0.0, "none", 1)
    assert f"{over_seeds([0.3]):.2f}" == "0.30"


def test_an_outlier_of_the_machine_does_not_move_a_step_time():
    steady = inside_run([1.0, 1.1, 1.2, 1.1, 1.0])
    disturbed = inside_run([1.0, 1.1, 1.2, 1.1, 100.0])
    assert steady.value == pytest.approx(disturbed.value)
    assert disturbed.spread < 0.2
    assert disturbed.basis == "steps"


def test_a_unit_changes_value_and_spread_alike():
    assert f"{seeds(0.5, 0.25).scaled(100):.0f} %" == "50 ± 25 %"
