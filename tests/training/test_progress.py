"""Progress: only what a run can reach is believed."""

import pytest

from shoal.errors import CheckpointError
from shoal.training.progress import Progress


@pytest.mark.parametrize(
    ("step", "epoch", "consumed"), [(0, 0, 0), (3, 0, 96), (4, 0, 100), (4, 1, 0), (9, 2, 32), (12, 2, 100)]
)
def test_what_a_run_reaches_fits(step, epoch, consumed):
    Progress(step=step, epoch=epoch, consumed=consumed).check_fits(num_samples=100, batch_size=32)


@pytest.mark.parametrize(
    ("step", "epoch", "consumed"),
    [(10**18, 0, 0), (3, 0, 64), (2, 0, 56), (4, 0, 101), (4, 0, 128), (5, 2, 32)],
)
def test_what_no_run_reaches_does_not(step, epoch, consumed):
    with pytest.raises(CheckpointError, match="do not fit together with 100 samples in batches of 32"):
        Progress(step=step, epoch=epoch, consumed=consumed).check_fits(num_samples=100, batch_size=32)


def test_a_record_with_an_unknown_field_is_refused():
    with pytest.raises(CheckpointError, match="unknown progress 'what'"):
        Progress.from_record({"step": 1, "what": 2})
