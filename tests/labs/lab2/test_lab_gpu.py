"""Lab 2 on a GPU: workers that share it exchange through gloo. Only where one is."""

from dataclasses import replace

import pytest
import torch
from reports import Listening, rows, text_of
from tests.labs.lab2.test_lab import TINY

from shoal.compare.watch import QuietWatch
from shoal.config.sections.data import SyntheticConfig
from shoal_labs.claims import Bound
from shoal_labs.frame import run_plan
from shoal_labs.lab2.claims import CLAIMS
from shoal_labs.lab2.lab import LAB
from shoal_labs.lab2.measure import weight_differences
from shoal_labs.lab2.plan import QUICK, Lab2Plan
from shoal_labs.runs import Runs
from shoal_labs.words import load_words

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(400)]


def test_the_report_times_exchanges_of_the_gpu(tmp_path):
    plan = replace(TINY, device="cuda", timed_by="processes")
    words = load_words(LAB.package, "en")
    outcome = run_plan(LAB, plan, tmp_path / "report", "shoal lab 2 --device cuda", words, Listening())
    assert all(float(row["exchange (ms)"]) > 0 for row in rows(outcome.folder, "exchange"))
    assert {row["as labelled"] for row in rows(outcome.folder, "record")} == {"True"}  # no call was lost
    assert torch.cuda.get_device_name() in text_of(outcome.folder)


def test_uneven_batches_equal_one_machine_in_the_same_parts(tmp_path):
    data = SyntheticConfig(samples=1280, shape=(1, 28, 28))
    plan = Lab2Plan(2, QUICK, data=data, device="cuda")
    runs = Runs(tmp_path, load_words(LAB.package, "en"), QuietWatch(), None)
    runs.train_all({name: config for name, config in plan.runs().items() if name.startswith("equal-")})
    apart = weight_differences(plan, runs)
    exact, weighted, means = (apart[f"uneven-{way}"] for way in ("exact", "weighted_mean", "mean"))
    bounds = {claim.name: claim for claim in CLAIMS if isinstance(claim, Bound)}
    assert bounds["exact_on_uneven"].verdict({"exact": exact, "weighted": weighted}) == "holds"
    assert bounds["mean_of_means_differs"].verdict({"difference": means}) == "holds"
