"""A group for tensors of any device: CPU tensors use the group that workers formed, CUDA tensors a second one.

The second group is formed when the first tensor of a GPU comes: over NCCL if every member has a GPU of its own, else
over gloo, through host memory.
"""

from collections.abc import Callable, Sequence
from typing import final

import torch
import torch.distributed as dist
from torch import Tensor

from shoal.comm.group import CPU, Group, Receipt, Work
from shoal.comm.signature import Signature
from shoal.comm.wrapped_group import WrappedGroup

UUID_BYTES = 16
FormGroup = Callable[[str, int, int, str], Group]
"""Forms a group: (a name that is the same on all its members, rank, size, backend)."""


@final
class ByDevice(WrappedGroup):
    """Passes calls with CPU tensors on to `group`, and calls with CUDA tensors to a group formed for that device.

    Collectives match by order within each of the two groups, as with torch's `cpu:gloo,cuda:nccl`: all members call one
    with tensors on the same type of device. Messages go through host memory, so their two ends may differ.
    """

    def __init__(self, group: Group, form: FormGroup, name: str = "world") -> None:
        super().__init__(group)
        self.devices = ("cpu", "cuda")
        self._form, self._name = form, name
        self._on_gpus: dict[torch.device, Group] = {}
        self._num_smaller = 0

    def serving(self, device: torch.device) -> Group:
        """The group for tensors on `device`; all members call it together."""
        if device.type != "cuda":
            return self._group
        if device not in self._on_gpus:
            uuids = torch.empty(self.size, UUID_BYTES, dtype=torch.uint8)
            self._group.all_gather(uuids, _uuid(device)).wait()
            backend = backend_for(uuids)
            name = f"{self._name}/cuda{len(self._on_gpus)}"
            is_there = backend == self.kind
            formed = self._group if is_there else self._form(name, self.rank, self.size, backend)
            self._on_gpus[device] = formed
        return self._on_gpus[device]

    def issue(self, call: Signature, piece: Tensor, whole: Tensor | None = None) -> Work:
        """Start a collective in the group of the tensors' device."""
        on_gpu = next((each.device for each in (piece, whole) if each is not None and each.is_cuda), CPU)
        return self.serving(on_gpu).issue(call, piece, whole)

    def issue_send(self, call: Signature, tensor: Tensor, to: int) -> Work:
        """Send to one member, through host memory."""
        return self._group.issue_send(call, tensor.cpu(), to)

    def issue_recv(self, call: Signature, tensor: Tensor, sender: int) -> Receipt:
        """Receive a message, through host memory."""
        if tensor.is_cpu:
            return self._group.issue_recv(call, tensor, sender)
        host = torch.empty(tensor.shape, dtype=tensor.dtype)
        return _ReceiptOnGpu(self._group.issue_recv(call, host, sender), host, tensor)

    def empty(
        self, numel: int, dtype: torch.dtype = torch.float32, device: torch.device | str = CPU
    ) -> Tensor:
        """Memory that the group of this device moves in the cheapest way it has."""
        return self.serving(torch.device(device)).empty(numel, dtype, device)

    def around(self, group: Group, ranks: Sequence[int]) -> "ByDevice":
        """The same for a smaller group, which forms groups for GPUs of its own."""
        self._num_smaller += 1
        name = f"{self._name}/{self._num_smaller}:{'-'.join(map(str, ranks))}"
        return ByDevice(group, self._form, name)

    def _all(self) -> list[Group]:
        return list(dict.fromkeys([*self._on_gpus.values(), self._group]))

    def beat(self, busy_s: float = 0.0) -> None:
        """Report progress in all groups."""
        for group in self._all():
            group.beat(busy_s)

    def fail(self, error: BaseException) -> None:
        """Report in all groups that this worker ends with an error."""
        for group in self._all():
            group.fail(error)

    def close(self) -> None:
        """Leave all groups."""
        for group in self._all():
            group.close()


@final
class _ReceiptOnGpu:
    """A `recv` into host memory that is then copied to the GPU."""

    def __init__(self, receipt: Receipt, host: Tensor, tensor: Tensor) -> None:
        self._receipt, self._host, self._tensor = receipt, host, tensor
        self._has_landed = False

    @property
    def source(self) -> int:
        return self._receipt.source

    def wait(self) -> None:
        self._receipt.wait()
        if not self._has_landed:
            self._tensor.copy_(self._host)
            self._has_landed = True

    def done(self) -> bool:
        return self._receipt.done()


def backend_for(uuids: Tensor) -> str:
    """NCCL if all members have different GPUs and can use it: a member that cannot gives zeros.

    >>> backend_for(torch.tensor([[1, 2], [1, 3]], dtype=torch.uint8))
    'nccl'
    >>> backend_for(torch.tensor([[1, 2], [1, 2]], dtype=torch.uint8))
    'gloo'
    """
    known = {tuple(uuid) for uuid in uuids.tolist() if any(uuid)}
    return "nccl" if len(known) == len(uuids) else "gloo"


def _uuid(device: torch.device) -> Tensor:
    """The GPU's own number, by which processes with different CUDA_VISIBLE_DEVICES recognise it."""
    if not dist.is_nccl_available():
        return torch.zeros(UUID_BYTES, dtype=torch.uint8)
    found = torch.cuda.get_device_properties(device).uuid
    return torch.tensor(list(found.bytes), dtype=torch.uint8)
