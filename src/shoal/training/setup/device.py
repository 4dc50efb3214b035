"""The device of a worker, the communication backend that fits it, and the clocks of both."""

import os
from typing import Any

import torch

from shoal.comm.group import Messenger
from shoal.config.combinations import refused_with
from shoal.config.schema import RunConfig
from shoal.errors import ConfigError
from shoal.events.clocks import ClockOffset
from shoal.events.spans import Clock, HostClock, HostTime, host_ns

PINGS = 5
"""Pings per worker and measurement: the first may wait for rank 0; the best one counts."""


def take_device(config: RunConfig, rank: int = 0) -> torch.device:
    """The device of this worker, set as torch's current one; on a machine with several GPUs, each worker has its own.

    The launcher sets LOCAL_RANK, the worker's number on its machine. With `auto`, workers use GPUs only if there is one
    for each, because NCCL does not support two workers on one GPU; with `cuda`, they share the GPUs that there are.
    """
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    device = config.device_of(rank)
    if device == "cuda" and not gpus:
        raise ConfigError(
            "--device cuda, but torch sees no GPU on this machine",
            "Use --device cpu, or run `shoal doctor` to see what is missing.",
        )
    stays_on_cpu = "--device cuda" in refused_with(f"strategy {config.strategy}") or (
        device == "auto" and gpus < _workers_here(config)
    )
    if not gpus or device == "cpu" or stays_on_cpu:
        return torch.device("cpu")
    by_threads = config.launch.launcher == "threads"
    # Virtual machines share the GPUs of this one.
    name = "RANK" if config.launch.launcher == "netns" else "LOCAL_RANK"
    number = torch.cuda.current_device() if by_threads else int(os.environ.get(name, 0)) % gpus
    torch.cuda.set_device(number)
    return torch.device("cuda", number)


def group_kind(config: RunConfig, device: torch.device) -> str:
    """The kind of group for workers on this device, unless the user chose one."""
    kind = config.launch.group
    if config.has_unequal_devices:
        return "gloo"  # each worker copies its tensors to the host's memory and back
    if kind != "auto" or device.type == "cpu":
        return kind
    # Links need messages that go through the processor.
    is_nccl = torch.cuda.device_count() >= _workers_here(config) and not config.launch.link
    return "nccl" if is_nccl else "gloo"


def _workers_here(config: RunConfig) -> int:
    """The number of workers on this machine: LOCAL_WORLD_SIZE, or all workers."""
    if config.launch.launcher == "netns":
        return config.launch.workers
    return int(os.environ.get("LOCAL_WORLD_SIZE", config.launch.workers))


class CudaClock:
    """Marks are CUDA events on the current stream; reading one waits until the stream reaches it."""

    lane = "cuda"

    def __init__(self) -> None:
        self._zero = self.mark()
        torch.cuda.synchronize()
        self._zero_ns = host_ns()

    def mark(self) -> Any:
        """An event in the current stream."""
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def nanoseconds(self, mark: Any) -> int:
        """The time on the host clock at which the stream reached the event."""
        mark.synchronize()
        return self._zero_ns + int(self._zero.elapsed_time(mark) * 1e6)


def clock_of(device: torch.device) -> Clock:
    """The clock of the device that computes."""
    return CudaClock() if device.type == "cuda" else HostClock()


def measure_clock_offset(group: Messenger, clock: HostTime = host_ns) -> ClockOffset:
    """This worker's clock minus rank 0's; all members call it together.

    Each worker in turn sends pings to rank 0, which answers with its time. It read that time after the ping was sent
    and before the answer arrived, so

        offset = (sent + received) / 2 − answer,    with an error of at most (received − sent) / 2.

    The ping with the shortest round trip counts. If its error allows an offset of 0, the offset is 0: workers of one
    machine share a clock, and their times are compared exactly. Costs 2 · PINGS messages of 8 bytes per worker; nothing
    in a world of one.
    """
    if group.rank > 0:
        best = min((_ping(group, clock) for _ in range(PINGS)), key=lambda ping: ping.error_ns)
        return best._replace(offset_ns=0) if abs(best.offset_ns) <= best.error_ns else best
    ping = torch.zeros(1, dtype=torch.int64)
    for peer in range(1, group.size):
        for _ in range(PINGS):
            group.recv(ping, peer).wait()
            group.send(torch.tensor([clock()]), peer).wait()
    return ClockOffset(clock(), 0, 0)


def _ping(group: Messenger, clock: HostTime) -> ClockOffset:
    answer = torch.zeros(1, dtype=torch.int64)
    sent_ns = clock()
    group.send(torch.zeros(1, dtype=torch.int64), 0).wait()
    group.recv(answer, 0).wait()
    received_ns = clock()
    middle_ns = (sent_ns + received_ns) // 2
    return ClockOffset(middle_ns, middle_ns - int(answer.item()), (received_ns - sent_ns + 1) // 2)
