"""What is compared with one machine: right rules equal it within rounding on any device, the mean of means does not."""

from dataclasses import replace

import pytest

from shoal.compare.watch import QuietWatch
from shoal.config.conditions import shares_of
from shoal.config.sections.data import SyntheticConfig
from shoal.config.sections.model import MlpConfig
from shoal.data.division.order import shares_by_weight
from shoal_labs.claims import Bound
from shoal_labs.lab2.claims import CLAIMS
from shoal_labs.lab2.measure import weight_differences
from shoal_labs.lab2.plan import QUICK, SLOW, Lab2Plan, plan_for
from shoal_labs.runs import Runs
from shoal_labs.words import load_words

DATA, MODEL = SyntheticConfig(samples=320, shape=(1, 8, 8)), MlpConfig(hidden=(16,))


@pytest.mark.parametrize(("device", "workers"), [("cpu", 2), ("cuda", 3)])
def test_the_right_rules_equal_one_machine_and_the_mean_of_uneven_batches_does_not(device, workers, tmp_path):
    """The runs of a plan for a GPU are trained on the CPU here: they are the same sums."""
    plan = Lab2Plan(workers, replace(QUICK, equal_steps=4), data=DATA, dense_model=MODEL, device=device)
    equal = {name: config for name, config in plan.runs().items() if name.startswith("equal-")}
    runs = Runs(tmp_path, load_words("shoal_labs.lab2", "en"), QuietWatch(), None)
    runs.train_all({name: replace(config, device="cpu") for name, config in equal.items()})
    apart = weight_differences(plan, runs)
    exact, weighted, means = (apart[f"uneven-{way}"] for way in ("exact", "weighted_mean", "mean"))
    bounds = {claim.name: claim for claim in CLAIMS if isinstance(claim, Bound)}
    right = bounds["exact_on_uneven"]
    assert right.verdict({"exact": exact, "weighted": weighted}) == "holds"
    assert bounds["mean_of_means_differs"].verdict({"difference": means}) == "holds"
    # Neither rule could be the mean of means without being found out.
    assert right.verdict({"exact": means, "weighted": weighted}) == "fails"
    assert right.verdict({"exact": exact, "weighted": means}) == "fails"
    assert apart["exact"] < 1e-5


@pytest.mark.parametrize("workers", [2, 3, 4, 7, 15])
def test_on_a_gpu_every_share_is_made_of_the_parts_in_which_one_machine_computes(workers):
    plan = replace(plan_for(workers, quick=True, first_seed=0), device="cuda")
    runs = plan.runs()
    alone = runs[plan.uneven_single].train
    for way in ("exact", "weighted_mean", "mean"):
        config = runs[f"equal-uneven-{way}"]
        assert config.train == alone
        shares = shares_by_weight(alone.batch_size, shares_of(config.launch.bottleneck, workers))
        others = [share for rank, share in enumerate(shares) if rank != SLOW]
        assert set(others) == {alone.micro_batch}
        assert shares[SLOW] == 4 * sum(others)
    even, one = runs["equal-exact"].train, runs["equal-single"].train
    assert even == one
    assert one.batch_size == workers * one.micro_batch


def test_on_a_cpu_everything_is_compared_with_one_plain_run():
    plan = plan_for(3, quick=True, first_seed=0)
    runs = plan.runs()
    assert plan.uneven_single == "equal-single"
    plain = runs["equal-sum"].train
    assert {config.train for name, config in runs.items() if name.startswith("equal-")} == {plain}
    assert plain.micro_batch > plain.batch_size
