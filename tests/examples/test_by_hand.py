"""The examples that go step by step: what they print is checked."""

import runpy
import sys
from pathlib import Path

from shoal.cli.main import main

EXAMPLES = Path(__file__).parents[2] / "examples"
FORWARD = """
p = tensor([2., 5.])
n = tensor([3., 4.])
v0 = p + n
v1 = v0 * n
total = v1.sum()
"""
GRAD = """
dtotal -----
v3 = v2.expand([2])
v4 = v3 * n
v5 = v3 * v0
v6 = v5 + v4
dtotal_dtotal = v2
dtotal_dv1 = v3
dtotal_dv0 = v4
dtotal_dn = v6
dtotal_dp = v4
-----
d total / d p = tensor([3., 4.])
d total / d n = tensor([ 8., 13.])
"""


def test_the_tape_prints_every_operation_and_every_gradient(capsys):
    runpy.run_path(str(EXAMPLES / "tape.py"), run_name="__main__")
    printed = capsys.readouterr().out
    steps = printed.split("\n\n")
    assert len(steps) == 6
    assert steps[0].endswith(FORWARD.rstrip())
    assert "entry 1: ['v0', 'n'] -> ['v1']" in steps[1]
    assert "d total / d n = tensor([ 8., 13.])   by hand: p + 2 n = tensor([ 8., 13.])" in steps[2]
    assert steps[3].endswith(FORWARD + GRAD.strip())
    assert "slope 0.786448   by hand 0.786448" in steps[4]
    assert "bend -0.726862   by hand -0.726862" in steps[4]
    assert steps[5].rstrip().endswith("d total / d p = tensor([3., 4.])\nd total / d n = tensor([ 8., 13.])")


def averaged(workers, *flags):
    program = str(EXAMPLES / "average_gradients.py")
    assert main(["launch", "--workers", str(workers), "--launcher", "threads", program, *flags]) == 0


def test_averaged_gradients_give_the_losses_of_one_machine(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["average_gradients.py"])
    runpy.run_path(str(EXAMPLES / "average_gradients.py"), run_name="__main__")
    alone = capsys.readouterr().out
    assert alone.count("loss") == 5
    averaged(3)
    assert capsys.readouterr().out == alone
    averaged(2, "--sizes", "0.9,0.1")
    assert capsys.readouterr().out == alone
    averaged(2, "--sizes", "0.9,0.1", "--plain-mean")
    assert capsys.readouterr().out != alone
