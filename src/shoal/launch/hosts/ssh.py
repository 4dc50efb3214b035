"""Machines that the system's ssh reaches: how their agents are started there, and what of our environment they get."""

import os
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from shoal.comm.rendezvous import secret
from shoal.errors import ConfigError
from shoal.launch.hosts.remote import AGENT, Machine

OPTIONS = ("-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=15", "-o", "ServerAliveInterval=15")
"""No terminal there, no question here, and an end if the network is gone."""
PASSED_ON = ("GLOO_", "MKL_", "NCCL_", "OMP_", "PYTHON", "SHOAL_", "TORCH_")
"""How the names of variables begin that workers on other machines get, too."""
KEPT_HERE = (secret.VARIABLE, secret.FILE_VARIABLE, "SHOAL_BOARD", "PYTHONHOME", "PYTHONSTARTUP")


@dataclass(frozen=True)
class Way:
    """How this machine reaches the others, and where programs are there."""

    ssh: str = "ssh"
    """The command, with its own options, as a shell would read it."""
    python: str = sys.executable
    folder: str = ""
    """The working directory; empty: the path of this one."""


def machines_of(hosts: Sequence[str], workers: int, way: Way) -> list[Machine]:
    """The machines with these names, each with so many workers."""
    for host in hosts:
        if not host or host.startswith("-") or any(letter.isspace() for letter in host):
            raise ConfigError(
                f"--hosts: '{host}' is no name of a machine", "Write --hosts a,b or user@a,user@b."
            )
    return [Machine(host, workers, partial(_connect, host, way)) for host in hosts]


def _connect(host: str, way: Way) -> "subprocess.Popen[bytes]":
    # A session of its own: Ctrl-C is for the launcher, which tells the workers.
    command = [*ssh_command(way.ssh), host, remote_command(way)]
    try:
        return subprocess.Popen(command, stdin=-1, stdout=-1, stderr=-1, start_new_session=True)
    except OSError as error:
        raise ConfigError(
            f"cannot start {command[0]}: {error.strerror}",
            "Install OpenSSH's client, or name another: --ssh.",
        ) from None


def ssh_command(text: str) -> list[str]:
    """The words of the command; OpenSSH gets options with which it never waits for an answer.

    >>> ssh_command("ssh -p 2222")[:3], ssh_command("./my-ssh")
    (['ssh', '-p', '2222'], ['./my-ssh'])
    """
    words = shlex.split(text)
    if not words:
        raise ConfigError("--ssh names no program", "Leave it out for the system's ssh.")
    return [*words, *OPTIONS] if os.path.basename(words[0]) == "ssh" else words


def remote_command(way: Way) -> str:
    """The line for the shell of another machine.

    >>> remote_command(Way(python="/opt/my python", folder="/home/it's"))
    'cd \\'/home/it\\'"\\'"\\'s\\' && exec \\'/opt/my python\\' -P -m shoal.launch.hosts.agent'
    """
    folder = way.folder or os.getcwd()
    return f"cd {shlex.quote(folder)} && exec {shlex.quote(way.python)} -P -m {AGENT}"


def passed_on(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that workers on other machines get.

    >>> passed_on({"HOME": "/root", "OMP_NUM_THREADS": "1", "SHOAL_SECRET": "correct horse battery staple"})
    {'OMP_NUM_THREADS': '1'}
    """
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(PASSED_ON) and name not in KEPT_HERE
    }
