"""Loggers of packages that shoal does not depend on: stand-ins record what they are told."""

import sys
from types import ModuleType, SimpleNamespace

import pytest

from shoal.cli.main import main
from shoal.events.folder import RunFolder

TINY = "--data synthetic --data.samples 64 --data.shape 1,4,4 --validation 0.25 --model mlp --model.hidden 8 "
TINY += "--batch-size 12 --epochs 2 --threads 1 --device cpu --name it --quiet"


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for variable in ("WANDB_MODE", "WANDB_PROJECT", "MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME"):
        monkeypatch.delenv(variable, raising=False)
    return tmp_path


class WandbStandIn(ModuleType):
    """Keeps each run: how it began, its points (name, step) → value, and whether it ended."""

    def __init__(self):
        super().__init__("wandb")
        self.runs = []

    def init(self, **given):
        run = SimpleNamespace(given=given, points={}, finished=False)
        run.log = lambda values, step: run.points.update({(name, step): values[name] for name in values})
        run.finish = lambda: setattr(run, "finished", True)
        self.runs.append(run)
        return run

    Settings = SimpleNamespace


class MlflowStandIn(ModuleType):
    """A store of runs for each address, which clients share."""

    def __init__(self):
        super().__init__("mlflow")
        self.stores = {}
        self.entities = SimpleNamespace(Metric=lambda *values: values)

    def MlflowClient(self, tracking_uri):  # noqa: N802
        return MlflowClient(self.stores.setdefault(tracking_uri, {}))


class MlflowClient:
    """As much of the package's client as is used."""

    def __init__(self, store):
        self.store = store

    def get_experiment_by_name(self, name):
        return SimpleNamespace(experiment_id=name) if name in self.store else None

    def create_experiment(self, name, place):
        self.store[name] = []
        return name

    def search_runs(self, experiments, condition):
        key, value = condition.removeprefix("tags.").split(" = ")
        runs = [run for name in experiments for run in self.store[name]]
        return [run for run in runs if run.tags[key] == value.strip("'")]

    def create_run(self, experiment, tags, run_name):
        run = SimpleNamespace(tags=tags, name=run_name, status="RUNNING", params={}, points={})
        run.info = SimpleNamespace(run_id=f"{experiment}/{len(self.store[experiment])}")
        self.store[experiment].append(run)
        return run

    def run(self, run_id):
        experiment, number = run_id.split("/")
        return self.store[experiment][int(number)]

    def log_param(self, run_id, path, value):
        assert self.run(run_id).params.setdefault(path, value) == value

    def log_batch(self, run_id, metrics):
        assert len(metrics) <= 1000
        self.run(run_id).points.update({(name, step): value for name, value, _, step in metrics})

    def update_run(self, run_id, status):
        self.run(run_id).status = status

    set_terminated = update_run


@pytest.fixture
def wandb(monkeypatch):
    module = WandbStandIn()
    monkeypatch.setitem(sys.modules, "wandb", module)
    return module


@pytest.fixture
def mlflow(monkeypatch):
    module = MlflowStandIn()
    monkeypatch.setitem(sys.modules, "mlflow", module)
    return module


def train(flags):
    assert main(["train", *f"{TINY} {flags}".split()]) == 0


def resume(flags):
    assert main(["train", *f"--resume runs/it --quiet {flags}".split()]) == 0


@pytest.mark.parametrize("way", ["", "--strategy ddp --workers 2"])
def test_all_loggers_have_the_same_points(here, wandb, mlflow, way):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    train(f"{way} --metrics top2 --logger wandb --logger mlflow --logger tensorboard")
    (run,), (store,) = wandb.runs, mlflow.stores.values()
    assert store["shoal"][0].points == run.points
    assert [step for name, step in run.points if name == "loss/training"] == list(range(1, 9))
    assert [step for name, step in run.points if name == "top2/validation"] == [4, 8]
    assert {name for name, step in run.points if name.endswith("/test")} == {
        "loss/test",
        "accuracy/test",
        "top2/test",
    }
    board = EventAccumulator(str(here / "runs" / "it" / "tensorboard")).Reload()
    read_back = {(name, e.step): e.value for name in board.Tags()["scalars"] for e in board.Scalars(name)}
    assert read_back == pytest.approx(run.points)


def test_wandb_stays_in_the_run_folder_and_offline_unless_the_environment_asks(here, wandb, monkeypatch):
    train("--steps 2 --logger wandb")
    (first,) = wandb.runs
    assert first.finished
    assert first.given["mode"] == "offline"
    assert first.given["dir"] == "runs/it"
    assert first.given["id"] == RunFolder(here / "runs" / "it").run_id
    assert first.given["config"]["model.hidden"] == "[8]"
    monkeypatch.setenv("WANDB_MODE", "online")
    resume("--steps 4")
    assert (wandb.runs[1].given["mode"], wandb.runs[1].given["resume"]) == ("online", "allow")
    assert wandb.runs[1].given["id"] == first.given["id"]
    assert sorted(step for name, step in wandb.runs[1].points if name == "loss/training") == [3, 4]


def test_mlflow_continues_its_run(here, mlflow):
    train("--steps 3 --logger mlflow")
    ((address, store),) = mlflow.stores.items()
    assert address == f"sqlite:///{here / 'runs' / 'it' / 'mlflow' / 'mlflow.db'}"
    assert store["shoal"][0].status == "FINISHED"
    resume("--steps 6 --metrics perplexity")
    (run,) = store["shoal"]
    assert run.params["train.steps"] == 3
    assert run.status == "FINISHED"
    assert [step for name, step in run.points if name == "loss/training"] == list(range(1, 7))


def test_mlflow_writes_where_the_environment_says(here, mlflow, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://tracking.example:5000")
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "course")
    train("--steps 2 --logger mlflow")
    assert list(mlflow.stores["http://tracking.example:5000"]) == ["course"]
    assert not (here / "runs" / "it" / "mlflow").exists()


@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_what_is_not_installed_is_named_before_anything_is_written(here, monkeypatch, capsys, name):
    monkeypatch.setitem(sys.modules, name, None)
    assert main(["train", *f"{TINY} --logger {name}".split()]) == 2
    assert f"pip install {name}" in capsys.readouterr().err
    assert not (here / "runs").exists()


@pytest.mark.parametrize("name", ["tensorboard", "wandb", "mlflow"])
def test_nothing_is_written_through_a_link(here, wandb, mlflow, capsys, name):
    train("--steps 2")
    (here / "elsewhere").mkdir()
    (here / "runs" / "it" / name).symlink_to(here / "elsewhere")
    assert main(["train", "--resume", "runs/it", "--steps", "4", "--logger", name]) == 2
    assert name in capsys.readouterr().err
    assert not list((here / "elsewhere").iterdir())
