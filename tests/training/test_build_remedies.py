"""Hints about numbers that are not finite offer what the run would accept, and nothing else."""

import pytest

from shoal.config.read import read
from shoal.strategies.not_finite import Remedies
from shoal.training.build import remedies_of


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("", Remedies(clips=True, skips=True, exchanges=False)),
        ("--clip-norm 2", Remedies(clips=False, skips=True, exchanges=False)),
        ("--strategy ddp --workers 2", Remedies()),
        ("--strategy rpc --workers 3", Remedies(clips=False, skips=True, exchanges=False)),
        ("--strategy server --workers 2", Remedies()),
        ("--strategy server --strategy.mode asp --workers 2", Remedies(exchanges=False)),
        ("--strategy server --strategy.backup 1 --workers 3", Remedies(exchanges=False)),
        (
            "--strategy pipeline --pipeline.schedule async --workers 2",
            Remedies(clips=False, skips=False, exchanges=True),
        ),
        ("--memory.step_in_backward true", Remedies(clips=False, skips=False, exchanges=False)),
    ],
)
def test_hints_follow_the_settings(flags, expected):
    assert remedies_of(read(None, flags.split())) == expected
