"""Programs of many shapes: what they did is recorded, and a program that cannot be judged loses nothing."""

from pathlib import Path

import pytest
from course_programs import AVERAGES, LAB1, LAB2, OPTIMIZERS
from planted import graded
from recorded import recorded, step

from shoal.report.folder import write_files
from shoal_labs.check.fault import Check
from shoal_labs.check.program import Run, near, not_shown, steps_of
from shoal_labs.check.trial import faults_of, in_our_form


def test_steps_have_what_came_before_them_and_until_the_next_batch():
    node = recorded(
        ("pass", 240, "RandomSampler", None),
        ("batch", [3, 1]),
        ("loss", 2),
        ("backward", [0.0], [1.0]),
        step(),
        ("sleep", 0.1),
        ("batch", [2]),
        ("loss", 1),
        step(),
    )
    first, second = steps_of(node)
    assert (first.samples, first.whole, first.own_grads) == (2, 240, [1.0])
    assert [each.kind for each in first.after] == ["sleep"]
    assert (second.samples, second.own_grads) == (1, [0.0])
    assert not second.has("sleep")


def test_probes_are_compared_but_for_rounding():
    assert near([1.0, -5.0], [1.0 + 1e-6, -5.0])
    assert not near([1.0, -5.0], [1.0, -4.9])


def test_errors_that_stand_ins_may_cause_are_not_the_students():
    assert not_shown(Run(), "x")[0].key == "not_shown"
    assert not_shown(Run(stopped="enough"), "x")[0].key == "not_shown"
    assert not_shown(Run(stopped="FileNotFoundError: data"), "x")[0].key == "program_stops"
    assert not_shown(Run(stopped="SyntaxError: invalid"), "x")[0].key == "raises"


@pytest.mark.parametrize(
    ("source", "form"),
    [
        ("def train_step():\n    pass\n", "ours"),
        ("def load_data():\n    pass\n", "ours"),  # our hand-out, without the task
        ("def load_data(:\n    pass\n", "ours"),
        ("def train():\n    pass\n", "course"),
        (None, "course"),
    ],
)
def test_the_form_is_known_by_the_functions_of_our_hand_out(tmp_path, source, form):
    if source:
        (tmp_path / "model.py").write_text(source)
    check = Check(("train_step",), "model.py", given=("load_data",))
    assert in_our_form(check, tmp_path) == (form == "ours")
    if form == "course":
        assert [each.key for each in faults_of(check, tmp_path)] == ["not_in_course"]


def changed(program, *changes):
    for old, new in changes:
        assert old in program, old
        program = program.replace(old, new)
    return program


BY_HAND = 'if __name__ == "__main__":\n    args = parse_args()\n'
SLEEP = "            if bottleneck and rank == 1:\n                time.sleep(0.1)\n"
BATCH = "            inputs, labels = inputs.cuda(), labels.cuda()\n"
FLAG = '    parser.add_argument("--gpu", default="0", type=str)\n'
FLAGS = f"""{FLAG}    parser.add_argument("--method", choices=["allreduce", "allgather"], default="allreduce")
    parser.add_argument("--bottleneck_rank", type=int, default=-1)
    parser.add_argument("--delay", type=float, default=0.0)
"""
OWN_NODES = (BY_HAND, "def work(rank, args):\n    args.rank = rank\n")
SPAWN = """
if __name__ == "__main__":
    import torch.multiprocessing as mp
    args = parse_args()
    args.n_devices = 3
    mp.spawn(work, (args,), nprocs=3)
"""
PROCESSES = """
if __name__ == "__main__":
    from torch.multiprocessing import Process
    args = argparse.Namespace(n_devices=2, gpu="0", master_addr="localhost", master_port="29501")
    started = [Process(target=work, args=(rank, args)) for rank in range(2)]
    for process in started:
        process.start()
    for process in started:
        process.join()
"""
EVENTS = (
    (
        "            torch.cuda.synchronize()\n            start = time.time()\n",
        "            a, b = (torch.cuda.Event(enable_timing=True) for _ in range(2))\n            a.record()\n",
    ),
    (
        "            torch.cuda.synchronize()\n            spent += time.time() - start\n",
        "            b.record()\n            torch.cuda.synchronize()\n            spent += a.elapsed_time(b)\n",
    ),
)
SHAPES = {
    "flags": (
        "right",
        changed(
            LAB2,
            (FLAG, FLAGS),
            ('method in ("allreduce", "allgather")', "method in (args.method,)"),
            ("bottleneck in (False, True)", "bottleneck in (args.bottleneck_rank == args.rank,)"),
            ("if bottleneck and rank == 1:", "if bottleneck:"),
            ("time.sleep(0.1)", "time.sleep(args.delay)"),
        ),
    ),
    "three nodes of its own": ("right", changed(LAB2, OWN_NODES) + SPAWN),
    "processes of its own": ("right", changed(LAB2, OWN_NODES) + PROCESSES),
    "no guard": ("right", changed(LAB2, (BY_HAND, "if True:\n    args = parse_args()\n"))),
    "computes more": ("right", changed(LAB2, ("time.sleep(0.1)", "[model(inputs) for _ in range(5)]"))),
    "busy": (
        "right",
        changed(
            LAB2, ("time.sleep(0.1)", "t = time.time()\n                while time.time() - t < 0.05: pass")
        ),
    ),
    "sleeps first": ("right", changed(LAB2, (SLEEP, ""), (BATCH, SLEEP + BATCH))),
    "events": ("right", changed(LAB2, *EVENTS)),
    "processor": ("right", changed(LAB2, (".cuda()", ""), ("            torch.cuda.synchronize()\n", ""))),
    "needs a flag": (
        "not_asked",
        changed(LAB2, (FLAG, FLAG + '    parser.add_argument("--config", required=True)\n')),
    ),
    "needs data": ("not_asked", changed(LAB2, ("data = mnist(True)", 'data = torch.load("mine.pt")'))),
    "ends at once": ("not_asked", changed(LAB2, ("data = mnist(True)", "os._exit(0)"))),
    "sleeps in a branch that is not taken": ("not_asked", changed(LAB2, ("rank == 1:", "rank == 7:"))),
}
"""Verdict on train_step, and the program."""


@pytest.mark.long
@pytest.mark.timeout(900)
def test_right_programs_of_many_shapes_lose_nothing(tmp_path):
    folders = [Path(tmp_path, str(number)) for number in range(len(SHAPES))]
    for folder, (_, program) in zip(folders, SHAPES.values(), strict=True):
        write_files(folder, {"dist_utils.py": AVERAGES, "model.py": program})
    found = {
        shape: next((task.word, task.sentences) for task in grade.tasks if task.name == "train_step")
        for shape, grade in zip(SHAPES, graded("2", folders), strict=True)
    }
    assert {shape: word for shape, (word, _) in found.items()} == {
        shape: word for shape, (word, _) in SHAPES.items()
    }, found
    assert all(sentences for word, sentences in found.values() if word == "not_asked")


GATHERS = (
    (
        "            loss = loss_fn(model(inputs), labels)\n            optimizer.zero_grad()\n",
        "            loss = loss_fn(model(inputs), labels)\n            whole or optimizer.zero_grad()\n",
    ),
    ("            optimizer.step()\n", "            whole or optimizer.step()\n"),
    (
        "    return losses",
        "        if whole:\n            optimizer.step()\n            optimizer.zero_grad()\n    return losses",
    ),
    ("loss_fn, num_epochs=2)", "loss_fn, num_epochs=2, whole=False)"),
    ("nn.CrossEntropyLoss())", 'nn.CrossEntropyLoss(), whole=name == "gd")'),
    ("batch_size=len(data), shuffle", "batch_size=32, shuffle"),
)
NAMED = """
    import argparse, pandas
    from tqdm import tqdm
    parser = argparse.ArgumentParser()
    parser.add_argument("--optimizer", default="adam")
    names = [parser.parse_args().optimizer]
    data"""
BY_NAME = (("\n    data", NAMED), ('("gd", "sgd", "adam")', "names"))
GD_SHAPES = {
    "sums gradients of batches": ("right", changed(LAB1, *GATHERS)),
    "flag": ("right", changed(LAB1, *BY_NAME)),
    "flag, batches": ("partly", changed(LAB1, *BY_NAME, ("batch_size=len(data)", "batch_size=64"))),
    "never GD": ("not_asked", changed(LAB1, ('("gd", "sgd", "adam")', '("adam",)'))),
    "unknown package": ("not_asked", f"import no_such_package\n{LAB1}"),
    "no Python": ("wrong", f"{LAB1}\n  x = ("),
}
"""Verdict on batches, and the program."""


@pytest.mark.long
@pytest.mark.timeout(900)
def test_programs_that_train_with_gd_in_other_ways(tmp_path):
    folders = [Path(tmp_path, str(number)) for number in range(len(GD_SHAPES))]
    for folder, (_, program) in zip(folders, GD_SHAPES.values(), strict=True):
        write_files(folder, {"MyOptimizer.py": OPTIMIZERS, "model.py": program})
    found = {
        shape: next((task.word, task.sentences) for task in grade.tasks if task.name == "batches")
        for shape, grade in zip(GD_SHAPES, graded("1", folders), strict=True)
    }
    assert {shape: word for shape, (word, _) in found.items()} == {
        shape: word for shape, (word, _) in GD_SHAPES.items()
    }, found
