"""Programs that begin at once: forked from an interpreter that has loaded torch already, and otherwise like any other.

A program runs as `__main__`, in its folder, with its own environment; it ends as an interpreter does, with its exit
code, its traceback on standard error, and everything that is to happen at exit. Starting Python and loading torch takes
seconds; this takes milliseconds.
"""

import gc
import importlib
import json
import os
import runpy
import select
import subprocess
import sys
import time
from pathlib import Path


class Program:
    """A program under way, as its starter sees it."""

    def __init__(self, nursery, pid, folder, name):
        self._nursery, self.pid = nursery, pid
        self._outputs = folder / f"{name}.out", folder / f"{name}.err"

    @property
    def returncode(self):
        """As `subprocess` gives it: None while it runs, below 0 for a signal."""
        self._nursery.listen(0)
        return self._nursery.codes.get(self.pid)

    def send_signal(self, number):
        if self.returncode is None:
            os.kill(self.pid, number)

    def ended(self, within_s=60.0):
        """What it has printed, to standard output and to standard error, once it has ended; it must end by itself."""
        deadline = time.monotonic() + within_s
        while self.returncode is None:
            assert time.monotonic() < deadline, f"still running after {within_s} s: {self.said()}"
            self._nursery.listen(0.02)
        return self.said()

    def said(self):
        return tuple(path.read_text() if path.exists() else "" for path in self._outputs)


class Nursery:
    """The interpreter that programs are forked from."""

    def __init__(self, environment, *modules):
        """Beside torch and the groups, it loads these modules in advance."""
        command = [sys.executable, __file__, *modules]
        self._process = subprocess.Popen(command, env=environment, stdin=-1, stdout=-1)
        self._unread = b""
        self._begun = []
        self.codes = {}
        """Exit codes of the programs that have ended."""

    def start(self, text, folder, name, **environment):
        """Start a program with this text, and these variables beside the nursery's own."""
        (folder / f"{name}.py").write_text(text)
        request = json.dumps({"folder": str(folder), "name": name, "environment": environment})
        self._process.stdin.write(request.encode() + b"\n")
        self._process.stdin.flush()
        while not self._begun:
            self.listen(60)
        return Program(self, self._begun.pop(), folder, name)

    def listen(self, timeout_s):
        """Take in what the nursery tells."""
        if not select.select([self._process.stdout], [], [], timeout_s)[0]:
            return
        data = os.read(self._process.stdout.fileno(), 1 << 16)
        assert data, "the nursery has ended"
        *lines, self._unread = (self._unread + data).split(b"\n")
        for line in lines:
            pid, code = json.loads(line)
            if code is None:
                self._begun.append(pid)
                self.codes.pop(pid, None)  # of an earlier program with the same number
            else:
                self.codes[pid] = code

    def close(self):
        self._process.stdin.close()
        self._process.wait(10)
        self._process.stdout.close()


def next_request():
    """Start what is asked for, and tell of the ends, until the input ends. Returns in every child, with its request."""
    children, unread = set(), b""
    while True:
        if select.select([0], [], [], 0.01)[0]:
            data = os.read(0, 1 << 16)
            if not data:
                raise SystemExit
            *lines, unread = (unread + data).split(b"\n")
            for line in lines:
                pid = os.fork()
                if pid == 0:
                    return json.loads(line)
                children.add(pid)
                tell(pid, None)
        for pid in tuple(children):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                children.remove(pid)
                tell(pid, os.waitstatus_to_exitcode(status))


def tell(pid, code):
    os.write(1, json.dumps([pid, code]).encode() + b"\n")


def main():
    import torch.distributed  # noqa: F401

    import shoal.comm.join
    import shoal.comm.over_torch.checked
    import shoal.comm.shared_memory.group  # noqa: F401

    for module in sys.argv[1:]:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()  # a child that ends would look through all that was loaded, and copy it page by page
    request = next_request()
    folder, name = Path(request["folder"]), request["name"]
    os.environ.update(request["environment"])
    if request["environment"].get("OWN_SESSION"):
        os.setsid()
    os.chdir(folder)
    for descriptor, suffix in ((1, "out"), (2, "err")):
        file = os.open(folder / f"{name}.{suffix}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, descriptor)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.argv = [str(folder / f"{name}.py")]
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
