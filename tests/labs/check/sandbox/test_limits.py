"""What processes use together, of real ones that hold memory or threads."""

import subprocess
import sys

import pytest

from shoal_labs.check.sandbox.limits import Limits, exceeded

PROGRAM = """
import os, sys, threading
threads, size = int(sys.argv[1]), 2**26
common = b"x" * size
for _ in range(2):
    if os.fork() == 0:
        own = b"x" * size
        break
stay = threading.Event()
for _ in range(threads):
    threading.Thread(target=stay.wait, daemon=True).start()
sys.stdout.write("x")
sys.stdout.flush()
sys.stdin.read()
"""


@pytest.fixture
def started(request):
    """A process with two children, each with 64 MiB of its own and 64 MiB that all three share; its number."""
    command = [
        sys.executable,
        "-c",
        f"import subprocess, sys; subprocess.run([sys.executable, '-c', {PROGRAM!r}, '{request.param}'])",
    ]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.read(3) == b"xxx"
        yield process.pid


@pytest.mark.parametrize(
    ("started", "memory_gib", "fault"),
    [(0, 0.15, "over_memory"), (0, 0.35, ""), (0, 8, ""), (40, 8, "over_processes")],
    indirect=["started"],
)
def test_memory_and_threads_count_for_all_processes_and_shared_memory_once(started, memory_gib, fault):
    assert exceeded(Limits(memory_gib=memory_gib, processes=100), "/proc", started) == fault
