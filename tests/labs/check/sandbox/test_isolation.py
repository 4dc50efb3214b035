"""A process in a sandbox: what it can write, reach and start."""

import json
import os
import subprocess
import sys

import pytest

PROGRAM = """
import json, os, socket, subprocess, sys
from pathlib import Path
from shoal_labs.check.sandbox import isolation, kernel
from shoal_labs.check.sandbox.limits import Limits

own, other, outside = map(Path, sys.argv[1:])
sys.path.insert(0, str(own.parent / "packages"))
import below_tmp, shoal  # as in a worker

def tried(action, *args):
    try:
        action(*args)
    except OSError as error:
        return error.strerror.rpartition(": ")[2]
    return "done"

isolation.leave()
child = os.fork()
if child == 0:
    folder = isolation.settle(own, Limits())
    def connect():
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen()
            socket.create_connection(listener.getsockname()).close()
    def leave_network():
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
            any_socket.connect(("192.0.2.1", 9))
    interpreter = subprocess.run([sys.executable, "-c", "import numpy, shoal.errors"]).returncode
    after_another = 0
    try:
        while after_another < 600:
            os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)
            after_another += 1
    except BlockingIOError:
        pass
    started = 0
    try:
        while started < 2000:
            if os.fork() == 0:
                os._exit(0)
            started += 1
    except BlockingIOError:
        pass
    print(json.dumps({
        "sees": sorted(path.name for path in folder.iterdir()),
        "neighbour": other.exists(),
        "root": sorted(os.listdir("/")),
        "above the interpreter": [path for path in os.listdir(sys.prefix) if path not in isolation.OF_PYTHON],
        "processes": sorted(filter(str.isdigit, os.listdir("/proc")), key=int)[:1],
        "users": Path("/etc/passwd").read_text().count("\\n"),
        "interpreter": interpreter,
        "own folder": tried((folder / "new").write_text, "x"),
        "outside": tried(outside.write_text, "x"),
        "below /tmp": Path(below_tmp.__file__).read_text(),
        "replaced below /tmp": tried(Path(below_tmp.__file__).write_text, "x"),
        "moved below /tmp": tried(os.rename, *["/".join(below_tmp.__file__.split("/")[:3]) + end for end in ("", "2")]),
        "package": tried(Path(isolation.__file__).write_text, "x"),
        "loopback": tried(connect),
        "network": tried(leave_network),
        "remount": tried(kernel.mount, "tmpfs", "/usr", "tmpfs"),
        "namespace": tried(kernel.unshare, kernel.CLONE_NEWUSER),
        "started": started,
        "after another": after_another,
    }))
    sys.stdout.flush()
    os._exit(0)
os.waitpid(child, 0)
"""


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    root = tmp_path_factory.mktemp("students")
    own = os.fsdecode(b"own, \xd5\xc5:\xc8\xfd")
    for name in (own, "other"):
        (root / name).mkdir()
        (root / name / "model.py").write_text("")
    (root / "packages").mkdir()
    (root / "packages" / "below_tmp.py").write_text("# a package")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, root / own, root / "other", "/etc/shoal-test"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout, done.stderr
    return json.loads(done.stdout), root / own


def test_it_sees_its_own_folder_and_not_the_neighbours(seen):
    assert seen[0]["sees"] == ["model.py"]
    assert not seen[0]["neighbour"]


def test_of_the_rest_it_sees_what_python_needs(seen):
    assert seen[0]["interpreter"] == 0
    assert seen[0]["above the interpreter"] == []
    assert seen[0]["processes"] == ["1"]
    assert seen[0]["users"] == 1
    assert not {"boot", "mnt", "media", "srv"} & set(seen[0]["root"])


def test_what_it_writes_into_its_folder_is_not_kept(seen):
    assert seen[0]["own folder"] in ("done", "Read-only file system")
    assert [path.name for path in seen[1].iterdir()] == ["model.py"]


def test_nothing_else_can_be_written_and_mounts_cannot_be_changed(seen):
    assert seen[0]["outside"] == seen[0]["package"] == "Read-only file system"
    assert seen[0]["remount"] == "Operation not permitted"
    assert seen[0]["namespace"] != "done"


def test_packages_below_tmp_are_there_and_cannot_be_replaced(seen):
    assert seen[0]["below /tmp"] == "# a package"
    assert seen[0]["replaced below /tmp"] == "Read-only file system"
    assert seen[0]["moved below /tmp"] in ("Device or resource busy", "Read-only file system")


def test_it_reaches_itself_and_no_network(seen):
    assert seen[0]["loopback"] == "done"
    assert seen[0]["network"] == "Network is unreachable"


def test_it_starts_a_limited_number_of_processes(seen):
    assert 50 < seen[0]["started"] < 2000
    assert seen[0]["after another"] == 600
