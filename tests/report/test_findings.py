import pytest

from shoal.report.findings import Measured, exactly, higher, inside_run, lower, of_samples, over_seeds


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
        (over_seeds([1.0]), seeds(9.0), "undecided"),
        (over_seeds([1.0, 1.1]), over_seeds([9.0, 9.1]), "undecided"),
        (over_seeds([1.0] * 5), seeds(9.0), "undecided"),
        (exactly(1.0), seeds(9.0), "holds"),
    ],
)
def test_a_difference_counts_only_outside_its_spread(a, b, verdict):
    assert lower(a, b) == verdict
    assert higher(b, a) == verdict


@pytest.mark.parametrize("values", [[0.3], [0.25, 0.35], [0.3, 0.3], [0.3] * 5])
def test_few_or_equal_values_have_no_spread_and_show_none(values):
    for measured in (over_seeds(values), inside_run(values)):
        assert (measured.spread, measured.basis, measured.count) == (0.0, "none", len(values))
        assert f"{measured:.2f}" == "0.30"


def test_an_accuracy_is_uncertain_by_the_number_of_samples():
    assert of_samples(0.9, 2000).spread == pytest.approx(0.0067, abs=1e-4)
    assert of_samples(0.9, 500).spread == pytest.approx(0.0135, abs=2e-4)
    assert of_samples(1.0, 500).spread > 0


def test_an_outlier_of_the_machine_does_not_move_a_step_time():
    steady = inside_run([1.0, 1.1, 1.2, 1.1, 1.0])
    disturbed = inside_run([1.0, 1.1, 1.2, 1.1, 100.0])
    assert steady.value == pytest.approx(disturbed.value)
    assert disturbed.spread < 0.2
    assert disturbed.basis == "steps"


def test_a_unit_changes_value_and_spread_alike():
    assert f"{seeds(0.5, 0.25).scaled(100):.0f} %" == "50 ± 25 %"
