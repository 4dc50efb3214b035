"""What a person sees of a run: the first lines say what is trained, by how many, and how much is left."""

import warnings
from types import SimpleNamespace

import pytest

from shoal.api.display import epoch_line, extent, headline, server_rows, warnings_in_one_line
from shoal.config.read import read
from shoal.training.evaluation import Metrics
from shoal.training.progress import Progress


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        ([], "lenet on digits with adam, single, on cpu"),
        (["--strategy", "ddp"], "lenet on digits with adam, ddp with 1 worker, on cpu"),
        (["--workers", "2"], "lenet on digits with adam, ddp with 2 workers, on cpu"),
        (["--strategy", "dp", "--workers", "3"], "lenet on digits with adam, dp with 3 workers, on cpu"),
    ],
)
def test_the_headline_says_how_many_workers_there_are(flags, line):
    assert headline(read(None, flags), "cpu") == line


@pytest.mark.parametrize(
    ("step", "total", "words"),
    [
        (0, 40, "40 steps"),
        (10, 40, "40 steps, from step 10"),
        (40, 40, "already at step 40 of 40: --epochs or --steps make it longer"),
        (50, 40, "already at step 50 of 40: --epochs or --steps make it longer"),
    ],
)
def test_a_run_that_has_nothing_left_to_do_says_so(step, total, words):
    assert extent(Progress(step=step), total) == words


@pytest.mark.parametrize(
    ("metrics", "line"),
    [
        (None, "  epoch 10/20  step 1410  training loss 0.4833  60.0 s"),
        (
            Metrics(0.1549, 0.955, 100),
            "  epoch 10/20  step 1410  loss 0.4833, validation 0.1549, accuracy 95.50 %  60.0 s",
        ),
        (Metrics(0.1549, None, 100), "  epoch 10/20  step 1410  loss 0.4833, validation 0.1549  60.0 s"),
    ],
)
def test_the_line_of_an_epoch(metrics, line):
    progress = Progress(step=1410, epoch=10, last_epoch_loss=0.4833, seconds=60.0)
    assert epoch_line(progress, 20, metrics) == line


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ({"exact": True, "repeats": True}, "7 (bsp: one machine's)"),
        ({"exact": False, "repeats": True}, "7 (bsp: not one machine's)"),
        ({"exact": False, "repeats": False}, "7 (bsp: not one machine's, and runs do not repeat)"),
        ({"exact": True, "repeats": True, "skipped": 0}, "7 (bsp: one machine's)"),
        (
            {"exact": True, "repeats": True, "skipped": 2},
            "7 (bsp: one machine's), and 2 skipped because a number was not finite",
        ),
    ],
)
def test_the_updates_of_a_server_are_one_machines_only_if_they_are_exact(found, words):
    server = {"mode": "bsp", "updates": 7, "servers": 0, **found}
    assert server_rows(SimpleNamespace(server=server, run="", workers=2)) == {"updates": words}


def test_a_warning_is_one_line_with_the_names_of_the_program():
    shown = "data shoal_fit:data has no test set, loss shoal_fit:mine", UserWarning, "launch.py", 3
    before = warnings.formatwarning(*shown)
    with warnings_in_one_line():
        assert warnings.formatwarning(*shown) == "warning: data has no test set, loss mine\n"
    assert warnings.formatwarning(*shown) == before
