import math
from types import SimpleNamespace

import pytest

from shoal.report.findings import Measured
from shoal_labs.lab1 import claims
from shoal_labs.lab1.experiment import Sweep, Trial

DETERMINISTIC = next(claim for claim in claims.CLAIMS if claim.name == "deterministic")


@pytest.mark.parametrize(
    ("order", "batch", "verdict"), [(1e-7, 1.0, "holds"), (0.5, 1.0, "fails"), (1e-7, 1e-9, "fails")]
)
def test_a_direction_is_deterministic_up_to_rounding(order, batch, verdict):
    assert DETERMINISTIC.verdict({"order": order, "batch": Measured(batch, 0.1, "seeds", 3)}) == verdict


def swept(training):
    trials = [Trial(10.0**-i, 1.0 if i < training else math.inf) for i in range(6)]
    return Sweep("adam", tuple(trials), 0)


@pytest.mark.parametrize(
    ("adam", "sgd", "verdict"), [(5, 2, "holds"), (1, 4, "fails"), (3, 3, "undecided"), (4, 3, "undecided")]
)
def test_one_candidate_more_decides_nothing(adam, sgd, verdict):
    measured = SimpleNamespace(sweeps={"adam": swept(adam), "sgd": swept(sgd)})
    assert claims.sensitivity(measured).verdict == verdict
