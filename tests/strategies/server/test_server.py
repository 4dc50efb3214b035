"""The loop of a server: what it does when a group raises in place of a request."""

from types import SimpleNamespace

import pytest

from shoal.errors import MemberError
from shoal.strategies.server.updates import answer_requests


class GivenUp:
    """A group that names the same dead member in every wait, as one does that has failed."""

    def recv(self, tensor, sender):
        return self

    def wait(self):
        raise MemberError("rank 1 died before recv", rank=1, reason="died")


def test_a_worker_is_lost_once_and_the_server_ends_when_the_group_has_given_up():
    lost = []

    def lose(rank, record):
        lost.append(rank)
        assert len(lost) < 9, "it would go on for ever"
        return []

    updates = SimpleNamespace(lose=lose, losses=[], shard=None)
    survivors = SimpleNamespace(can_lose=lambda rank: True, note=lambda losses: None)
    with pytest.raises(MemberError, match="rank 1 died"):
        answer_requests(GivenUp(), updates, survivors=survivors)
    assert lost == [1]
