"""The experiment on batch sizes: its numbers, and that its claims can come out either way."""

from types import SimpleNamespace

import pytest

from shoal.config.sections.data import SyntheticConfig
from shoal_labs.lab3.batches import BATCH_SIZES, LARGEST, SMALLEST, Batch, compare_batches
from shoal_labs.lab3.claims import CLAIMS
from shoal_labs.lab3.plan import Lab3Plan, Lab3Size

BY_NAME = {claim.name: claim for claim in CLAIMS}
SIZE = Lab3Size(1, 2, few_seeds=1, rounds=1, few_rounds=1, timed_steps=4, equal_steps=3)
GOOD, MIDDLING, POOR = [0.94, 0.945, 0.935, 0.94], [0.86, 0.865, 0.855, 0.87], [0.5, 0.52, 0.47, 0.5]
VAGUE = [0.99, 0.2, 0.9, 0.1]


def test_the_same_seeds_give_the_same_numbers_and_the_smallest_batch_has_one_rate():
    plan = Lab3Plan((2,), SIZE, data=SyntheticConfig(samples=400, validation=0.2))
    found = compare_batches(plan)
    assert found == compare_batches(plan)
    assert list(found) == list(BATCH_SIZES)
    assert found[SMALLEST].fixed == found[SMALLEST].scaled
    assert found[LARGEST].fixed != found[LARGEST].scaled
    assert BY_NAME["variance_falls"].judge(SimpleNamespace(batches=found)).verdict == "holds"


def batches(variances=(4.0, 1.0, 0.25), small=GOOD, fixed=POOR, scaled=MIDDLING):
    accuracies = [(small, small), (MIDDLING, MIDDLING), (fixed, scaled)]
    return SimpleNamespace(
        batches={
            size: Batch((variance,) * 4, tuple(fixed), tuple(scaled), 100)
            for size, variance, (fixed, scaled) in zip(BATCH_SIZES, variances, accuracies, strict=True)
        }
    )


@pytest.mark.parametrize(
    ("claim", "measured", "verdict"),
    [
        ("variance_falls", batches((4.0, 1.1, 0.22)), "holds"),
        ("variance_falls", batches((4.0, 1.0, 0.5)), "fails"),
        ("variance_falls", batches((4.0, 4.0, 4.0)), "fails"),
        ("large_batch_costs", batches(), "holds"),
        ("large_batch_costs", batches(small=POOR, fixed=GOOD), "fails"),
        ("large_batch_costs", batches(fixed=VAGUE), "undecided"),
        ("scaled_rate_helps", batches(), "holds"),
        ("scaled_rate_helps", batches(fixed=MIDDLING, scaled=POOR), "fails"),
        ("scaled_rate_helps", batches(scaled=VAGUE), "undecided"),
    ],
)
def test_what_larger_batches_do_is_decided_by_the_numbers(claim, measured, verdict):
    assert BY_NAME[claim].judge(measured).verdict == verdict
