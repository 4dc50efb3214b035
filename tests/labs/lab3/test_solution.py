import ast
import re
import socket
import subprocess
import sys

import pytest
import torch
from torch.utils.data import DataLoader

from shoal.data.sources.formats import encode_idx
from shoal.models.lenet import lenet
from shoal.report.folder import write_files
from shoal_labs.handout.start import skeleton, solution
from shoal_labs.lab3.solution.check_sampler import faults, main
from shoal_labs.lab3.solution.model import Net, parse_args
from shoal_labs.lab3.solution.sampler import MyRandomSampler, MySampler

LIMIT_S = 180


def lay_out(folder, files, samples=193):
    """The files of a hand-out, with data as small as a test needs; no number of nodes divides them evenly."""
    write_files(folder, {path: content for path, content in files.items() if path.parent.name != "data"})
    generator = torch.Generator().manual_seed(0)
    for part, count in (("train", samples), ("t10k", 40)):
        labels = torch.randint(0, 10, (count,), generator=generator, dtype=torch.uint8)
        pictures = torch.randint(0, 256, (count, 28, 28), generator=generator, dtype=torch.uint8)
        for name, array in (("images-idx3-ubyte", pictures), ("labels-idx1-ubyte", labels)):
            path = folder / "task3" / "data" / f"{part}-{name}"
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(encode_idx(array))
    return folder / "task3"


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def run(folder, worlds):
    """Run worlds of so many nodes side by side, each node as a student does in a terminal; the worlds' outputs."""
    started = []
    for nodes in worlds:
        flags = [f"--n_devices={nodes}", f"--master_port={free_port()}", "--passes=1", "--lr=0.05"]
        for rank in range(nodes):
            process = subprocess.Popen(
                [sys.executable, "model.py", *flags, f"--rank={rank}"],
                cwd=folder,
                env={"OMP_NUM_THREADS": "1", "PATH": ""},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            started.append((nodes, process))
    outputs = dict.fromkeys(worlds, "")
    try:
        for nodes, process in started:
            outputs[nodes] += process.communicate(timeout=LIMIT_S)[0]
    finally:
        for _, process in started:
            process.kill()
    assert not any(process.returncode for _, process in started), outputs
    return outputs


def test_two_terminals_end_with_the_weights_of_one_machine(tmp_path):
    """97 and 96 samples in steps of 32: the last step has one sample on one node, and none on the other."""
    sums = {}
    for nodes, output in run(lay_out(tmp_path, solution("3")), (1, 2)).items():
        found = re.findall(r"sum of weights (-?[\d.]+)", output)
        assert len(found) == nodes
        assert len(set(found)) == 1
        sums[nodes] = float(found[0])
        assert re.search(r"epoch 1  loss [\d.]+  test accuracy", output)
    assert sums[2] == pytest.approx(sums[1], abs=1e-3)


def test_the_skeleton_tells_its_first_task_and_comes_with_digits(tmp_path):
    files = skeleton("3", "zh")
    assert sum(path.suffix == ".gz" for path in files) == 4
    done = subprocess.run(
        [sys.executable, "check_sampler.py"],
        cwd=lay_out(tmp_path, files),
        env={"OMP_NUM_THREADS": "1", "PATH": ""},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert "NotImplementedError: Task " in done.stderr


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


def test_the_hand_out_needs_torch_alone():
    for path, text in solution("3").items():
        if path.suffix == ".py":
            assert "shoal" not in text
