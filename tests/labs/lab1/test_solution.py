import runpy
import sys

import pytest
import torch

from shoal.models.lenet import lenet
from shoal_labs.handout.start import start
from shoal_labs.lab1.solution.model import Net, batches, train
from shoal_labs.lab1.solution.MyOptimizer import AdamOptimizer, GdOptimizer, SgdOptimizer

PAIRS = [
    (lambda p: GdOptimizer(p, 0.1), lambda p: torch.optim.SGD(p, 0.1)),
    (lambda p: SgdOptimizer(p, 0.3), lambda p: torch.optim.SGD(p, 0.3)),
    (lambda p: AdamOptimizer(p, 0.01, 0.8, 0.95), lambda p: torch.optim.Adam(p, 0.01, (0.8, 0.95))),
]


@pytest.mark.parametrize(("ours", "theirs"), PAIRS, ids=["gd", "sgd", "adam"])
def test_the_optimizers_equal_torchs_over_many_steps(ours, theirs):
    generator = torch.Generator().manual_seed(0)
    first = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in ((3, 2), (4,))]
    mine, reference = ([p.clone().requires_grad_() for p in first] for _ in range(2))
    unused = torch.ones(2, dtype=torch.float64, requires_grad=True)
    optimizers = ours([*mine, unused]), theirs([*reference, unused])
    for _ in range(30):
        for params, optimizer in zip((mine, reference), optimizers, strict=True):
            optimizer.zero_grad()
            sum((p - 1).cosh().sum() for p in params).backward()
            optimizer.step()
    for a, b in zip(mine, reference, strict=True):
        assert torch.allclose(a, b, rtol=1e-12, atol=0)


def test_the_network_is_the_labs_lenet():
    shapes = [tuple(p.shape) for p in Net().parameters()]
    assert shapes == [tuple(p.shape) for p in lenet().parameters()]


def test_gd_steps_once_a_pass_and_sgd_sees_every_sample_once():
    generator = torch.Generator().manual_seed(0)
    assert [len(batch) for batch in batches("gd", 10, 4, generator)] == [10]
    sgd = list(batches("sgd", 10, 4, generator))
    assert [len(batch) for batch in sgd] == [4, 4, 2]
    assert sorted(torch.cat(sgd).tolist()) == list(range(10))


@pytest.mark.parametrize(("name", "lr"), [("gd", 0.1), ("sgd", 0.05), ("adam", 0.003)])
def test_the_solution_trains(name, lr):
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(128) % 10
    pictures = torch.randn(128, 1, 28, 28, generator=generator) + labels.view(-1, 1, 1, 1)
    _, curve = train(
        (pictures, labels), name, lr, passes=8 if name == "gd" else 2, batch_size=16, seed=0, max_steps=12
    )
    assert curve[-1][1] < curve[0][1]
    assert curve[0][0] == (128 if name == "gd" else 16)


@pytest.mark.parametrize(("lang", "task"), [("en", "Task batches: "), ("zh", "任务 batches：")])
def test_the_skeleton_runs_up_to_its_first_task(tmp_path, monkeypatch, lang, task):
    start("1", tmp_path, lang)
    folder = tmp_path / "task1" / "pytorch"
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "MyOptimizer", raising=False)
    monkeypatch.setattr(sys, "argv", ["model.py", "--optimizer", "gd", "--passes", "1"])
    monkeypatch.chdir(folder)
    with pytest.raises(NotImplementedError, match=task):
        runpy.run_path(str(folder / "model.py"), run_name="__main__")
    monkeypatch.delitem(sys.modules, "MyOptimizer", raising=False)
