"""Ctrl-C while torch loads, with a module in torch's place that swallows every interrupt, as native code does."""

import subprocess
import sys

import pytest

LOADING = """
import os, signal
try:
    os.kill(os.getpid(), signal.SIGINT)
    for _ in range(1000): pass
except BaseException:
    pass
"""
PROGRAM = """
import sys
sys.path.insert(0, {folder!r})
from shoal.cli.interrupts import ending_while_torch_loads
try:
    with ending_while_torch_loads():
        import {module}
    print("lost")
except KeyboardInterrupt:
    print("raised")
"""


@pytest.mark.parametrize(("module", "code", "said"), [("torch", 130, ""), ("mine", 0, "lost\n")])
def test_an_interrupt_is_not_lost_while_torch_loads(tmp_path, module, code, said):
    (tmp_path / f"{module}.py").write_text(LOADING)
    program = PROGRAM.format(folder=str(tmp_path), module=module)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (code, said), done.stderr
    assert ("interrupted" in done.stderr) == (code == 130)
    assert "Traceback" not in done.stderr


def test_elsewhere_it_is_an_ordinary_keyboard_interrupt():
    program = PROGRAM.format(folder="", module="os; os.kill(os.getpid(), 2)")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout == "raised\n", done.stderr
