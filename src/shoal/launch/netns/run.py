"""Run a task on the nodes of a virtual cluster: an agent in each starts its workers, as on machines of their own."""

import os
import subprocess
from collections.abc import Sequence
from functools import partial

from shoal.comm.rendezvous.secret import without_secret
from shoal.errors import ConfigError
from shoal.launch.cores import threads_per_worker
from shoal.launch.hosts.remote import AGENT, Job, Machine, run
from shoal.launch.netns.cluster import Node
from shoal.launch.process.processes import ProcessTask, interpreter
from shoal.launch.supervise import Listener, Policy


def on_nodes(
    task: ProcessTask,
    nodes: Sequence[Node],
    workers: int,
    listener: Listener | None = None,
    policy: Policy | None = None,
) -> None:
    """Run a task in so many workers, divided evenly: the first nodes have one more if they must."""
    each, more = divmod(workers, len(nodes))
    if not each:
        raise ConfigError(
            f"{len(nodes)} nodes for {workers} workers", "Use at least one worker for each node."
        )
    machines = [
        Machine(node.name, each + (number < more), partial(_connect, node))
        for number, node in enumerate(nodes)
    ]
    # All nodes share the cores of this machine.
    threads = os.environ.get("OMP_NUM_THREADS", str(threads_per_worker(workers)))
    quiet = os.environ.get(
        "TORCH_CPP_LOG_LEVEL", "ERROR"
    )  # torch warns of addresses that no name server knows
    environment = {"OMP_NUM_THREADS": threads, "TORCH_CPP_LOG_LEVEL": quiet}
    run(Job(task, environment, nodes[0].address), machines, listener, policy)


def _connect(node: Node) -> "subprocess.Popen[bytes]":
    environment = without_secret(os.environ)
    command = [*interpreter(), AGENT]
    return node.start(command, environment, stdin=-1, stdout=-1, stderr=-1, start_new_session=True)
