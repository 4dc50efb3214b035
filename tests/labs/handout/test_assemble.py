"""A student's file is assembled from a solution and from the code that several solutions share."""

import ast
import sys

import pytest

from shoal_labs.catalogue import LABS
from shoal_labs.handout.assemble import assembled
from shoal_labs.handout.start import skeleton, solution

HAND_OUTS = [number for number, lab in LABS.items() if lab.hand_out]


def programs(files):
    return {path: text for path, text in files.items() if path.suffix == ".py"}


def test_shared_code_is_copied_with_what_it_uses():
    source = '"""Prints."""\n\nfrom shoal_labs.handout.common import Net as Net\n'
    source += (
        "from shoal_labs.lab9.solution.other import it\n\nLIMIT = 1\n\n\ndef main():\n    it(Net(), LIMIT)\n"
    )
    program = assembled(source, "shoal_labs.lab9.solution")
    names = [getattr(node, "name", "") for node in ast.parse(program).body]
    assert [name for name in names if name] == ["convolutions", "fully_connected", "Net", "main"]
    assert program.index("LIMIT = 1") < program.index("def convolutions")
    assert "from other import it\n" in program
    assert "from torch import Tensor, nn\n" in program
    assert "shoal_labs" not in program
    assert "argparse" not in program


def imports(program):
    """(module, name) of every import of a program."""
    for node in ast.walk(ast.parse(program)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            for name in node.names:
                module = (getattr(node, "module", "") or name.name).partition(".")[0]
                yield module, name.asname or name.name.partition(".")[0]


@pytest.mark.parametrize("number", HAND_OUTS)
def test_a_hand_out_needs_torch_alone(number):
    for files in (solution(number), skeleton(number, "en")):
        beside = {path.stem for path in files}
        for program in programs(files).values():
            modules = {module for module, _ in imports(program)}
            assert modules <= {"torch", "matplotlib", *beside, *sys.stdlib_module_names}


@pytest.mark.parametrize("number", HAND_OUTS)
def test_a_solution_uses_all_that_it_imports(number):
    for path, program in programs(solution(number)).items():
        used = {node.id for node in ast.walk(ast.parse(program)) if isinstance(node, ast.Name)}
        assert {name for _, name in imports(program)} <= used, path


@pytest.mark.parametrize("number", HAND_OUTS)
def test_nothing_is_defined_twice(number):
    for program in programs(solution(number)).values():
        names = [node.name for node in ast.parse(program).body if hasattr(node, "name")]
        assert len(names) == len(set(names))
