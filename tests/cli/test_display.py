"""What a person sees of a run: the first lines say what is trained, by how many, and how much is left."""

import pytest

from shoal.cli.display import extent, headline
from shoal.config.read import read
from shoal.train.progress import Progress


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        ([], "lenet on digits with adam, single, on cpu"),
        (["--strategy", "ddp"], "lenet on digits with adam, ddp with 1 worker, on cpu"),
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
