import pytest

from shoal.labs.lab4.findings import does_not_pay
from shoal.labs.lab4.measure import Measurements, Way
from shoal.labs.lab4.plan import plan_for
from shoal.report.findings import Measured


def way(step_ms):
    return Way(Measured(step_ms, 0.1, "steps", 50), (), 0, (), 0.0, None)


def measurements(first, middle, last):
    """One process took these times in the course of the lab."""
    ways = {
        "single": way(first),
        "reference-1": way(middle),
        "reference-2": way(last),
        "all-cores": way(99.0),
    }
    return Measurements(plan_for(3, quick=True, seed=0), {}, 0, ways, {}, {})


def test_a_machine_that_became_slower_decides_nothing_by_it():
    """Two runs of the same speed, one before and one after another program started."""
    quiet, busy = Measured(10.0, 0.1, "steps", 50), Measured(20.0, 0.1, "steps", 50)
    drifted, steady = measurements(10.0, 20.0, 20.0), measurements(10.0, 10.0, 10.1)
    assert steady.drift == pytest.approx(0.0066, rel=0.1)
    for measured, verdict in ((drifted, "undecided"), (steady, "holds")):
        found = does_not_pay(measured.decisive(quiet), measured.decisive(busy), "gpipe")
        assert found.verdict == verdict


def test_the_fair_rival_is_the_faster_of_one_core_and_all_cores():
    assert measurements(10.0, 10.0, 10.0).one_process == "single"
    assert measurements(200.0, 200.0, 200.0).one_process == "all-cores"
