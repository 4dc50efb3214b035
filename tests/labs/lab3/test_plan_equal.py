"""What is compared with one machine: right runs are equal within rounding, on any device, and wrong ones are not."""

from dataclasses import replace

import pytest

from shoal.compare.watch import QuietWatch
from shoal.config.sections.data import SyntheticConfig
from shoal_labs.lab3.claims import CLAIMS
from shoal_labs.lab3.plan import Lab3Plan, Lab3Size
from shoal_labs.runs import Runs
from shoal_labs.words import load_words

SIZE = Lab3Size(1, 1, few_seeds=1, rounds=1, few_rounds=1, timed_steps=4, equal_steps=5)
DATA = SyntheticConfig(samples=320, shape=(1, 28, 28), validation=0.2)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_workers_equal_one_machine_and_without_one_of_their_samples_they_do_not(device, tmp_path):
    """The runs of a plan for a GPU are trained on the CPU here: they are the same sums."""
    plan, workers = Lab3Plan((3,), SIZE, data=DATA, device=device), 3
    alone, together = plan.equal(workers)
    fewer = replace(together, train=replace(together.train, batch_size=alone.train.batch_size - 1))
    runs = Runs(tmp_path, load_words("shoal_labs.lab3", "en"), QuietWatch(), None)
    configs = {"alone": alone, "together": together, "fewer": fewer}
    runs.train_all({name: replace(config, device="cpu") for name, config in configs.items()})
    verdicts = {
        name: CLAIMS[0].verdict({"worst": runs.weight_difference(name, "alone")})
        for name in ("together", "fewer")
    }
    assert verdicts == {"together": "holds", "fewer": "fails"}
