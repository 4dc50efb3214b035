from dataclasses import replace

import pytest

from shoal.compare.watch import QuietWatch
from shoal.config.schema import RunConfig
from shoal.config.sections.data import SyntheticConfig
from shoal.config.sections.launch import LaunchConfig
from shoal.config.sections.model import MlpConfig
from shoal.config.sections.optimizer import SgdConfig
from shoal.config.sections.train import TrainConfig
from shoal.errors import WorkerError
from shoal.events.file import read_events
from shoal.events.folder import RunFolder
from shoal.report.finished_runs import read_run
from shoal.strategies.ddp.settings import DdpConfig
from shoal.strategies.settings import NoSyncConfig
from shoal_labs.runs import Runs
from shoal_labs.timing.turns import over_rounds, train_in_turns
from shoal_labs.words import load_words

TWO = RunConfig(
    sync=DdpConfig(),
    threads=1,
    device="cpu",
    data=SyntheticConfig(samples=40),
    model=MlpConfig(hidden=(4,)),
    launch=LaunchConfig(workers=2, launcher="threads"),
    train=TrainConfig(steps=2, batch_size=8, test=False),
)
ONE = replace(TWO, launch=LaunchConfig(), sync=NoSyncConfig())
RIVALS = {"two": TWO, "one": ONE}


def made(folder, earlier=None):
    return Runs(folder, load_words("shoal_labs.lab3", "en"), QuietWatch(), earlier)


def steps(path):
    return read_run(path).result["steps"]


@pytest.mark.parametrize("launcher", ["threads", "processes"])
def test_every_rival_has_a_run_in_every_round_by_the_same_workers(tmp_path, launcher):
    runs = made(tmp_path)
    rivals = {"two": replace(TWO, launch=replace(TWO.launch, launcher=launcher)), "one": ONE}
    train_in_turns(runs, rivals, rounds=2, label="")
    assert runs.trained == ["two-round0", "one-round0", "one-round1", "two-round1"]
    for name in rivals:
        assert over_rounds(runs, name, 2, steps) == [2, 2]


def test_rounds_of_an_earlier_report_are_taken_over_all_or_none(tmp_path):
    train_in_turns(made(tmp_path / "a"), RIVALS, rounds=2, label="")
    again = made(tmp_path / "b", earlier=tmp_path / "a")
    train_in_turns(again, RIVALS, rounds=2, label="")
    assert (len(again.taken_over), again.trained) == (4, [])
    longer = made(tmp_path / "c", earlier=tmp_path / "a")
    train_in_turns(longer, RIVALS, rounds=3, label="")
    assert (longer.taken_over, len(longer.trained)) == ([], 6)


def test_a_run_that_fails_is_named(tmp_path):
    broken = replace(ONE, optimizer=SgdConfig(lr=1e30))
    with pytest.raises(WorkerError, match="the run one-round0 did not finish"):
        train_in_turns(made(tmp_path), {"two": TWO, "one": broken}, rounds=1, label="")


def test_a_slow_link_takes_turns_with_none_and_is_not_reported_in_every_round(tmp_path, recwarn):
    runs = made(tmp_path)
    slow = replace(TWO, launch=replace(TWO.launch, link=("all:1gbit,1ms",)))
    train_in_turns(runs, {"even": TWO, "slow": slow}, rounds=1, label="")
    measured = {
        name: sum(
            record["event"] == "link"
            for record in read_events(RunFolder(runs.path(f"{name}-round0")).events())
        )
        for name in ("even", "slow")
    }
    assert measured == {"even": 0, "slow": 1}
    assert not [each for each in recwarn if str(each.message).startswith("link ")]


@pytest.mark.parametrize(("budget_s", "rounds"), [(1e9, 2), (0.0, 1)])
def test_more_rounds_follow_within_the_budget_if_the_first_decide_nothing(
    tmp_path, monkeypatch, budget_s, rounds
):
    runs = made(tmp_path)
    monkeypatch.setattr(runs, "busy", lambda: 0.0)
    assert train_in_turns(runs, RIVALS, rounds=1, label="", most=2, budget_s=budget_s) == rounds
