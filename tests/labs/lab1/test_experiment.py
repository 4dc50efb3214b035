import math

import pytest

from shoal.errors import DivergedError
from shoal_labs.lab1.experiment import sweep


def bowl(best):
    return lambda rate: 1 + abs(math.log10(rate / best))


def test_the_best_inside_the_grid_is_chosen_at_once():
    result = sweep("sgd", [0.01, 0.1, 1.0], bowl(0.1))
    assert (result.best.rate, result.extended, result.at_edge) == (0.1, 0, False)


@pytest.mark.parametrize(
    ("best", "rates"), [(3.0, [0.1, 0.3, 1.0, 3.0, 10.0]), (0.03, [0.01, 0.03, 0.1, 0.3, 1.0])]
)
def test_a_best_at_the_edge_extends_the_grid_once(best, rates):
    result = sweep("sgd", [0.1, 0.3, 1.0], bowl(best))
    assert [trial.rate for trial in result.trials] == pytest.approx(rates)
    assert (result.best.rate, result.extended, result.at_edge) == (pytest.approx(best), 2, False)


def test_a_best_still_at_the_edge_is_warned_about():
    result = sweep("sgd", [0.1, 0.3, 1.0], bowl(1e4))
    assert result.extended == 2
    assert result.at_edge


def test_a_rate_that_diverges_is_never_chosen():
    result = sweep("sgd", [0.1, 0.3, 1.0], lambda rate: math.inf if rate > 0.2 else 2.0)
    assert result.best.rate <= 0.1
    assert [trial.diverged for trial in result.trials if trial.rate > 0.2] == [True, True]


def test_when_all_diverge_it_is_said():
    with pytest.raises(DivergedError, match="sgd diverges at every learning rate from 0.1 to 1"):
        sweep("sgd", [0.1, 1.0], lambda rate: math.inf)


def test_rates_that_train_come_near_the_best():
    assert (
        sweep(
            "sgd", [0.01, 0.1, 1.0, 10.0], {0.01: 1.9, 0.1: 1.0, 1.0: 2.1, 10.0: math.inf}.get
        ).rates_that_train()
        == 2
    )
