"""What the kernel knows about processes: those of a session, those of a trial, and the files they have mapped."""

import contextlib
import os
from pathlib import Path


def in_sessions(sessions):
    """Living processes of these sessions."""
    found = []
    for pid in pids():
        fields = read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
        if fields and fields[0] != b"Z" and int(fields[3]) in sessions:
            found.append(pid)
    return found


def working_in(folder):
    """Living processes whose current directory is the trial's folder: a forked worker has a session of its own."""
    found = []
    for pid in pids():
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/{pid}/cwd") == str(folder) and b") Z" not in read(f"/proc/{pid}/stat"):
                found.append(pid)
    return found


def tagged(folder):
    """Living processes that were started with the trial's folder in their environment."""
    tag = f"TRIAL={folder}".encode()
    return [
        pid
        for pid in pids()
        if tag in read(f"/proc/{pid}/environ").split(b"\0") and b") Z" not in read(f"/proc/{pid}/stat")
    ]


def pids():
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def in_use(name):
    """Whether a process has this file of /dev/shm mapped or open."""
    wanted = f"/dev/shm/{name}".encode()
    return any(wanted in read(f"/proc/{pid}/maps") for pid in pids())


def read(path):
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""
