"""The frames of a thread that runs are read without harm to the process."""

import subprocess
import sys

PROGRAM = """
import gc, threading, time
from shoal.comm.threads.meetings import frames_of

class Cycle:
    def __init__(self):
        self.me = self

    def __del__(self):
        time.sleep(0.0002)  # the other thread runs meanwhile

def defined(count):
    names = ", ".join(f"v{each}" for each in range(count))
    scope = {}
    exec(f"def call(depth):\\n    {names} = range({count})\\n    return depth and others[depth % 7](depth - 1)", scope)
    return scope

scopes = [defined(count) for count in (2, 3, 5, 8, 13, 17, 23)]  # frames of different sizes
others = [scope["call"] for scope in scopes]
for scope in scopes:
    scope["others"] = others

def work():
    while is_running:
        for depth in range(9):
            others[(3 * depth) % 7](depth)

is_running = True
thread = threading.Thread(target=work, daemon=True)
thread.start()
gc.freeze()
for number in range(500):
    gc.collect()
    Cycle()
    gc.set_threshold(gc.get_count()[0] + 1 + number % 6)  # a collection would begin among the next few objects
    seen = frames_of(thread.ident)
    assert len(seen) < 20
is_running = False
thread.join()
assert gc.isenabled()
"""


def test_garbage_is_not_collected_while_frames_of_a_running_thread_are_read():
    """If it is, this program crashes in Python 3.11."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
