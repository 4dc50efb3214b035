"""Plans: what a file may say, and what is refused in one sentence."""

import pytest
import torch
from torch import nn

from shoal.comm.threads.group import ThreadGroup, run_threads
from shoal.errors import ConfigError
from shoal.models.lenet import lenet
from shoal.models.mlp import mlp
from shoal.models.transformer import transformer
from shoal.strategies.tensor.automatic import automatic_plan
from shoal.strategies.tensor.divide import divide
from shoal.strategies.tensor.plan import read_plan, resolved


def test_a_file_may_nest_its_tables(tmp_path):
    path = tmp_path / "plan.toml"
    path.write_text('"blocks.*.fc1" = "column"\n[blocks.0]\nfc2 = "row"\nattention = "heads"')
    plan = read_plan(str(path))
    assert plan == {"blocks.*.fc1": "column", "blocks.0.fc2": "row", "blocks.0.attention": "heads"}
    assert resolved(plan, transformer(layers=2), 2) == {
        "blocks.0.attention": "heads",
        "blocks.0.fc1": "column",
        "blocks.0.fc2": "row",
        "blocks.1.fc1": "column",
    }


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "names no layer"),
        ("fc1 = 3", "fc1 is 3, expected the name of a cut"),
        ("fc1 = ", "is not valid TOML"),
    ],
)
def test_files_that_are_refused(text, sentence, tmp_path):
    (tmp_path / "plan.toml").write_text(text)
    with pytest.raises(ConfigError, match=sentence):
        read_plan(str(tmp_path / "plan.toml"))
    with pytest.raises(ConfigError, match="cannot read the plan .*: No such file"):
        read_plan(str(tmp_path / "other.toml"))


class Mixing(nn.Module):
    """Softmax is not a function of single elements."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(784, 8), nn.Linear(8, 8)

    def forward(self, x):
        return self.last(torch.softmax(self.first(x.flatten(1)), -1))


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(784, 784), nn.Linear(784, 784)
        self.last.weight = self.first.weight

    def forward(self, x):
        return self.last(self.first(x.flatten(1)))


PICTURE = torch.zeros(2, 1, 28, 28)
REFUSED = [
    (mlp, {"fc9": "column"}, "the plan cuts 'fc9', but the model has no such layer: did you mean 'fc"),
    (mlp, {"fc1": "columns"}, "unknown cut 'columns': did you mean 'column'"),
    (mlp, {"relu1": "column"}, 'the plan cuts relu1, a ReLU, by "column", which divides Linear, Conv2d'),
    (
        lambda: nn.Sequential(nn.Flatten(), nn.Identity(), nn.Linear(784, 4)),
        {"1": "row"},
        'the plan cuts 1, an Identity, by "row"',
    ),
    (mlp, {"fc1": "column", "fc?": "row"}, 'the plan cuts fc1 twice: by "column" and by "row"'),
    (mlp, {"fc1": "worker 2"}, "gives fc1 to worker 2, but workers 0 to 1 divide the model"),
    (mlp, {"fc2": "row"}, "the plan cuts fc2 by row, but its input is whole: 128 features instead of 64"),
    (mlp, {"fc1": "column"}, r"does not fit the model: fc2 \(Linear\) cannot take its input"),
    (
        lambda: mlp(hidden=(7, 4)),
        {"fc1": "column"},
        "fc1 among 2 workers: it has 7 outputs, not a multiple of 2",
    ),
    (Mixing, {"first": "column", "last": "row"}, "the plan changes what the model computes"),
    (Tied, {"first": "gather"}, "cuts first, but first.weight and last.weight are one parameter"),
    (
        lambda: nn.Sequential(nn.Flatten(), nn.Sequential(nn.Linear(784, 4))),
        {"1": "worker 0", "1.0": "column"},
        'the plan cuts 1.0, and 1, which contains it, by "worker 0"',
    ),
    (
        lambda: nn.Sequential(nn.Flatten(), nn.Sequential(nn.Linear(784, 4))),
        {"1": "worker 0"},
        "leaves worker 1 of 2 without parameters to train",
    ),
    (
        lambda: nn.Sequential(nn.Flatten(), nn.Sequential(nn.Linear(784, 4), nn.Dropout()), nn.Linear(4, 4)),
        {"1": "worker 0"},
        "gives 1 to worker 0, but 1 has dropout",
    ),
]


@pytest.mark.parametrize(("model", "plan", "sentence"), REFUSED, ids=[each[2][:30] for each in REFUSED])
def test_plans_that_are_refused(model, plan, sentence):
    def work(group):
        with pytest.raises(ConfigError, match=sentence):
            divide(model(), group, plan, PICTURE)

    run_threads(2, work)


def test_heads_that_do_not_divide_are_refused():
    group = ThreadGroup.world(2)[0]
    with pytest.raises(ConfigError, match="blocks.0.attention among 2 workers: it has 3 heads"):
        automatic_plan(transformer(width=48, heads=3), group)


def test_the_automatic_plan_cuts_what_it_can():
    def plan(model, workers):
        return automatic_plan(model, ThreadGroup.world(workers)[0])

    assert plan(lenet(), 2) == {"conv1": "column", "conv2": "row", "fc1": "column", "fc2": "row"}
    # Six channels do not divide among four: conv1 stays whole, and the pairs begin one layer later.
    assert plan(lenet(), 4) == {"conv2": "column", "fc1": "row"}
    dropped = nn.Sequential(nn.Linear(4, 8), nn.Dropout(), nn.Linear(8, 4))
    assert plan(dropped, 2) == {"0": "column", "1": "divided", "2": "row"}
    # Without a partner: a large layer is gathered, a small one stays whole.
    assert plan(nn.Sequential(nn.Linear(1024, 64), nn.Softmax(-1), nn.Linear(64, 4)), 2) == {"0": "gather"}
    with pytest.raises(
        ConfigError, match="the automatic plan finds no layer of Mixing that 2 workers can divide"
    ):
        plan(Mixing(), 2)
