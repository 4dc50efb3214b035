"""Layouts from the command line: the same training as `single`, resumed under any other layout."""

import json

import pytest
from safetensors.torch import load_file

from shoal.cli.main import main
from shoal.events.file import read_events

DATA = "--data synthetic --data.samples 120 --data.shape 1,8,8 --data.classes 4 --batch-size 32 --epochs 2 --threads 1"
MODELS = {
    "mlp": f"{DATA} --model mlp --model.hidden 12,10 --clip-norm 0.5",
    "lenet": f"{DATA} --data.shape 1,12,12 --model lenet --steps 4",
    "resnet18": f"{DATA} --model resnet18 --model.width 4 --micro-batch 8 --steps 3",
    "transformer": "--data synthetic --data.task text --data.samples 64 --data.shape 12 --batch-size 16 --epochs 1 "
    "--threads 1 --model transformer --model.width 8 --model.heads 2 --optimizer sgd",
}
TOLERANCE = 2e-4
"""Of float32, after some steps: sums of micro-batches round differently."""


@pytest.fixture
def train(tmp_path, capsys):
    def run(*words, name="run", code=0):
        flags = " ".join(words).split()
        where = [] if "--resume" in flags else ["--runs-dir", str(tmp_path), "--name", name]
        assert main(["train", "--json", "--quiet", *flags, *where]) == code, capsys.readouterr().err
        out = capsys.readouterr()
        return json.loads(out.out.splitlines()[-1]) if code == 0 else out.err

    return run


def assert_close(folder, other):
    weights, expected = load_file(folder / "model.safetensors"), load_file(other / "model.safetensors")
    assert weights.keys() == expected.keys()
    for name, tensor in expected.items():
        assert (weights[name].double() - tensor.double()).abs().max() <= TOLERANCE, name


@pytest.mark.parametrize(
    ("model", "layout"),
    [
        ("mlp", "--strategy pipeline --workers 2"),
        ("mlp", "--strategy pipeline --workers 3 --pipeline.schedule zero-bubble"),
        ("mlp", "--mesh data=2,pipeline=2 --pipeline.schedule gpipe --pipeline.weight_gradients once"),
        ("lenet", "--strategy pipeline --workers 3 --pipeline.cut conv2,fc1 --strategy.schedule sequential"),
        ("resnet18", "--strategy pipeline --workers 2 --pipeline.cut stage3 --pipeline.recompute"),
        ("lenet", "--strategy pipeline --workers 3 --pipeline.schedule async --pipeline.microbatches 1"),
        ("transformer", "--strategy pipeline --workers 2"),
        (
            "transformer",
            "--mesh pipeline=2,tensor=2 --workers 4 --pipeline.schedule async --pipeline.microbatches 1",
        ),
        ("transformer", "--mesh data=2,pipeline=2,tensor=2 --workers 8"),
    ],
)
def test_trains_like_one_machine(model, layout, train, tmp_path):
    single = train(MODELS[model], name="single")
    result = train(MODELS[model], layout, "--launcher threads", name="divided")
    assert result["strategy"] == ("pipeline+tensor" if "tensor" in layout else "pipeline")
    assert result["final_loss"] == pytest.approx(single["final_loss"], rel=1e-4)
    assert result["test_accuracy"] == pytest.approx(single["test_accuracy"], abs=0.01)
    assert_close(tmp_path / "divided", tmp_path / "single")


OWN = """
from torch import nn

def net():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 12), nn.ReLU(), nn.Linear(12, 10), nn.Tanh(), nn.Linear(10, 4))

class Skip(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(64, 64), nn.Linear(64, 4)

    def forward(self, x):
        x = x.flatten(1)
        return self.b(x + self.a(x))

    def as_sequence(self):
        return [("flat", nn.Flatten()), ("a", self.a), ("b", self.b)]

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.fc = nn.BatchNorm1d(8), nn.Linear(8, 8)

    def forward(self, x):
        return x + self.fc(self.norm(x)).tanh()

class Blocks(nn.Module):
    def __init__(self, function=False):
        super().__init__()
        self.flat, self.embed, self.function = nn.Flatten(), nn.Linear(64, 8), function
        self.blocks, self.head = nn.ModuleList([Block(), Block(), Block()]), nn.Linear(8, 4)

    def forward(self, x):
        x = self.embed(self.flat(x))
        for block in self.blocks:
            x = block(x)
        return self.head(x.relu() if self.function else x)
"""


@pytest.fixture
def own_models(tmp_path, monkeypatch):
    (tmp_path / "own_stages.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    "layout",
    [
        "--strategy pipeline --workers 2",
        "--strategy tensor --workers 2 --precision bf16",
        "--mesh pipeline=2,tensor=2 --precision bf16",
        "--mesh data=2,tensor=2 --sync zero --sync.stage 3",
    ],
)
def test_a_model_of_ones_own_is_trained_and_evaluated(layout, train, own_models, tmp_path, capsys):
    result = train(f"{DATA} --model own_stages:net", layout, "--launcher threads --steps 4")
    assert main(["evaluate", str(tmp_path / "run"), "--trust-code", "--json"]) == 0
    evaluated = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert evaluated["loss"] == pytest.approx(result["test_loss"], rel=1e-5)
    assert evaluated["accuracy"] == result["test_accuracy"]
    single = train(
        f"{DATA} --model own_stages:net",
        layout.partition("--precision")[2] and "--precision bf16",
        "--steps 4",
        name="single",
    )
    assert result["test_loss"] == pytest.approx(single["test_loss"], rel=0.01)


def test_stages_that_are_not_the_model_are_refused(train, own_models):
    said = train(f"{DATA} --model own_stages:Skip --strategy pipeline --workers 2 --launcher threads", code=2)
    assert "the input of 'b' is not the output of 'a'" in said


BLOCKS = f"{DATA} --model own_stages:Blocks --steps 5 --launcher threads"
STAGES = "--strategy pipeline --workers 2 --pipeline.cut blocks.1"


@pytest.mark.parametrize(
    "layout",
    [
        f"{STAGES} --pipeline.microbatches 1",
        f"{STAGES} --pipeline.microbatches 1 --pipeline.schedule async",
        "--strategy pipeline --workers 3 --pipeline.microbatches 1 --pipeline.recompute",
    ],
)
def test_a_model_that_declares_no_order_is_cut_at_its_modules(layout, train, own_models, tmp_path):
    single = train(BLOCKS, name="single")
    result = train(BLOCKS, layout, name="cut")
    assert result["final_loss"] == pytest.approx(single["final_loss"], rel=1e-4)
    assert_close(tmp_path / "cut", tmp_path / "single")


@pytest.mark.parametrize("other", ["--strategy single --workers 1", "--mesh pipeline=3", ""])
def test_stages_of_an_observed_order_are_resumed(other, train, own_models, tmp_path):
    single = train(BLOCKS, name="single")
    train(BLOCKS, STAGES, "--pipeline.microbatches 1 --steps 3")
    resumed = train(f"--resume {tmp_path / 'run'} --steps 5 {other} --launcher threads --trust-code")
    assert resumed["final_loss"] == pytest.approx(single["final_loss"], rel=1e-4)
    assert_close(tmp_path / "run", tmp_path / "single")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (f"{STAGES} --model.function true", "forward() calls relu between 'blocks.2' and 'head'"),
        (f"{STAGES}.fc", "inside 'blocks.1', where forward() calls tanh, add after 'blocks.1.fc'"),
        ("--strategy rpc --workers 2 --launcher processes", "cannot cut Blocks into stages"),
    ],
)
def test_a_model_of_unknown_order_that_cannot_be_cut_is_refused(more, message, train, own_models, tmp_path):
    assert message in train(BLOCKS, more, code=2)
    assert not (tmp_path / "run").exists()


MESHES = [
    "--mesh data=2,pipeline=2 --sync zero",
    "--mesh data=2,tensor=2 --sync zero --sync.stage 3",
    "--mesh data=2,pipeline=2,tensor=2 --sync onecopy",
    "--strategy single --workers 1",
]


def test_one_run_under_several_meshes_whose_workers_divide_the_state(train, tmp_path):
    """Each goes on from the checkpoint of the one before."""
    single = train(MODELS["transformer"], name="single")
    result = train(MODELS["transformer"], MESHES[0], "--launcher threads --steps 1")
    assert result["strategy"] == "pipeline+zero"
    for step, mesh in enumerate(MESHES[1:], start=2):
        result = train(f"--resume {tmp_path / 'run'} --steps {step} {mesh} --launcher threads")
    assert result["final_loss"] == pytest.approx(single["final_loss"], rel=1e-4)
    assert_close(tmp_path / "run", tmp_path / "single")


def test_half_precision_is_close(train):
    single = train(MODELS["mlp"], "--precision bf16", name="single")
    result = train(
        MODELS["mlp"], "--precision bf16 --strategy pipeline --workers 2 --launcher threads", name="divided"
    )
    assert result["final_loss"] == pytest.approx(single["final_loss"], rel=0.01)


def test_events_have_every_action_under_its_name_in_the_schedule(train, tmp_path):
    layout = "--strategy pipeline --workers 2 --pipeline.microbatches 2 --launcher threads --steps 1"
    train(MODELS["mlp"], layout, "--pipeline.schedule 1f1b --pipeline.weight_gradients once")
    for rank, expected in enumerate(["F0 F1 I0 I1 W*", "F0 I0 F1 I1 W*"]):
        events = read_events(tmp_path / "run" / f"events.rank{rank}.jsonl")
        (step,) = (event for event in events if event["event"] == "step")
        names = [name for name, kind, *_ in step["spans"] if kind == "compute" and name[0] in "FBIW"]
        assert " ".join(names) == expected


ASYNC = "--strategy pipeline --workers 2 --launcher threads --pipeline.schedule async --pipeline.cut conv2"


def test_updates_inside_a_step(train, tmp_path):
    train(MODELS["lenet"], ASYNC, "--pipeline.microbatches 2 --steps 1")
    for rank, expected in enumerate(["F0 F1 B0 U0 B1 U1", "F0 B0 U0 F1 B1 U1"]):
        events = read_events(tmp_path / "run" / f"events.rank{rank}.jsonl")
        (step,) = (event for event in events if event["event"] == "step")
        names = [name for name, kind, *_ in step["spans"] if kind == "compute"]
        assert " ".join(names) == expected


def test_a_hint_offers_only_what_updates_inside_a_step_support(train):
    words = f"{MODELS['lenet']} {ASYNC} --optimizer sgd --lr 1e30"
    said = train(words, code=2)
    assert "Try a tenth of the learning rate." in said
    assert "clip-norm" not in said
    assert "on_nonfinite" not in said


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_updates_inside_steps_are_resumed(precision, train, tmp_path):
    words = f"{MODELS['lenet']} {ASYNC} --precision {precision}"
    expected = train(words, name="whole")
    train(words, "--steps 2")
    resumed = train(f"--resume {tmp_path / 'run'} --steps 4")
    assert resumed["weights_sha256"] == expected["weights_sha256"]


@pytest.mark.parametrize("other", ["--strategy single --workers 1", "--mesh pipeline=3", "--strategy ddp"])
def test_resumed_under_another_layout(other, train, tmp_path):
    train(MODELS["mlp"], name="single")
    train(MODELS["mlp"], "--strategy pipeline --workers 2 --launcher threads --steps 3")
    train(f"--resume {tmp_path / 'run'} --steps 8 {other} --launcher threads")
    assert_close(tmp_path / "run", tmp_path / "single")


def test_a_run_of_one_machine_is_resumed_by_a_pipeline(train, tmp_path):
    train(MODELS["mlp"], name="single")
    train(MODELS["mlp"], "--steps 3")
    train(f"--resume {tmp_path / 'run'} --steps 8 --strategy pipeline --workers 2 --launcher threads")
    assert_close(tmp_path / "run", tmp_path / "single")


def test_a_resumed_run_that_cannot_be_divided_stays_as_it_was(train, tmp_path):
    train(MODELS["mlp"], "--steps 2")
    before = {path: path.read_bytes() for path in (tmp_path / "run").glob("*.*")}
    error = train(f"--resume {tmp_path / 'run'} --steps 4 --mesh pipeline=4 --launcher threads", code=2)
    assert "cannot cut the model into 4 stages: it has 3 layers" in error
    assert {path: path.read_bytes() for path in (tmp_path / "run").glob("*.*")} == before


def test_the_run_folder_keeps_the_measured_cut(train, tmp_path):
    train(MODELS["mlp"], "--strategy pipeline --workers 2 --launcher threads --steps 3")
    saved = (tmp_path / "run" / "config.toml").read_text()
    assert 'cut = ["fc' in saved
    resumed = train(f"--resume {tmp_path / 'run'} --steps 8")
    assert (resumed["status"], resumed["strategy"]) == ("completed", "pipeline")


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        (
            "--strategy pipeline --workers 1",
            "pipeline divides the model among at least 2 workers, but there is 1",
        ),
        ("--strategy pipeline --workers 4", "cannot cut the model into 4 stages: it has 3 layers"),
        ("--strategy pipeline --workers 2 --pipeline.cut fc9", "unknown layer 'fc9': did you mean"),
        (
            "--strategy pipeline --workers 2 --optimizer gd --batch-size all --micro-batch 20",
            "120 samples in 4 micro-batches are 30 each, but --micro-batch is 20",
        ),
    ],
)
def test_what_cannot_be_divided_is_refused(layout, message, train, tmp_path):
    assert message in train(MODELS["mlp"], layout, "--launcher threads", code=2)
    assert not (tmp_path / "run").exists()
