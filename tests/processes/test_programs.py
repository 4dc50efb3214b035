"""Users' programs that call `shoal.join()` and are started by hand: how they end, and what the others hear of it."""

import re
import signal

import pytest
from launching import environment, state_of, wait_until
from nursery import Nursery

from shoal.comm.rendezvous.store import listen

KINDS = ["shm", "gloo"]
ENDS_S = 8.0
"""Long before the limit after which a silent member is given up, and before any timeout of torch's."""


@pytest.fixture(scope="module")
def nursery():
    nursery = Nursery(environment())
    yield nursery
    nursery.close()


@pytest.fixture
def by_hand(nursery, tmp_path):
    """Starts one process per rank of a program that has joined as `group`; none of them outlives the test."""
    started = []

    def start(kind, text, size=2, before="", limit_s=None):
        beginning = f"import os, signal, sys, time, torch, shoal\n{before}"
        beginning += f"torch.set_num_threads(1)\ngroup = shoal.join(kind='{kind}', limit_s={limit_s})\n"
        with listen("127.0.0.1", 0) as server:
            port = server.getsockname()[1]
        place = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        for rank in range(size):
            started.append(nursery.start(beginning + text, tmp_path, f"rank{rank}", RANK=str(rank), **place))
        return started

    yield start
    for program in started:
        program.send_signal(signal.SIGKILL)
        program.ended()


def stopped(program):
    return state_of(program.pid) == "T"


WAYS_OUT = {
    "an exception": "raise ValueError('no such column')",
    "the end of the program": "pass",
    "leaving in good order": "group.close()",
    "forgetting the group": "del work, group\nimport gc; gc.collect()",
    "waiting for it": "work.wait()",
    "a message": "group.send(torch.ones(10**7), 1).wait()",
}


@pytest.mark.parametrize("way", WAYS_OUT)
def test_a_stopped_peer_keeps_no_worker_from_ending(by_hand, tmp_path, way):
    """Rank 0 has work under way on connections to rank 1, which is stopped, and ends in every way there is."""
    text = (
        "group.barrier().wait()\n"
        "if group.rank == 1:\n"
        "    os.kill(os.getpid(), signal.SIGSTOP)\n"
        "while not os.path.exists('stopped'):\n"
        "    time.sleep(0.01)\n"
        "work = group.all_reduce(torch.ones(1000))\n"
    )
    first, second = by_hand("gloo", text + WAYS_OUT[way], limit_s=3.0)
    wait_until(lambda: stopped(second))
    (tmp_path / "stopped").touch()
    _, said = first.ended(ENDS_S)
    assert stopped(second), "the fault must have happened"
    assert ("it is stopped (SIGSTOP)" in said) == (way in ("waiting for it", "a message")), said


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("guilty", [0, 1])
def test_an_exception_that_ends_a_program_is_named_to_the_others(by_hand, kind, guilty):
    """Also where the store lives in the process that ends."""
    text = (
        f"if group.rank == {guilty}:\n"
        "    raise ValueError('no such column')\n"
        "group.all_reduce(torch.ones(1000)).wait()\n"
    )
    programs = by_hand(kind, text)
    said = [program.ended()[1] for program in programs]
    assert f"rank {guilty} failed: ValueError: no such column" in said[1 - guilty], said[1 - guilty]


@pytest.mark.parametrize("kind", KINDS)
def test_the_end_of_a_program_is_reported_as_leaving(by_hand, kind):
    text = "if group.rank == 1: sys.exit(3)\ngroup.all_reduce(torch.ones(1000)).wait()\n"
    programs = by_hand(kind, text)
    _, said = programs[0].ended()
    assert "rank 1 finished earlier, before all_reduce #" in said
    programs[1].ended()
    assert programs[1].returncode == 3


@pytest.mark.parametrize("kind", KINDS)
def test_a_forked_child_that_ends_is_not_the_end_of_its_parent(by_hand, kind):
    text = (
        "if group.rank == 1 and os.fork() == 0:\n"
        "    sys.exit()\n"
        "if group.rank == 1: os.wait()\n"
        "total = torch.ones(1)\n"
        "group.all_reduce(total).wait()\n"
        "print(total.item())\n"
    )
    for program in by_hand(kind, text):
        out, err = program.ended()
        assert (out, program.returncode) == ("2.0\n", 0), err


def test_rank_0_ends_last_because_the_store_lives_with_it(by_hand):
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
    programs = by_hand("gloo", text, size=3)
    outputs = [program.ended() for program in programs]
    assert outputs[2][0] == "[1.0, 1.0, 1.0]\n", outputs
    assert [program.returncode for program in programs] == [0, 0, 0]


@pytest.mark.parametrize("kind", KINDS)
def test_a_stop_of_rank_0_is_reported_though_the_store_is_stopped_too(by_hand, kind):
    text = (
        "group.barrier().wait()\n"
        "if group.rank == 0: os.kill(os.getpid(), signal.SIGSTOP)\n"
        "group.all_reduce(torch.ones(1000)).wait()\n"
    )
    programs = by_hand(kind, text, limit_s=3.0)
    wait_until(lambda: stopped(programs[0]))
    _, said = programs[1].ended(ENDS_S)
    assert "rank 0 has not reached all_reduce #" in said
    assert "it is stopped (SIGSTOP)" in said


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [2, 3])
def test_the_death_of_rank_0_is_named_though_the_store_is_gone_too(by_hand, kind, size):
    """At whatever moment: in a collective, in a message, between two."""
    text = (
        "group.barrier().wait()\n"
        "if group.rank == 0:\n"
        "    for turn in range(os.getpid() % 7): group.all_reduce(torch.ones(1000)).wait()\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "while True: group.all_reduce(torch.ones(1000)).wait()\n"
    )
    programs = by_hand(kind, text, size)
    for program in programs[1:]:
        _, said = program.ended(ENDS_S)
        assert "MemberError: rank 0 died before all_reduce #" in said
    assert programs[0].returncode == -signal.SIGKILL


def test_joining_twice_gives_the_same_group_and_the_wrapper_takes_it_too(by_hand):
    text = (
        "assert shoal.join() is group and shoal.join(kind='gloo') is group\n"
        "model = shoal.DistributedDataParallel(torch.nn.Linear(1, 1))\n"
        "model(torch.full((1, 1), float(group.rank))).sum().backward()\n"
        "assert model.module.weight.grad.item() == 0.5\n"
        "group.barrier().wait()\n"
    )
    for program in by_hand("gloo", text):
        _, said = program.ended()
        assert program.returncode == 0, said


# Long work of one rank is no reason to give it up.


@pytest.mark.parametrize("kind", KINDS)
def test_rank_0_may_work_alone_for_long_and_a_warning_shows_where_it_is(by_hand, kind):
    text = (
        "def evaluate_alone(): time.sleep(4)\n"
        "group.barrier().wait()\n"
        "if group.rank == 0: evaluate_alone()\n"
        "total = torch.ones(1)\n"
        "group.all_reduce(total).wait()\n"
        "print(total.item())\n"
    )
    before = "from shoal.comm.liveness import judge\njudge.WARN_AFTER_S = 1.5\n"
    outputs = [program.ended() for program in by_hand(kind, text, before=before)]
    assert [out for out, _ in outputs] == ["2.0\n"] * 2, outputs
    said = outputs[1][1]
    assert "SlowMemberWarning: rank 0 has not reached all_reduce #" in said
    assert re.search(r"it is alive, but has made no progress for \d", said)
    assert "at most 1800 s" in said
    assert "in evaluate_alone" in said


@pytest.mark.parametrize("late", [0, 1])
def test_a_rank_that_joins_late_is_waited_for_with_a_warning(by_hand, late):
    before = (
        "from shoal.comm.rendezvous import meet, store\n"
        "meet.WARN_AFTER_S = store.WARN_AFTER_S = 0.5\n"
        f"if int(os.environ['RANK']) == {late}: time.sleep(2)\n"
    )
    outputs = [program.ended() for program in by_hand("auto", "print(group.size)\n", before=before)]
    assert [out for out, _ in outputs] == ["2\n"] * 2, outputs
    assert outputs[late][1] == ""
    missing = "joined, these ranks have not: 1" if late else "rank 1 has found no store at 127.0.0.1:"
    assert missing in outputs[1 - late][1]
    assert "at most 1800 s" in outputs[1 - late][1]


def test_a_message_and_a_split_wait_longer_than_connecting_may_take(by_hand):
    """Torch would give a message up after the time that connecting may take."""
    before = (
        "from datetime import timedelta\n"
        "from shoal.comm.over_torch import group as over_torch, headers\n"
        "over_torch._CONNECT, headers.CONNECT_S = timedelta(seconds=2), 2.0\n"
    )
    text = (
        "message = torch.zeros(3)\n"
        "if group.rank == 1:\n"
        "    group.beat(300)\n"
        "    time.sleep(3)\n"
        "    group.send(torch.ones(3), 0).wait()\n"
        "    time.sleep(3)\n"
        "else:\n"
        "    group.recv(message, 1).wait()\n"
        "smaller = group.split([0, 1])\n"
        "smaller.all_reduce(message).wait()\n"
        "print(message.tolist())\n"
    )
    for program in by_hand("gloo", text, before=before):
        out, err = program.ended()
        assert out == "[1.0, 1.0, 1.0]\n", err


def test_a_limit_from_the_environment_is_kept(by_hand):
    text = "if group.rank == 0: time.sleep(60)\ngroup.barrier().wait()\n"
    _, second = by_hand("shm", text, before="os.environ['SHOAL_TIMEOUT_S'] = '1.5'\n")
    _, said = second.ended(ENDS_S)
    assert "MemberTimeoutError: rank 0 has not reached barrier #" in said
    assert re.search(r"no progress for [1-9]\.\d s", said), "long before the default"
    assert "Set another limit with SHOAL_TIMEOUT_S" in said


# Several machines. Each rank has an address of its own and sees no process of the others, as if it were alone.

APART = """
from shoal.comm import join
from shoal.comm.rendezvous import meet
rank = int(os.environ["RANK"])
join.own_address = lambda host, port: f"127.0.0.{rank + 1}"
meet.Card.shares_machine_with = lambda mine, other: mine.rank == other.rank
meet.socket.gethostname = lambda: f"host{rank}"
"""


def test_workers_of_several_machines_find_each_other(by_hand):
    text = "total = torch.tensor(float(rank))\ngroup.all_reduce(total).wait()\n"
    text += "smaller = group.split([0, 2] if rank != 1 else [1])\nsmaller.all_reduce(total).wait()\n"
    text += "print(type(group).__name__, total.item())\n"
    programs = by_hand("auto", text, 3, APART)
    assert [program.ended() for program in programs] == [
        (f"CheckedGroup {total}\n", "") for total in (6.0, 3.0, 6.0)
    ]


LOST = {
    (
        "SIGSTOP",
        0,
    ): "rank 0 on host0 is gone before all_reduce #{number}, and with it the store where workers meet "
    "(no answer for 1.5 s)",
    ("SIGSTOP", 1): "rank 1 on host1 has not reached all_reduce #{number}: silent for ",
    (
        "SIGKILL",
        0,
    ): "rank 0 on host0 is gone before all_reduce #{number}, and with it the store where workers meet ",
    ("SIGKILL", 1): "rank 1 on host1 hung up before all_reduce #{number}",
}


@pytest.mark.parametrize(("how", "victim"), LOST)
def test_the_loss_of_another_machine_is_named(by_hand, how, victim):
    """A machine that is stopped is like one whose network is down: it does not answer, and no connection breaks."""
    text = f"group.barrier().wait()\nif rank == {victim}: os.kill(os.getpid(), signal.{how})\n"
    text += "group.all_reduce(torch.ones(1000)).wait()\n"
    programs = by_hand("gloo", text, 2, APART, limit_s=1.5)
    _, said = programs[1 - victim].ended(ENDS_S)
    kind = "MemberTimeoutError" if (how, victim) == ("SIGSTOP", 1) else "MemberError"
    assert f"{kind}: {LOST[how, victim].format(number=3)}" in said
    assert f"the network to host{victim} is down" in said


@pytest.mark.parametrize("victim", [2, 0])
def test_every_survivor_of_a_kill_names_the_right_machine(by_hand, tmp_path, victim):
    """At any moment: between two collectives, in the data of one, or long after the others have given up."""
    text = (
        "buffer, turn = torch.ones(300_000), 0\n"
        "while True:\n"
        "    group.all_reduce(buffer).wait()\n"
        "    turn += 1\n"
        f"    if rank == {victim} and turn == 5: os.kill(os.getpid(), signal.SIGKILL)\n"
        "    buffer.fill_(1.0)\n"
        "    time.sleep(1.5 if rank == 3 and turn == 5 else 0.002 * rank)\n"
    )
    programs = by_hand("gloo", text, 4, APART)
    said = [program.ended()[1] for program in programs]
    assert programs[victim].returncode == -signal.SIGKILL
    sentence = f"MemberError: rank {victim} on host{victim} " + (
        "hung up before" if victim else "is gone before"
    )
    assert [sentence in text for text in said] == [rank != victim for rank in range(4)], said


@pytest.mark.parametrize("kind", KINDS)
def test_a_join_ends_although_the_process_that_holds_the_store_is_stopped(by_hand, kind):
    before = (
        "import shoal.comm.join as joining\n"
        "meet, join = joining.meet, shoal.join\n"
        "def stop_after(*given, **more):\n"
        "    cards = meet(*given, **more)\n"
        "    if os.environ['RANK'] == '0': os.kill(os.getpid(), signal.SIGSTOP)\n"
        "    return cards\n"
        "joining.meet = stop_after\n"
        "shoal.join = lambda **given: join(timeout_s=1, **given)\n"
    )
    first, second = by_hand(kind, "", before=before)
    _, said = second.ended(30)
    assert stopped(first), "the fault must have happened"
    assert "JoinTimeoutError: rank 1 has had no answer from the store at 127.0.0.1:" in said
    assert "for 1 s" in said
    assert "SHOAL_TIMEOUT_S" in said
