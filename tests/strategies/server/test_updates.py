"""A server over a transport that drops, repeats and reorders messages, while workers and the server restart."""

from random import Random

import pytest
import torch
from strategy_cases import copy_of
from torch import nn

from shoal.comm.alone import alone
from shoal.config.sections.optimizer import GdConfig
from shoal.errors import DivergedError
from shoal.strategies.exchange.exchange import AllReduce
from shoal.strategies.guard import Guard
from shoal.strategies.server.messages import Request, RequestKind
from shoal.strategies.server.settings import ServerConfig
from shoal.strategies.server.shards import Shard
from shoal.strategies.server.updates import Updates
from shoal.strategies.strategy import EndOfTurns

WORKERS, PUSHES = 3, 6


class Server:
    """A server whose weights count pushes: push n of worker i subtracts 1 from weight [n − 1, i]."""

    def __init__(self, config, on_nonfinite="stop", gives_turns=False):
        self.config, self.on_nonfinite, self.gives_turns = config, on_nonfinite, gives_turns
        self.events, self.saved = [], None
        self.start()

    def start(self):
        """A new process: with what was saved last, if anything was."""
        model = nn.Linear(WORKERS, PUSHES, bias=False).double()
        nn.init.zeros_(model.weight)
        copy = copy_of(model, GdConfig(lr=1.0))
        guard = Guard(alone(), AllReduce(), self.on_nonfinite)
        self.shard = Shard(copy.layout, copy.update, alone(), WORKERS, self.config.gathers)
        self.updates = Updates(
            self.shard, self.config, WORKERS, guard, copy.layout.zero, gives_turns=self.gives_turns
        )
        if self.saved is not None:
            weights, ledger = self.saved
            self.shard.weights[0].copy_(weights)
            self.updates.ledger.restore(ledger)

    def save(self):
        self.saved = self.shard.weights[0].clone(), self.updates.ledger.state()

    def receive(self, rank, request, gradient=None):
        if request.kind == RequestKind.PUSH:
            self.updates.memory_for(rank, request)[0].copy_(gradient)
        return self.updates.receive(rank, request, 0, self.events.append)

    @property
    def weights(self):
        return self.shard.weights[0].view(PUSHES, WORKERS)


def push(rank, sequence, version=0, lr=1.0, scale=1.0, **others):
    """Push number `sequence` of a worker."""
    gradient = torch.zeros(PUSHES, WORKERS, dtype=torch.float64)
    gradient[sequence - 1, rank] = scale
    values = {"step": sequence - 1, "part": 1 / WORKERS, "square": scale**2, **others}
    return Request(RequestKind.PUSH, sequence, version, lr=lr, **values), gradient.view(-1)


def simulate(config, seed):
    """Workers that repeat a request until it is acknowledged; returns the server, and the faults that happened."""
    chance, server, faults = (
        Random(seed),
        Server(config),
        {"lost": 0, "repeated": 0, "worker": 0, "server": 0},
    )
    server.save()
    sent, wire = [1] * WORKERS, []
    """The push that each worker has under way, and all messages in the network."""
    for _ in range(20_000):
        if all(sequence > PUSHES for sequence in sent):
            return server, faults
        event = chance.random()
        if event < 0.35 or not wire:
            rank = chance.randrange(WORKERS)
            if sent[rank] <= PUSHES:
                wire.append(("push", rank, sent[rank]))
        elif event < 0.42:
            wire.pop(chance.randrange(len(wire)))
            faults["lost"] += 1
        elif event < 0.44:
            # A worker that forgot everything asks the server how far it is.
            rank = chance.randrange(WORKERS)
            (_, reply), *_ = server.receive(rank, Request(RequestKind.HELLO))
            sent[rank] = reply.sequence + 1
            faults["worker"] += 1
        elif event < 0.46:
            server.start()
            faults["server"] += 1
        else:
            place = chance.randrange(len(wire))
            kind, rank, sequence = wire[place]
            if chance.random() < 0.8:
                wire.pop(place)
            else:
                faults["repeated"] += 1
            if kind == "ack":
                sent[rank] = max(sent[rank], sequence + 1)
                continue
            replies = server.receive(rank, *push(rank, sequence))
            if chance.random() < 0.1:
                server.start()  # killed between apply and acknowledge
                faults["server"] += 1
                continue
            if replies:
                server.save()  # what is acknowledged is never lost
            wire += [("ack", to, reply.sequence) for to, reply in replies]
    raise AssertionError("the workers did not finish")


@pytest.mark.parametrize(
    "config",
    [ServerConfig(mode="asp"), ServerConfig(mode="ssp", staleness=1), ServerConfig(mode="bsp")],
    ids=lambda config: config.mode,
)
def test_every_push_is_applied_exactly_once(config):
    happened = {"lost": 0, "repeated": 0, "worker": 0, "server": 0}
    for seed in range(25):
        server, faults = simulate(config, seed)
        assert torch.equal(server.weights, torch.full_like(server.weights, -1.0)), f"seed {seed}"
        happened = {name: happened[name] + faults[name] for name in faults}
    assert min(happened.values()) > 20, "the transport was not unreliable"


class TurnTaker:
    """A worker that takes turns until it is sent to a meeting; push [step, share] subtracts 1 from that weight."""

    def __init__(self, rank):
        self.rank, self.sequence, self.version, self.turn, self.has_met = rank, 0, 0, None, False
        self.lost_at_meeting = None

    def request(self):
        """The next message: it asks for its first turn, or pushes the one that it has."""
        self.sequence += 1
        common = {"first": 0, "end": PUSHES, "lr": 1.0}
        if self.turn is None:
            return Request(RequestKind.PULL, self.sequence, self.version, **common), None
        gradient = torch.zeros(PUSHES, WORKERS, dtype=torch.float64)
        gradient[self.turn.step, self.turn.share] = 1.0
        values = {"step": self.turn.step, "part": 1 / WORKERS, "square": 1.0, **common}
        return Request(RequestKind.PUSH, self.sequence, self.version, **values), gradient.view(-1)

    def hear(self, reply):
        self.version, self.turn = reply.version, reply.turn
        if reply.sends_to_meeting:
            self.has_met, self.lost_at_meeting = True, reply.losses


def lose_workers(config, seed, deaths):
    """Workers that die at any moment, at most `deaths` of them and not rank 0; the server and those that are left."""
    chance, server = Random(seed), Server(config, gives_turns=True)
    living, late = {rank: TurnTaker(rank) for rank in range(WORKERS)}, []
    wire, waiting = [], set()
    for _ in range(2_000):
        if all(worker.has_met for worker in living.values()):
            break
        replies = []
        if chance.random() < 0.05 and len(server.updates.losses) < deaths:
            # Killed: its last message has reached the server, is under way, or was never sent.
            rank = chance.choice([rank for rank in living if rank > 0])
            del living[rank]
            late += [message for message in wire if message[0] == rank]
            wire = [message for message in wire if message[0] != rank]
            replies = server.updates.lose(rank, server.events.append)
        elif wire and chance.random() < 0.5:
            rank, request, gradient = wire.pop(chance.randrange(len(wire)))
            replies = server.receive(rank, request, gradient)
        elif late and chance.random() < 0.2:
            assert server.receive(*late.pop()) == [], "a lost worker is not answered"
        else:
            rank = chance.choice([*living])
            if rank not in waiting and not living[rank].has_met:
                waiting.add(rank)
                wire.append((rank, *living[rank].request()))
        for to, reply in replies:
            waiting.discard(to)
            living[to].hear(reply)
    assert not [server.receive(*message) for message in late if server.receive(*message)]
    return server, living


@pytest.mark.parametrize("staleness", [None, 1], ids=["asp", "ssp"])
def test_the_others_finish_what_lost_workers_leave_and_every_turn_counts_once(staleness):
    mode = "asp" if staleness is None else "ssp"
    config, lost = ServerConfig(mode=mode, staleness=staleness, on_lost="continue"), 0
    for seed in range(30):
        server, living = lose_workers(config, seed, deaths=2)
        assert all(worker.has_met for worker in living.values()), f"seed {seed}: the workers did not finish"
        assert torch.equal(server.weights, torch.full_like(server.weights, -1.0)), f"seed {seed}"
        assert len({worker.lost_at_meeting for worker in living.values()}) == 1, "all know of the same losses"
        updates = [event for event in server.events if event["event"] == "update"]
        turns = [(event["step"], event["share"]) for event in updates]
        assert sorted(turns) == [(step, share) for step in range(PUSHES) for share in range(WORKERS)]
        losses = [event["rank"] for event in server.events if event["event"] == "lost"]
        assert sorted([*losses, *living]) == [0, 1, 2]
        if staleness is not None:
            assert_bounded(updates, staleness)
        lost += len(losses)
    assert lost > 30, "too few workers died"


def assert_bounded(updates, staleness):
    """A turn of step c was computed from weights with all updates of steps before c − staleness."""
    for update in updates:
        missing = [
            other
            for other in updates
            if other["step"] < update["step"] - staleness and other["version"] > update["from_version"]
        ]
        assert not missing


def test_the_learning_rate_of_a_stale_push_is_damped():
    server = Server(ServerConfig(mode="asp", damping=True))
    for rank in range(3):
        server.receive(rank, *push(rank, 1))
    assert server.weights[0].tolist() == pytest.approx([-1.0, -1 / 2, -1 / 3])
    assert [event["staleness"] for event in server.events] == [0, 1, 2]


def test_a_delay_is_compensated_as_published():
    """g + λ·g⊙g⊙(θ − θ′) for the mean gradient g, by hand: a push of the part p of a step is p·g."""
    server, p, factor = Server(ServerConfig(mode="asp", compensation=0.5)), 1 / WORKERS, 2.0
    for rank in (0, 1):
        server.receive(rank, Request(RequestKind.PULL, 1))
    first, second = torch.zeros(2, PUSHES * WORKERS, dtype=torch.float64)
    first[0], second[0] = 0.3, factor * p
    server.receive(0, push(0, 2, step=0)[0], first)
    server.receive(1, push(1, 2, step=0)[0], second)
    expected = p * (factor + 0.5 * factor**2 * (-0.3 - 0.0))
    assert server.shard.weights[0][0].item() == pytest.approx(-0.3 - expected)


def test_with_a_backup_worker_the_others_stand_for_it():
    server = Server(ServerConfig(backup=1))
    server.receive(0, *push(0, 1))
    replies = server.receive(2, *push(2, 1))
    assert sorted(to for to, _ in replies) == [0, 2]
    assert server.weights[0].tolist() == pytest.approx([-3 / 2, 0.0, -3 / 2])
    ((to, reply),) = server.receive(1, *push(1, 1))
    assert (to, reply.step, reply.dropped) == (1, 1, 1), "it goes on with the step of the others"
    assert server.weights[0][1] == 0
    assert [event["event"] for event in server.events] == ["update", "update", "dropped"]


@pytest.mark.parametrize("mode", ["bsp", "asp"])
def test_a_push_that_is_not_finite_stops_the_run_and_names_the_worker(mode):
    server = Server(ServerConfig(mode=mode))
    server.receive(0, *push(0, 1))
    if mode == "bsp":
        server.receive(2, *push(2, 1))
    with pytest.raises(
        DivergedError, match=r"the norm of rank 1's gradient is nan .*before it reached the weights"
    ):
        server.receive(1, *push(1, 1, square=float("nan")))
    assert server.weights.isfinite().all()


@pytest.mark.filterwarnings("ignore:the norm of rank 1's gradient is inf")
def test_or_it_is_skipped_and_the_next_one_counts():
    server = Server(ServerConfig(mode="asp"), on_nonfinite="skip")
    server.receive(1, *push(1, 1, scale=5.0, square=float("inf")))
    assert server.weights.abs().max() == 0
    assert server.events[-1]["skipped"]
    server.receive(0, *push(0, 1))
    assert server.weights[0].tolist() == [-1.0, 0.0, 0.0]


@pytest.mark.filterwarnings("ignore:the norm of rank 1's gradient is nan")
def test_a_server_that_restarts_still_knows_what_it_has_skipped():
    server = Server(ServerConfig(mode="asp"), on_nonfinite="skip")
    server.receive(1, *push(1, 1, square=float("nan")))
    server.save()
    server.start()
    ((_, reply),) = server.receive(0, *push(0, 1))
    assert (reply.version, reply.skipped) == (2, 1)


def test_all_workers_stop_after_the_same_step():
    server = Server(ServerConfig(mode="ssp", staleness=2))
    for sequence in (1, 2):
        server.receive(0, *push(0, sequence))
    ((_, reply),) = server.receive(1, *push(1, 1, stop_signal=15))
    assert reply.stop_signal == 0, "rank 0 has begun step 2, so all make it"
    stopped = {}
    for rank, sequences in {0: (3,), 1: (2, 3), 2: (1, 2, 3)}.items():
        for sequence in sequences:
            for to, answer in server.receive(rank, *push(rank, sequence)):
                stopped[to] = answer.stop_signal
    assert stopped == {0: 15, 1: 15, 2: 15}


def test_a_worker_that_is_steps_behind_learns_that_it_stops_where_the_others_did():
    server = Server(ServerConfig(backup=1))
    for sequence in (1, 2, 3):
        for rank in (0, 1):
            answers = server.receive(rank, *push(rank, sequence, stop_signal=15 * (sequence == 3)))
    assert [(to, reply.stop_signal) for to, reply in answers] == [(0, 15), (1, 15)]
    ((_, reply),) = server.receive(2, *push(2, 1))
    assert (reply.step, reply.stop_signal) == (3, 15), "the others push no step 3"


@pytest.mark.parametrize("staleness", [None, 1], ids=["asp", "ssp"])
def test_a_run_that_is_stopped_before_its_first_turn_ends_where_it_was_resumed(staleness):
    mode = "asp" if staleness is None else "ssp"
    config = ServerConfig(mode=mode, staleness=staleness, on_lost="continue")
    server, answers = Server(config, gives_turns=True), []
    for rank in range(WORKERS):
        answers += server.receive(rank, Request(RequestKind.PULL, 1, first=15, end=20, stop_signal=15))
    assert [reply.turn for _, reply in answers] == [EndOfTurns(15, 15)] * WORKERS
