"""Lab 3 on a GPU: workers that share it exchange through gloo. Only where one is."""

from dataclasses import replace

import pytest
import torch
from reports import Listening, rows, text_of
from tests.labs.lab3.test_lab import TINY

from shoal_labs.frame import run_plan
from shoal_labs.lab3.lab import LAB
from shoal_labs.words import load_words

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(400)]


def test_the_report_is_made_on_the_gpu(tmp_path):
    plan = replace(TINY, device="cuda", timed_launcher="processes")
    words = load_words(LAB.package, "en")
    outcome = run_plan(LAB, plan, tmp_path / "report", "shoal lab 3 --device cuda", words, Listening())
    assert rows(outcome.folder, "speed")
    text = text_of(outcome.folder)
    assert torch.cuda.get_device_name() in text
    # Workers that share a GPU gain nothing from cores.
    assert "faster than one process on all cores" not in text
    assert "faster than one process (GPUs:" in text
