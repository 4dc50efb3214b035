from shoal.report.findings import inside_run
from shoal_labs.lab4.claims import CLAIMS
from shoal_labs.lab4.measure import Lab4Measurements, Rounds, Way
from shoal_labs.lab4.plan import plan_for

(DOES_NOT_PAY,) = (claim for claim in CLAIMS if claim.name == "does_not_pay")


def measurements(**times):
    """Runs that took these times in every round."""
    rounds = {name.replace("_", "-"): Rounds(tuple(each), ()) for name, each in times.items()}
    ways = {name: Way(inside_run(each.step_ms), (), 0, (), 0.0, None) for name, each in rounds.items()}
    return Lab4Measurements(plan_for(3, quick=True, seed=0), {}, 0, ways, {}, {}, rounds)


def test_a_machine_that_became_slower_decides_nothing_by_it():
    """Two runs of the same speed: in the middle of the lab another program started."""
    single = [10.0] * 5 + [20.0] * 6
    gpipe = [10.1, 9.9, 10.0, 10.2, 9.8, 20.1, 19.9, 20.2, 19.8, 20.1, 19.9]
    measured = measurements(single=single, all_cores=single, gpipe=gpipe)
    assert DOES_NOT_PAY.verdict(measured.compared("gpipe", "single")) == "undecided"


def test_what_is_slower_in_every_round_is_slower_however_the_machine_changes():
    single = [10.0] * 5 + [20.0] * 6
    measured = measurements(single=single, all_cores=single, gpipe=[1.1 * each for each in single])
    assert DOES_NOT_PAY.verdict(measured.compared("gpipe", "single")) == "holds"


def test_the_fair_rival_is_the_faster_of_one_core_and_all_cores():
    assert measurements(single=[10.0], all_cores=[99.0]).one_process == "single"
    assert measurements(single=[200.0], all_cores=[99.0]).one_process == "all-cores"
