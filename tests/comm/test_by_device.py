"""One group for CPU and CUDA tensors. Fake tensors stand for CUDA where there is no GPU."""

import subprocess
import sys
import uuid
from types import SimpleNamespace

import pytest
import torch
from group_cases import QUICK, run_case
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed import HashStore

from shoal.comm import join as joining
from shoal.comm.by_device import ByDevice
from shoal.comm.group import Finished, Group
from shoal.comm.join import join_in
from shoal.comm.threads.group import run_threads
from shoal.errors import MismatchError


class Recorder(Group):
    """In place of a group over NCCL or gloo: writes down its calls."""

    def __init__(self, name, rank, size, backend):
        self.name, self.rank, self.size, self.kind = name, rank, size, backend
        self.devices, self.overlaps = ("cpu", "cuda"), True
        self.calls = []

    def issue(self, call, piece, whole=None):
        self.calls.append(call.operation)
        return Finished()

    def empty(self, numel, dtype=torch.float32, device=None):
        self.calls.append(f"empty {numel}")
        return torch.empty(numel, dtype=dtype)

    issue_send = issue_recv = split_off = None

    def beat(self, busy_s=0.0):
        self.calls.append(f"beat {busy_s:g}")

    def fail(self, error):
        self.calls.append(f"fail {error}")

    @property
    def closed(self):
        return "close" in self.calls

    def close(self):
        self.calls.append("close")


Recorder.__abstractmethods__ = frozenset()


def by_device(group):
    """The group around a thread's, and the groups that it forms for GPUs."""
    formed = []

    def form(*place):
        formed.append(Recorder(*place))
        return formed[-1]

    return ByDevice(group, form), formed


def on_gpu(rank, numel=3):
    with FakeTensorMode():
        return torch.zeros(numel, device=torch.device("cuda", rank))


@pytest.fixture
def gpus(monkeypatch):
    """Say which GPU a worker's device `cuda:RANK` is."""

    def give(*numbers):
        def properties(device):
            return SimpleNamespace(uuid=uuid.UUID(int=numbers[device.index]))

        monkeypatch.setattr(torch.cuda, "get_device_properties", properties)
        monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: True)

    return give


@pytest.mark.parametrize("case", QUICK)
def test_cpu_tensors_keep_the_contract(case):
    def work(group):
        around, formed = by_device(group)
        run_case(around, case, True)
        assert not formed

    run_threads(2, work)


@pytest.mark.parametrize(("numbers", "backend"), [((1, 2), "nccl"), ((1, 1), "gloo")])
def test_nccl_needs_a_gpu_for_each_worker(gpus, numbers, backend):
    gpus(*numbers)

    def work(group):
        around, formed = by_device(group)
        around.all_reduce(on_gpu(group.rank)).wait()
        around.all_reduce(torch.zeros(3)).wait()
        around.all_gather(on_gpu(group.rank, 6), torch.zeros(3)).wait()
        around.empty(4, torch.float32, torch.device("cuda", group.rank))
        (second,) = formed
        assert (second.rank, second.size, second.kind) == (group.rank, 2, backend)
        assert second.calls == ["all_reduce", "all_gather", "empty 4"]
        assert around.serving(torch.device("cuda", group.rank)) is second
        assert around.serving(torch.device("cpu")) is group
        return second.name

    first, other = run_threads(2, work)
    assert first == other


def test_a_worker_without_nccl_decides_for_all(gpus, monkeypatch):
    gpus(1, 2)
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: False)

    def work(group):
        around, formed = by_device(group)
        around.broadcast(on_gpu(group.rank)).wait()
        return formed[0].kind

    assert run_threads(2, work) == ["gloo", "gloo"]


def test_all_groups_hear_of_progress_errors_and_the_end(gpus):
    gpus(1)

    def work(group):
        around, formed = by_device(group)
        around.all_reduce(on_gpu(0)).wait()
        around.beat(5)
        around.fail(ValueError("no"))
        around.close()
        assert formed[0].calls[1:] == ["beat 5", "fail no", "close"]
        assert around.closed

    run_threads(1, work)


def test_smaller_groups_form_their_own(gpus):
    gpus(1, 2, 3)

    def work(group):
        around, formed = by_device(group)
        smaller = around.split([0, 2] if group.rank != 1 else [1])
        smaller.all_reduce(on_gpu(group.rank)).wait()
        around.all_reduce(on_gpu(group.rank)).wait()
        return [(each.name, each.rank, each.size) for each in formed]

    first, second, third = run_threads(3, work)
    assert [place[1:] for place in first] == [(0, 2), (0, 3)]
    assert [place[1:] for place in second] == [(0, 1), (1, 3)]
    assert [place[0] for place in first] == [place[0] for place in third]
    assert len({name for worker in (first, second) for name, *_ in worker}) == 3


def test_a_worker_that_calls_with_a_cpu_tensor_meanwhile_is_a_mismatch(gpus):
    gpus(1, 2)

    def work(group):
        around, _ = by_device(group)
        around.all_reduce(on_gpu(0) if group.rank == 0 else torch.zeros(3)).wait()

    with pytest.raises(MismatchError):
        run_threads(2, work)


@pytest.mark.parametrize(
    ("local_rank", "gpus", "used", "chosen"),
    [
        ("1", 4, False, [1]),
        ("5", 4, False, [1]),
        ("1", 1, False, []),
        ("1", 0, False, []),
        ("1", 4, True, []),
        (None, 4, False, []),
        ("x", 4, False, []),
    ],
)
def test_local_rank_chooses_a_gpu_that_the_program_has_not(monkeypatch, local_rank, gpus, used, chosen):
    taken = []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: used)
    monkeypatch.setattr(torch.cuda, "set_device", taken.append)
    monkeypatch.setattr(torch.cuda, "_lazy_call", lambda call: call())
    joining.take_gpu({} if local_rank is None else {"LOCAL_RANK": local_rank})
    assert taken == chosen


PROGRAM = """
import torch, shoal
from torch.nn import functional as F

group = shoal.join()
rank = group.rank
value = torch.full((3,), rank + 1.0, device="cuda")
group.all_reduce(value).wait()
assert value.tolist() == [3, 3, 3] and value.is_cuda
count = torch.tensor([rank + 1])
group.all_reduce(count).wait()
assert count.tolist() == [3]
if rank == 0:
    group.send(torch.arange(4.0, device="cuda"), 1).wait()
else:
    got = torch.zeros(4, device="cuda")
    group.recv(got, 0).wait()
    assert got.tolist() == [0, 1, 2, 3]

torch.manual_seed(0)
def network():
    return torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3)).double().cuda()
one = network()
inputs, labels = torch.randn(12, 6, dtype=torch.float64).cuda(), torch.randint(3, (12,)).cuda()
mine = slice(0, 8) if rank == 0 else slice(8, 12)

start = [param.detach().clone() for param in one.parameters()]
optimizer = torch.optim.SGD(one.parameters(), 0.1)
for _ in range(3):
    optimizer.zero_grad()
    F.cross_entropy(one(inputs), labels).backward()
    optimizer.step()
expected = [param.detach() for param in one.parameters()]

def fresh():
    net = network()
    with torch.no_grad():
        for param, value in zip(net.parameters(), start):
            param.copy_(value)
    return net

def check(net, name):
    for param, value in zip(net.parameters(), expected):
        assert (param - value).abs().max() <= 1e-12 * value.abs().max(), name

net = fresh()
wrapped = shoal.DistributedDataParallel(net)
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(3):
    optimizer.zero_grad()
    with wrapped.batch(num_samples=len(labels[mine])):
        F.cross_entropy(wrapped(inputs[mine]), labels[mine]).backward()
    optimizer.step()
check(net, "DistributedDataParallel")

net = fresh()
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(3):
    optimizer.zero_grad()
    F.cross_entropy(net(inputs[mine]), labels[mine]).backward()
    shoal.average_gradients(net, num_samples=len(labels[mine]))
    optimizer.step()
check(net, "average_gradients")

# Clipped steps, with equal shares.
one = fresh()
optimizer = torch.optim.SGD(one.parameters(), 0.1)
for _ in range(3):
    optimizer.zero_grad()
    F.cross_entropy(one(inputs), labels).backward()
    torch.nn.utils.clip_grad_norm_(one.parameters(), 0.05)
    optimizer.step()
expected = [param.detach() for param in one.parameters()]
mine = slice(6 * rank, 6 * rank + 6)
for stage in (1, 2, 3):
    net = fresh()
    sharded = shoal.zero(net, lambda params: torch.optim.SGD(params, 0.1), stage)
    for _ in range(3):
        F.cross_entropy(net(inputs[mine]), labels[mine]).backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 0.05)
        sharded.step()
    state = sharded.model_state_dict()  # on rank 0
    for name, value in zip(state, expected):
        assert (state[name] - value.cpu()).abs().max() <= 1e-12 * value.abs().max(), (stage, name)
assert shoal.join() is group
group.close()
"""


@pytest.mark.gpu
def test_a_program_of_torchrun_whose_two_workers_share_a_gpu(tmp_path):
    """Collectives and messages of both devices; the wrapper, averaged gradients and clipped zero equal one machine."""
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        str(path),
    ]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
    assert finished.returncode == 0, finished.stderr


@pytest.mark.gpu
def test_a_worker_that_has_its_gpu_alone_uses_nccl():
    group = join_in(HashStore(), 0, 1)
    value = torch.ones(3, device="cuda")
    group.all_reduce(value).wait()
    assert (value.tolist(), group.serving(value.device).kind, group.kind) == ([1, 1, 1], "nccl", "shm")
    group.close()
