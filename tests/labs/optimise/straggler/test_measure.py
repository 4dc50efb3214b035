import pytest

from shoal_labs.optimise.straggler.measure import Watched
from shoal_labs.optimise.straggler.updates import Update


def watched(seconds, accuracies, updates=()):
    return Watched([1.0], [1.0], seconds, accuracies, updates, dropped=0)


@pytest.mark.parametrize(
    ("accuracies", "value", "spread"),
    [((0.5, 0.7, 0.9), 2.5, 0.5), ((0.8, 0.8, 0.9), 1.0, 0.5), ((0.9, 0.9, 0.9), 0.875, 0.5)],
)
def test_the_time_to_an_accuracy_is_between_two_epochs_with_half_an_epoch_as_spread(
    accuracies, value, spread
):
    found = watched((1.0, 2.0, 3.0), accuracies).time_to(0.8)
    assert found is not None
    assert (found.value, found.spread) == (pytest.approx(value), spread)


def test_an_accuracy_that_is_not_reached_has_no_time():
    assert watched((1.0, 2.0), (0.5, 0.7)).time_to(0.8) is None


def test_staleness_is_counted_and_is_zero_without_a_server():
    updates = [Update(0, 0, 0, 1, 0), Update(1, 0, 0, 2, 1), Update(0, 1, 1, 3, 1)]
    assert watched((), (), updates).staleness == {0: 1, 1: 2}
    assert watched((), (), updates).mean_staleness == pytest.approx(2 / 3)
    assert watched((), ()).mean_staleness == 0


def test_staleness_is_averaged_over_the_updates_of_each_epoch():
    updates = [Update(0, 0, 0, 1, 4), Update(0, 1, 0, 2, 2), Update(1, 1, 0, 3, 9), Update(0, 2, 0, 4, 1)]
    assert watched((), (), updates).staleness_of([0], epoch_steps=2) == [3.0, 1.0]
    assert watched((), (), updates).staleness_of([1], epoch_steps=2) == [9.0]
