import ast
import re

import pytest
from handed_out import forked, free_port, lay_out, side_by_side

from shoal.models.lenet import lenet
from shoal_labs.handout.start import skeleton, solution
from shoal_labs.lab4.solution.model import ConvStage, FcStage, parse_args, stage_workers


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return lay_out(tmp_path_factory.mktemp("solution"), solution("4"), "task4", samples=160)


WORLDS = {
    "spawn": ("--n_devices=1",),
    "by hand": ("--n_devices=2 --rank=0 --microbatches=4", "--n_devices=2 --rank=1"),
}
"""One command, one process with both stages; two terminals, where the driver holds a stage. test_check.py has three."""


def test_every_launch_ends_with_the_weights_of_one_process(folder, nursery):
    def commands(name):
        port = free_port()
        return [f"model.py {flags} --master_port {port} --passes 1 --lr 0.05" for flags in WORLDS[name]]

    codes, printed = side_by_side(folder, *commands("spawn"))
    of_two, said = forked(nursery, folder, *commands("by hand"))
    codes, printed = codes + of_two, printed + said
    assert codes == [0, 0, 0], printed
    ends = re.findall(r"test accuracy ([\d.]+) %  sum of weights (-?[\d.]+)", "".join(printed))
    assert len(ends) == len(WORLDS)
    # Three steps: what they differ by is rounding.
    for accuracy, weights in ends:
        assert accuracy == ends[0][0]
        assert float(weights) == pytest.approx(float(ends[0][1]), abs=1e-3)


def test_the_stages_are_the_labs_lenet():
    shapes = [p.shape for stage in (ConvStage(), FcStage()) for p in stage.parameters()]
    assert shapes == [p.shape for p in lenet().parameters()]


def test_the_driver_holds_a_stage_only_if_workers_are_few():
    assert stage_workers(1) == ("worker0", "worker0")
    assert stage_workers(2) == ("worker0", "worker1")
    assert stage_workers(3) == stage_workers(4) == ("worker1", "worker2")


def test_the_course_finds_its_names_and_its_flags():
    files = {path.name: text for path, text in skeleton("4", "en").items()}
    functions = {
        node.name: [arg.arg for arg in node.args.args]
        for node in ast.parse(files["dist_utils.py"]).body
        if isinstance(node, ast.FunctionDef)
    }
    assert functions["dist_init"] == ["world_size", "rank", "master_addr", "master_port"]
    assert functions["init_parameters"][0] == "model"
    compose = files["docker-compose.yml"]
    nodes = re.findall(r"command: \[python, -u, model\.py, (.*)\]", compose)
    given = [parse_args(flags.split(", ")) for flags in nodes]
    assert [(args.n_devices, args.rank) for args in given] == [(3, 0), (3, 1), (3, 2)]
    assert all(f"\n  {args.master_addr}:\n" in compose for args in given)
    assert parse_args(["--gpu=0"]).gpu == 0
