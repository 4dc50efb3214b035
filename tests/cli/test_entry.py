"""Ctrl-C in the first moments of the command: one word and an exit code."""

import subprocess
import sys

import pytest

PROGRAM = """
import os, signal, sys
from shoal.cli.entry import main

class InterruptedImport:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, InterruptedImport())
sys.argv[1:] = ["train", "--help"]
raise SystemExit(main())
"""


@pytest.mark.parametrize("module", ["shoal.cli.main", "shoal.cli.command", "shoal.cli.train"])
def test_ctrl_c_while_the_command_loads_is_one_word(module):
    program = PROGRAM.format(module=module)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (130, "interrupted\n")


def test_a_handler_of_the_callers_stays():
    program = "import signal; signal.signal(2, signal.SIG_IGN)" + PROGRAM.format(module="shoal.cli.main")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_ctrl_c_while_python_exits_keeps_the_exit_code():
    program = (
        "import os, sys\n"
        "from shoal.cli.entry import main\n"
        "class Late:\n"
        "    def __init__(self): self.kill, self.pid = os.kill, os.getpid()\n"
        "    def __del__(self): self.kill(self.pid, 2)\n"
        "sys.late = Late()  # `sys` is cleared after Python has given its handlers up\n"
        "sys.argv[1:] = ['--version']\n"
        "raise SystemExit(main())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("broken", ["full", "pipe"])
def test_a_broken_standard_error_keeps_the_exit_code(broken):
    program = (
        "import os, sys\n"
        f"reader, writer = os.pipe() if {broken!r} == 'pipe' else (os.dup(0), os.open('/dev/full', os.O_WRONLY))\n"
        "os.close(reader)\n"
        "os.dup2(writer, 2)\n"
        "from shoal.cli.entry import main\n"
        "sys.argv[1:] = ['train', '--no-such-flag']\n"
        "raise SystemExit(main())"
    )
    done = subprocess.run([sys.executable, "-c", program], timeout=60, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 2


def test_a_thread_that_still_waits_changes_neither_exit_code_nor_output_nor_files(tmp_path):
    program = (
        "import atexit, threading\n"
        "import shoal.cli.main\n"
        "from shoal.cli.entry import main\n"
        "def command():\n"
        "    threading.Thread(target=threading.Event().wait, daemon=True).start()\n"
        "    atexit.register(print, 'cleaned up')\n"
        "    print('done')\n"
        "    command.log = open('log.txt', 'w')\n"
        "    command.log.write('never closed')\n"
        "    return 3\n"
        "shoal.cli.main.main = command\n"
        "main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, cwd=tmp_path
    )
    assert (done.returncode, done.stdout) == (3, "done\ncleaned up\n")
    assert (tmp_path / "log.txt").read_text() == "never closed"
