"""A model that cannot be divided as asked is refused by the launcher: no worker has started yet."""

import pytest

from shoal.config.read import read
from shoal.errors import ConfigError
from shoal.launch.run import launch_run
from shoal.training.observer import Silent
from shoal.training.setup.build_layout import check_division

TEXT = "--model transformer --data synthetic --data.task text"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--strategy pipeline --workers 64", "cannot cut the model into 64 stages: it has 4 layers"),
        ("--strategy rpc --workers 64", "cannot cut the model into 63 stages: it has 4 layers"),
        ("--strategy pipeline --workers 2 --pipeline.cut fc9", "unknown layer 'fc9'"),
        ("--strategy rpc --workers 3 --strategy.cut fc1,fc2", "makes 3 stages, but 3 workers hold 2"),
        (f"--mesh data=2,tensor=3 {TEXT}", "has 4 heads, not a multiple of 3"),
        (
            "--strategy tensor --workers 7 --model resnet18",
            "no two of its layers have a multiple of 7 features",
        ),
        ("--strategy tensor --workers 2 --tensor.plan no.toml", "cannot read the plan no.toml"),
        (
            "--mesh data=2,pipeline=2 --exchange robust:krum --exchange.bad 0",
            "at least 3 workers; you have 2",
        ),
    ],
)
def test_is_refused_before_workers_start(flags, message, monkeypatch):
    monkeypatch.setattr("shoal.launch.run.LAUNCHERS", {})
    with pytest.raises(ConfigError, match=message):
        launch_run(read(None, flags.split()), Silent())


@pytest.mark.parametrize(
    "flags",
    [
        f"--mesh data=2,pipeline=2,tensor=2 {TEXT}",
        "--strategy pipeline --workers 4 --data cifar10 --model resnet18",
        "--strategy tensor --workers 2 --data synthetic --data.task regression --loss mse --model mlp",
        "--strategy rpc --workers 3 --strategy.cut fc1",
        "--strategy pipeline --workers 64 --model my.module:function",
    ],
)
def test_what_can_be_divided_is_not(flags):
    check_division(read(None, flags.split()))
