"""A wait in shared memory that ends at the last moment."""

import os
import threading

import torch

from shoal.comm.shared_memory.arena import Arena, ArenaLayout, Board
from shoal.comm.shared_memory.mail import Mail
from shoal.comm.shared_memory.progress import ProgressEngine, Roster
from shoal.comm.signature import Signature


def test_a_message_that_is_found_while_its_sender_is_judged_ends_the_wait(monkeypatch):
    """The sender sends and leaves after the receiver has found the message missing, before it looks at the sender."""
    arena = Arena.create(ArenaLayout(2).num_bytes)
    boards = [Board(arena, rank) for rank in range(2)]
    engines = [ProgressEngine(limit_s=10, num_workers=2) for _ in range(2)]
    mails = []
    for rank, engine in enumerate(engines):
        roster = Roster(boards, [0, 1], [os.getpid()] * 2, rank, boards)
        engine.rosters.append(roster)
        mails.append(Mail(engine, arena, roster))
    sent, received = torch.arange(3.0), torch.zeros(3)
    call = Signature("message", sent.dtype, sent.numel())
    facts = engines[1]._facts

    def facts_of_a_sender_that_leaves(*arguments, **named):
        if engines[0].rosters:
            mails[0].outgoing(1).issue(call, sent).wait()
            engines[0].fail(None)
            engines[0].rosters.clear()
        return facts(*arguments, **named)

    monkeypatch.setattr(engines[1], "_facts", facts_of_a_sender_that_leaves)
    waits = threading.Thread(target=mails[1].incoming(0).issue(call, received).wait, daemon=True)
    waits.start()
    waits.join(20)
    assert not waits.is_alive(), "the wait goes on though the message has come"
    assert torch.equal(received, sent)
    for engine in engines:
        engine.close()
