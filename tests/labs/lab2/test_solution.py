import ast
import re
import socket
import subprocess
import sys
from pathlib import PurePosixPath

import pytest
import torch

from shoal.data.idx import encode_idx
from shoal.labs.lab2.solution.model import Net, batches, load_data, parse_args
from shoal.labs.start import skeleton, solution
from shoal.models.lenet import lenet
from shoal.report.folder import write_files

LIMIT_S = 90


def lay_out(folder, files, samples=192):
    """The files of a hand-out, with data as small as a test needs."""
    write_files(folder, {path: content for path, content in files.items() if path.parent.name != "data"})
    generator = torch.Generator().manual_seed(0)
    for part, count in (("train", samples), ("t10k", 40)):
        labels = torch.randint(0, 10, (count,), generator=generator, dtype=torch.uint8)
        pictures = torch.randint(0, 256, (count, 28, 28), generator=generator, dtype=torch.uint8)
        for name, array in (("images-idx3-ubyte", pictures), ("labels-idx1-ubyte", labels)):
            path = folder / "task2" / "data" / f"{part}-{name}"
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(encode_idx(array))
    return folder / "task2"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return lay_out(tmp_path_factory.mktemp("solution"), solution("2"))


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def run(folder, *scripts):
    """Run programs side by side as a student does; their output, together."""
    flags = ["--master_port", str(free_port()), "--passes", "1", "--lr", "0.05"]
    started = [
        subprocess.Popen(
            [sys.executable, *script.split(), *flags],
            cwd=folder,
            env={"OMP_NUM_THREADS": "1", "PATH": ""},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for script in scripts
    ]
    try:
        outputs = [process.communicate(timeout=LIMIT_S)[0] for process in started]
    finally:
        for process in started:
            process.kill()
    assert [process.returncode for process in started] == [0] * len(started), outputs
    return "".join(outputs)


def ends(output):
    """Test accuracy and sum of weights that every node ended with."""
    return re.findall(r"test accuracy ([\d.]+) %  sum of weights (-?[\d.]+)", output)


def test_two_terminals_and_one_command_end_with_the_same_weights(folder):
    by_hand = ends(run(folder, "model.py --n_devices=2 --rank=0", "model.py --n_devices=2 --rank=1"))
    spawned = ends(run(folder, "model-mp.py --n_devices=2 --average allgather"))
    assert len(by_hand) == len(spawned) == 2
    assert len({*by_hand, *spawned}) == 1
    alone = ends(run(folder, "model.py --n_devices=1"))
    assert float(alone[0][1]) == pytest.approx(float(by_hand[0][1]), abs=1e-3)  # three steps: only rounding


def test_everyone_waits_for_the_slow_node(folder):
    output = run(folder, "model-mp.py --n_devices=2 --average reduce --bottleneck 1 --delay 0.4")
    averaging = {
        int(rank): float(ms) for rank, ms in re.findall(r"node (\d)  reduce: ([\d.]+) ms of", output)
    }
    assert averaging[0] > 100  # the delay is spent before the collective, and so by the other node as well


def test_the_network_is_the_labs_lenet():
    assert [p.shape for p in Net().parameters()] == [p.shape for p in lenet().parameters()]


def test_the_nodes_parts_are_the_batch():
    whole = batches(100, 24, 1, 0, seed=3)
    parts = [batches(100, 24, 3, rank, seed=3) for rank in range(3)]
    assert len(whole) == 4
    for batch, *mine in zip(whole, *parts, strict=True):
        assert sorted(torch.cat(mine).tolist()) == sorted(batch.tolist())


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_the_skeleton_comes_with_digits_and_runs_up_to_its_first_task(tmp_path, lang):
    files = skeleton("2", lang)
    write_files(tmp_path, files)
    pictures, labels = load_data(tmp_path / "task2" / "data", "t10k")
    assert pictures.shape[1:] == (1, 28, 28)
    assert labels.unique().tolist() == list(range(10))
    done = subprocess.run(
        [sys.executable, "model.py", "--n_devices=1", "--master_port", str(free_port())],
        cwd=tmp_path / "task2",
        env={"OMP_NUM_THREADS": "1", "PATH": ""},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert "NotImplementedError: Task train_step: " in done.stderr


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
    nodes = re.findall(r"python -u model\.py (.*)", compose)
    given = [parse_args(flags.split()) for flags in nodes]
    assert [(args.n_devices, args.rank) for args in given] == [(2, 0), (2, 1)]
    assert all(f"\n  {args.master_addr}:\n" in compose for args in given)
    assert parse_args(["--gpu=0"]).gpu == 0


def test_the_hand_out_needs_torch_alone():
    for path, text in solution("2").items():
        if path.suffix == ".py":
            assert "shoal" not in text
    assert PurePosixPath("task2/data/train-images-idx3-ubyte.gz") in solution("2")
