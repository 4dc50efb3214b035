"""Users' programs that call `shoal.join()` and are started by hand: how they end, and what the others hear of it."""

import os
import signal
import subprocess
import sys

import pytest
from launching import environment, wait_until

from shoal.comm.store import listen

KINDS = ["shm", "gloo"]
ENDS_S = 8.0
"""Before the 10 s of silence after which a member is given up, and long before any timeout of torch's."""


def by_hand(tmp_path, kind, text, size=2):
    """One process per rank of a program that has joined as `group`."""
    program = tmp_path / "program.py"
    program.write_text(
        f"import os, signal, sys, time, torch, shoal\ngroup = shoal.join(kind='{kind}')\n{text}"
    )
    with listen("127.0.0.1", 0) as server:
        port = server.getsockname()[1]
    place = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    return [
        subprocess.Popen(
            [sys.executable, str(program)],
            env=environment(RANK=str(rank), **place),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
        )
        for rank in range(size)
    ]


def ended(worker, within_s=60.0):
    """What a worker said; a worker that does not end by itself is a failure."""
    try:
        out, err = worker.communicate(timeout=within_s)
    finally:
        worker.kill()
    return out, err


def stopped(worker):
    return worker.poll() is not None or "State:\tT" in _status(worker.pid)


def _status(pid):
    with open(f"/proc/{pid}/status") as file:
        return file.read()


WAYS_OUT = {
    "an exception": "raise ValueError('no such column')",
    "the end of the program": "pass",
    "leaving in good order": "group.close()",
    "forgetting the group": "del work, group\nimport gc; gc.collect()",
    "waiting for it": "work.wait()",
    "a message": "group.send(torch.ones(10**7), 1).wait()",
}


@pytest.mark.parametrize("way", WAYS_OUT)
def test_a_stopped_peer_keeps_nobody_from_ending(tmp_path, way):
    """Rank 0 has work under way on connections to rank 1, which is stopped, and ends in every way there is."""
    text = (
        "group.barrier().wait()\n"
        "if group.rank == 1:\n"
        "    os.kill(os.getpid(), signal.SIGSTOP)\n"
        "    sys.exit()\n"
        "open('begun', 'w').close()\n"
        "while not os.path.exists('stopped'):\n"
        "    time.sleep(0.01)\n"
        "work = group.all_reduce(torch.ones(1000))\n"
    ) + WAYS_OUT[way]
    first, second = by_hand(tmp_path, "gloo", text)
    try:
        wait_until((tmp_path / "begun").exists)
        wait_until(lambda: stopped(second))
        assert second.poll() is None, "the fault must have happened"
        (tmp_path / "stopped").touch()
        _, said = ended(first, ENDS_S)
        assert ("it is stopped (SIGSTOP)" in said) == (way in ("waiting for it", "a message")), said
    finally:
        second.send_signal(signal.SIGKILL)
        ended(second)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("guilty", [0, 1])
def test_an_exception_that_ends_a_program_is_told_to_the_others(tmp_path, kind, guilty):
    """Also where the store lives in the process that ends."""
    text = (
        f"if group.rank == {guilty}:\n"
        "    raise ValueError('no such column')\n"
        "group.all_reduce(torch.ones(1000)).wait()\n"
    )
    workers = by_hand(tmp_path, kind, text)
    said = [ended(worker)[1] for worker in workers]
    assert f"rank {guilty} failed: ValueError: no such column" in said[1 - guilty], said[1 - guilty]


@pytest.mark.parametrize("kind", KINDS)
def test_the_end_of_a_program_is_told_as_leaving(tmp_path, kind):
    text = "if group.rank == 1: sys.exit(3)\ngroup.all_reduce(torch.ones(1000)).wait()\n"
    workers = by_hand(tmp_path, kind, text)
    _, said = ended(workers[0])
    assert "rank 1 left the group before all_reduce #" in said
    ended(workers[1])
    assert workers[1].returncode == 3


@pytest.mark.parametrize("kind", KINDS)
def test_a_forked_child_that_ends_is_not_the_end_of_its_parent(tmp_path, kind):
    text = (
        "if group.rank == 1 and os.fork() == 0:\n"
        "    sys.exit()\n"
        "if group.rank == 1: os.wait()\n"
        "total = torch.ones(1)\n"
        "group.all_reduce(total).wait()\n"
        "print(total.item())\n"
    )
    for worker in by_hand(tmp_path, kind, text):
        out, err = ended(worker)
        assert (out, worker.returncode) == ("2.0\n", 0), err


def test_rank_0_ends_last_because_the_store_lives_with_it(tmp_path):
    """The others still talk to each other, for longer than they wait before they ask the store."""
    text = (
        "if group.rank == 0:\n"
        "    sys.exit()\n"
        "if group.rank == 1:\n"
        "    time.sleep(1.5)\n"
        "    group.send(torch.ones(3), 2).wait()\n"
        "if group.rank == 2:\n"
        "    message = torch.zeros(3)\n"
        "    group.recv(message, 1).wait()\n"
        "    print(message.tolist())\n"
    )
    workers = by_hand(tmp_path, "gloo", text, size=3)
    outputs = [ended(worker) for worker in workers]
    assert outputs[2][0] == "[1.0, 1.0, 1.0]\n", outputs
    assert [worker.returncode for worker in workers] == [0, 0, 0]


@pytest.mark.parametrize("kind", KINDS)
def test_by_hand_a_stop_of_rank_0_is_told_though_the_store_is_stopped_too(tmp_path, kind):
    text = (
        "group.barrier().wait()\n"
        "if group.rank == 0: os.kill(os.getpid(), signal.SIGSTOP)\n"
        "group.all_reduce(torch.ones(1000)).wait()\n"
    )
    workers = by_hand(tmp_path, kind, text)
    try:
        wait_until(lambda: stopped(workers[0]))
        _, said = ended(workers[1], ENDS_S)
        assert "rank 0 has not reached all_reduce #" in said
        assert "it is stopped (SIGSTOP)" in said
    finally:
        os.kill(workers[0].pid, signal.SIGKILL)
        ended(workers[0])
