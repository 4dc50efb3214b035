"""The example of data that do not fit in memory: each form trains as one worker does that reads for itself."""

import copy
import runpy
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "on_demand.py"
ALONE = {"workers": 1, "strategy": "single", "data.loaders": 0}


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:data .* has no test set")
def test_each_form_trains_and_the_loaders_change_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    example = runpy.run_path(str(EXAMPLE))
    for name, model, data, settings in example["forms"](tmp_path):
        start = copy.deepcopy(model)
        alone, together = (
            example["train"](given, data, **settings, **kind)
            for given, kind in ((start, ALONE), (model, {"launcher": "threads"}))
        )
        assert together.steps == alone.steps > 20, name
        assert together.test_loss == pytest.approx(alone.test_loss, abs=1e-4), name
