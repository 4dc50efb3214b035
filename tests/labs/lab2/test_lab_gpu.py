"""Lab 2 on a GPU: workers that share it exchange through gloo. Only where one is."""

from dataclasses import replace

import pytest
import torch
from reports import Listening, rows, text_of
from tests.labs.lab2.test_lab import TINY

from shoal.labs.frame import run_plan
from shoal.labs.lab2.lab import LAB
from shoal.labs.words import load_words

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(400)]


def test_the_report_times_exchanges_of_the_gpu(tmp_path):
    plan = replace(TINY, device="cuda", timed_by="processes")
    words = load_words(LAB.package, "en")
    outcome = run_plan(LAB, plan, tmp_path / "report", "shoal lab 2 --device cuda", words, Listening())
    assert all(float(row["exchange (ms)"]) > 0 for row in rows(outcome.folder, "exchange"))
    assert {row["as labelled"] for row in rows(outcome.folder, "record")} == {"True"}  # no call was lost
    assert torch.cuda.get_device_name() in text_of(outcome.folder)
