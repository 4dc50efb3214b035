import ast
import re
from types import SimpleNamespace

import pytest
import torch
from handed_out import forked, free_port, lay_out, side_by_side

from shoal.models.lenet import lenet
from shoal.report.folder import write_files
from shoal_labs.handout.start import skeleton, solution
from shoal_labs.lab2.solution import model
from shoal_labs.lab2.solution.model import Net, batches, load_data, parse_args, parts


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return lay_out(tmp_path_factory.mktemp("solution"), solution("2"), "task2", samples=192)


WORLDS = {
    "alone": ("model.py --n_devices=1",),
    "allreduce": ("model.py --n_devices=2 --rank=0", "model.py --n_devices=2 --rank=1"),
    "reduce": ("model-mp.py --n_devices=2 --average reduce --bottleneck 1 --delay 0.4",),
}
"""The solution by hand in two terminals, and by one command with a slow node; test_check.py tries the rest."""


@pytest.fixture(scope="module")
def outputs(folder):
    """What the nodes of every world printed; all worlds run at the same time."""
    commands = {
        name: [f"{command} --master_port {port} --passes 1 --lr 0.05" for command in world]
        for name, world in WORLDS.items()
        for port in [free_port()]
    }
    codes, printed = side_by_side(folder, *(command for world in commands.values() for command in world))
    assert codes == [0] * len(codes), printed
    lines = iter(printed)
    return {name: "".join(next(lines) for _ in world) for name, world in commands.items()}


def test_nodes_end_with_the_weights_of_one_machine(outputs):
    ends = {
        name: re.findall(r"test accuracy ([\d.]+) %  sum of weights (-?[\d.]+)", output)
        for name, output in outputs.items()
    }
    assert [len(found) for found in ends.values()] == [1, 2, 2]
    together = {end for name in ("allreduce", "reduce") for end in ends[name]}
    assert len(together) == 1
    # Three steps: what they differ by is rounding.
    assert float(ends["alone"][0][1]) == pytest.approx(float(together.pop()[1]), abs=1e-3)


def test_everyone_waits_for_the_slow_node(outputs):
    averaging = re.findall(r"node (\d)  reduce: ([\d.]+) ms of", outputs["reduce"])
    # The delay is spent before the collective, and so by the other node as well.
    assert {rank: float(ms) > 100 for rank, ms in averaging}["0"]


def test_the_network_is_the_labs_lenet():
    assert [p.shape for p in Net().parameters()] == [p.shape for p in lenet().parameters()]


@pytest.mark.parametrize("share", [0.0, 0.8, 1.0])
def test_the_nodes_parts_are_the_batch(share):
    sizes = parts(24, 3, bottleneck=1, share=share)
    assert sizes == {0.0: [8, 8, 8], 0.8: [3, 19, 2], 1.0: [1, 22, 1]}[share]
    whole = batches(100, 24, [24], 0, seed=3)
    mine = [batches(100, 24, sizes, rank, seed=3) for rank in range(3)]
    assert len(whole) == 4
    for batch, *pieces in zip(whole, *mine, strict=True):
        assert [len(piece) for piece in pieces] == sizes
        assert sorted(torch.cat(pieces).tolist()) == sorted(batch.tolist())


def test_the_flags_that_the_readme_names_do_what_they_say(tmp_path, nursery):
    """SGD is linear: averaging parameters equals averaging gradients, and the sum at η/2 the mean at η."""
    folder = lay_out(tmp_path, solution("2"), "task2", samples=48)
    usual = "model.py --n_devices=2 --passes 1 --batch_size 16"
    changes = {
        "mean": "",
        "parameters": "--aggregate parameters",
        "sum": "--combine sum --lr 0.05",
        "link": "--link 20",
        "uneven": "--bottleneck 1 --delay 0 --share 0.75",
    }
    weights, times = {}, {}
    for name, flags in changes.items():
        command = f"{usual} --master_port {free_port()} {flags}"
        codes, outputs = forked(nursery, folder, *(f"{command} --rank={rank}" for rank in range(2)))
        assert codes == [0, 0], outputs
        output = "".join(outputs)
        (weights[name],) = {round(float(each), 4) for each in re.findall(r"sum of weights (\S+)", output)}
        times[name] = max(float(each) for each in re.findall(r": (\S+) ms of", output))
    assert weights["parameters"] == weights["sum"] == weights["link"] == weights["mean"]
    assert weights["uneven"] != weights["mean"]
    # Around a ring of two, each node sends its 52,000 gradients once, at 20 Mbit/s. It sleeps for at least that long.
    assert times["link"] > 80


@pytest.mark.parametrize(
    ("call", "sent"),
    [
        (lambda dist, own, all_: dist.all_reduce(own, op="sum"), [1.5] * 4),
        (lambda dist, own, all_: dist.all_gather([own] * 4, own), [3] * 4),
        (lambda dist, own, all_: dist.all_gather_into_tensor(all_, own), [3] * 4),
        (lambda dist, own, all_: dist.reduce_scatter(own, [own] * 4), [3] * 4),
        (lambda dist, own, all_: dist.reduce(own, dst=1), [1, 0, 1, 1]),
        (lambda dist, own, all_: dist.reduce(own, 1, "sum"), [1, 0, 1, 1]),
        (lambda dist, own, all_: dist.gather(own, dst=0), [0, 1, 1, 1]),
        (lambda dist, own, all_: dist.broadcast(own, src=0), [3, 0, 0, 0]),
        (lambda dist, own, all_: dist.broadcast(own, 2, async_op=True), [0, 0, 3, 0]),
        (lambda dist, own, all_: dist.scatter(own, None, src=0), [3, 0, 0, 0]),
    ],
)
def test_a_slow_link_costs_each_node_what_it_sends_in_that_collective(monkeypatch, call, sent):
    slept, called = [], []
    monkeypatch.setattr(model.time, "sleep", slept.append)
    for rank in range(4):
        fakes = {name: lambda *args, **kwargs: called.append(args) for name in model.SENT}
        ranks = {"get_world_size": lambda: 4, "get_rank": lambda rank=rank: rank}
        monkeypatch.setattr(model, "dist", SimpleNamespace(**fakes, **ranks))
        model.slow_link(mbit_per_s=32.0)
        call(model.dist, torch.zeros(1000), torch.zeros(4000))
    assert slept == pytest.approx([each * 1e-3 for each in sent])
    assert len(called) == 4


def test_the_skeleton_comes_with_digits_and_runs_up_to_its_first_task(tmp_path, nursery):
    write_files(tmp_path, skeleton("2", "en"))
    pictures, labels = load_data(tmp_path / "task2" / "data", "t10k")
    assert pictures.shape[1:] == (1, 28, 28)
    assert labels.unique().tolist() == list(range(10))
    command = f"model.py --n_devices=1 --master_port {free_port()}"
    codes, outputs = forked(nursery, tmp_path / "task2", command)
    assert codes != [0]
    assert "NotImplementedError: Task train_step: " in outputs[0]


def test_the_course_finds_its_names_and_its_flags():
    files = {path.name: text for path, text in skeleton("2", "en").items()}
    functions = {
        node.name: [arg.arg for arg in node.args.args]
        for node in ast.parse(files["dist_utils.py"]).body
        if isinstance(node, ast.FunctionDef)
    }
    assert functions["dist_init"] == ["world_size", "rank", "master_addr", "master_port"]
    for name in ("init_parameters", "allreduce_average_gradients", "allgather_average_gradients"):
        assert functions[name] == ["model"]
    compose = files["docker-compose.yml"]
    nodes = re.findall(r"command: \[python, -u, model\.py, (.*)\]", compose)
    given = [parse_args(flags.split(", ")) for flags in nodes]
    assert [(args.n_devices, args.rank) for args in given] == [(2, 0), (2, 1)]
    assert all(f"\n  {args.master_addr}:\n" in compose for args in given)
    assert parse_args(["--gpu=0"]).gpu == 0
