"""What tests of several machines share: virtual nodes, and a stand-in for ssh that starts commands in them."""

import contextlib
import json
import os
import subprocess
import sys

import pytest
from launching import environment

from shoal.launch.netns import enter
from shoal.launch.netns.cluster import VirtualCluster, missing_for_cluster

needs_nodes = pytest.mark.skipif(bool(missing_for_cluster()), reason=missing_for_cluster() or "-")

SSH = """#!{python} -ISE
import json, os, sys
host, command = sys.argv[1:]
pid, address = json.loads('''{nodes}''')[host]
os.environ["SSH_CONNECTION"] = f"10.213.7.250 40000 {{address}} 22"
os.environ.pop("PYTHONPATH", None)  # ssh passes no environment on
os.execv(sys.executable, [sys.executable, "-I", "-S", {enter!r}, str(pid), "sh", "-c", command])
"""


@contextlib.contextmanager
def nodes(num_nodes, folder, rate=None):
    """A cluster, and the flags of `shoal launch` for its nodes."""
    with VirtualCluster(num_nodes, rate) as cluster:
        ssh = folder / "stand-in-ssh"
        known = json.dumps({node.name: (node.pid, node.address) for node in cluster.nodes})
        ssh.write_text(SSH.format(python=sys.executable, nodes=known, enter=enter.__file__))
        ssh.chmod(0o755)
        yield cluster, ["--hosts", ",".join(node.name for node in cluster.nodes), "--ssh", str(ssh)]


def shoal(*words, **options):
    """The command, under way."""
    words = [sys.executable, "-m", "shoal", *map(str, words)]
    return subprocess.Popen(words, env=environment(), stdout=-1, stderr=-1, text=True, **options)


def processes_in(cluster):
    """Command lines of all processes in the nodes, but for the ones that hold them."""
    found = {}
    spaces = {os.readlink(f"/proc/{node.pid}/ns/pid_for_children") for node in cluster.nodes}
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/{pid}/ns/pid") in spaces:
                with open(f"/proc/{pid}/cmdline", "rb") as file:
                    found[int(pid)] = file.read()
    return {pid: line for pid, line in found.items() if line not in (b"", b"cat\0")}
