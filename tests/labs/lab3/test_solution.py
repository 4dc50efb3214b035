import ast
import re

import pytest
import torch
from handed_out import forked, free_port, lay_out
from torch.utils.data import DataLoader

from shoal.models.lenet import lenet
from shoal_labs.handout.start import skeleton, solution
from shoal_labs.lab3.solution.check_sampler import faults, main
from shoal_labs.lab3.solution.model import Net, parse_args
from shoal_labs.lab3.solution.sampler import MyRandomSampler, MySampler


def test_two_terminals_end_with_the_weights_of_one_machine(tmp_path, nursery):
    """97 and 96 samples in steps of 32: the last step has one sample on one node, and none on the other."""
    folder = lay_out(tmp_path, solution("3"), "task3", samples=193)
    sums = {}
    for nodes in (1, 2):
        flags = f"--n_devices={nodes} --master_port={free_port()} --passes=1 --lr=0.05"
        codes, outputs = forked(
            nursery, folder, *(f"model.py {flags} --rank={rank}" for rank in range(nodes))
        )
        assert codes == [0] * nodes, outputs
        found = re.findall(r"sum of weights (-?[\d.]+)", "".join(outputs))
        assert len(found) == nodes
        assert len(set(found)) == 1
        sums[nodes] = float(found[0])
        assert re.search(r"epoch 1  loss [\d.]+  test accuracy", outputs[0])
    assert sums[2] == pytest.approx(sums[1], abs=1e-3)


def test_the_skeleton_tells_its_first_task_and_comes_with_digits(tmp_path, nursery):
    files = skeleton("3", "zh")
    assert sum(path.suffix == ".gz" for path in files) == 4
    _, outputs = forked(nursery, lay_out(tmp_path, files, "task3", samples=20), "check_sampler.py")
    assert "NotImplementedError: 任务 set_epoch：" in outputs[0]


def test_the_solution_passes_its_own_check(capsys):
    assert main(["--samples", "101"]) == 0
    assert "WRONG" not in capsys.readouterr().out


class RangeOfOne(MySampler):
    def __iter__(self):
        generator = torch.Generator().manual_seed(self.epoch)
        return iter(torch.randperm(len(self), generator=generator).tolist())


class RankSeed(MySampler):
    def __iter__(self):
        order = torch.randperm(len(self.dataset), generator=torch.Generator().manual_seed(self.rank))
        return iter(order[self.rank :: self.num_replicas].tolist())


class Everything(MySampler):
    def __iter__(self):
        return iter(range(len(self.dataset)))


class Padded(MySampler):
    """As torch does it: a few samples come twice, so that all nodes have equally many."""

    def __len__(self):
        return -(-len(self.dataset) // self.num_replicas)

    def __iter__(self):
        generator = torch.Generator().manual_seed(self.seed + self.epoch)
        count = len(self.dataset)
        order = torch.randperm(count, generator=generator).tolist() if self.shuffle else list(range(count))
        order += order[: len(self) * self.num_replicas - len(order)]
        return iter(order[self.rank :: self.num_replicas])


class Global(MySampler):
    """Draws from torch's global state."""

    def __iter__(self):
        return iter(torch.randperm(len(self.dataset)).tolist()[self.rank :: self.num_replicas])


@pytest.mark.parametrize(
    ("kind", "sentences"),
    [
        (
            RangeOfOne,
            ["750 of 1,000 samples are seen by no node, 250", "is the range only as long as one node's"],
        ),
        (RankSeed, ["is the rank part of the seed", "does set_epoch change anything"]),
        (Everything, ["__len__ says [250, 250, 250, 250]", "1,000 by more than one"]),
        (Global, ["created again, the sampler gives another order"]),
        (MySampler, []),
        (Padded, []),
        (MyRandomSampler, []),
    ],
)
def test_the_check_names_what_is_wrong(kind, sentences):
    found = faults(kind, 1000, 4, partition=kind is not MyRandomSampler)
    assert bool(found) == bool(sentences)
    for sentence in sentences:
        assert any(sentence in fault for fault in found), found
    assert not faults(Padded, 1001, 3, partition=True)


def test_the_samplers_plug_into_a_loader_and_change_with_the_epoch():
    data = list(range(20))
    sampler = MySampler(data, num_replicas=2, rank=1, shuffle=True, seed=3)
    loader = DataLoader(data, batch_size=4, sampler=sampler)
    first = torch.cat(list(loader))
    sampler.set_epoch(1)
    assert len(first) == 10
    assert not torch.cat(list(loader)).equal(first)
    assert list(MySampler(data, 2, 1, shuffle=False)) == list(range(1, 20, 2))


def test_the_course_finds_its_names_and_its_flags():
    files = {path.name: text for path, text in skeleton("3", "en").items()}
    assert {"sampler.py", "dist_utils.py", "model.py"} <= files.keys()
    classes = {
        node.name: node for node in ast.parse(files["sampler.py"]).body if isinstance(node, ast.ClassDef)
    }
    methods = {node.name: node for node in classes["MySampler"].body if isinstance(node, ast.FunctionDef)}
    assert {"__iter__", "__len__", "set_epoch"} <= methods.keys()
    arguments = [arg.arg for arg in methods["__init__"].args.args]
    assert arguments == ["self", "dataset", "num_replicas", "rank", "shuffle", "seed"]
    flags = "--n_devices=2 --rank=1 --gpu=0 --master_addr=node01 --master_port=12378"
    args = parse_args(flags.split())
    assert (args.n_devices, args.rank, args.gpu, args.master_addr) == (2, 1, 0, "node01")
    assert [p.shape for p in Net().parameters()] == [p.shape for p in lenet().parameters()]
