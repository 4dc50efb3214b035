"""A group over a `torch.distributed` backend (gloo, nccl): the way to many machines.

This class only translates. It knows nothing of mismatches or of members that are gone: `checked` adds
that, and `join_torch` gives both together. Sums follow the library's own order, so beyond two members
they may differ from the balanced tree's in the last digits; all members still hold the same bits.
"""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, final

import torch
import torch.distributed as dist
from torch import Tensor

from shoal.comm.calls import (
    check_agreement,
    check_peer,
    check_root_whole,
    check_split,
    check_whole,
    checked_call,
)
from shoal.comm.group import CPU
from shoal.comm.reduction import Op
from shoal.errors import ConfigError, unknown

_DAY = timedelta(days=1)
"""Torch's own timeout: never the one that ends a wait, because it cannot say who is missing."""

_CONNECT = timedelta(minutes=1)
"""How long connecting to members that have already met may take."""

_OPS: dict[Op, Any] = {
    Op.SUM: dist.ReduceOp.SUM,
    Op.AVERAGE: dist.ReduceOp.SUM,
    Op.MIN: dist.ReduceOp.MIN,
    Op.MAX: dist.ReduceOp.MAX,
    Op.PRODUCT: dist.ReduceOp.PRODUCT,
}


def _gloo(store: Any, rank: int, size: int, host: str) -> Any:
    gloo: Any = dist.ProcessGroupGloo
    options = gloo._Options()
    options._timeout = _CONNECT
    options._devices = [gloo.create_device(hostname=host)]
    backend = gloo(store, rank, size, options)
    backend._set_default_timeout(_DAY)
    return backend


def _nccl(store: Any, rank: int, size: int, host: str) -> Any:
    del host
    return dist.ProcessGroupNCCL(store, rank, size, dist.ProcessGroupNCCL.Options())


BACKENDS: dict[str, Callable[[Any, int, int, str], Any]] = {"gloo": _gloo, "nccl": _nccl}
"""How torch's backends are made: (store, rank, size, address to listen on)."""


@final
class TorchWork:
    """A torch work, and what is left to do when it is over."""

    def __init__(self, work: Any, after: Callable[[], None] | None = None) -> None:
        self._work = work
        self._after = after

    def wait(self) -> None:
        """Wait as torch does; finish what torch leaves to us."""
        if self._work is not None:
            self._work.wait()
        self._finish()

    def wait_for(self, seconds: float) -> bool:
        """Wait that long at most; whether it is over. Not for messages: they break on a timeout."""
        if self._work is not None:
            try:
                self._work.wait(timedelta(seconds=seconds))
            except RuntimeError as error:
                if "timed out" in str(error).lower():
                    return False
                raise
        self._finish()
        return True

    def done(self) -> bool:
        """Whether torch says so; its messages do so only after a wait."""
        if self._work is None or self._work.is_completed():
            self.wait()
            return True
        return False

    def _finish(self) -> None:
        self._work = None
        if self._after is not None:
            self._after()
            self._after = None


def _flat(tensor: Tensor, on_gpu: bool) -> tuple[Tensor, Callable[[], None] | None]:
    """The elements in one row of the backend's memory; and how to write them back, where that row is a copy."""
    tensor = tensor.detach()
    flat = tensor.contiguous().view(-1)
    if on_gpu and not flat.is_cuda:
        flat = flat.cuda()  # NCCL moves nothing else; small agreements come from the host
    if flat.data_ptr() == tensor.data_ptr():
        return flat, None

    def back() -> None:
        tensor.copy_(flat.view(tensor.shape))

    return flat, back


@final
class TorchGroup:
    """A group over a torch backend that was made from `store`, which is kept for splitting."""

    overlaps = True
    """Whether work moves on while the caller computes: then there is a point in starting it early."""

    def __init__(
        self, store: Any, rank: int, size: int, backend: str = "gloo", host: str = "127.0.0.1"
    ) -> None:
        if backend not in BACKENDS:
            raise ConfigError(unknown("backend", backend, BACKENDS))
        self._store, self._host = store, host
        self.backend = backend
        self._on_gpu = backend == "nccl"
        self._rank, self._size = rank, size
        self._torch: Any = BACKENDS[backend](dist.PrefixStore("torch", store), rank, size, host)
        self._num_splits = 0

    @property
    def rank(self) -> int:
        """This member's number, from 0."""
        return self._rank

    @property
    def size(self) -> int:
        """How many members there are."""
        return self._size

    def all_reduce(self, buffer: Tensor, op: Op = Op.SUM) -> TorchWork:
        """Make `buffer` the reduction of all members' buffers, on every member."""
        checked_call("all_reduce", self._size, buffer.dtype, buffer.numel(), op)
        flat, back = _flat(buffer, self._on_gpu)
        options = dist.AllreduceOptions()
        options.reduceOp = _OPS[op]

        def finish() -> None:
            if op is Op.AVERAGE:
                flat.div_(self._size)
            if back is not None:
                back()

        return TorchWork(self._torch.allreduce([flat], options), finish)

    def reduce_scatter(self, piece: Tensor, whole: Tensor, op: Op = Op.SUM) -> TorchWork:
        """Give member i the reduction of everyone's i-th piece of `whole`."""
        check_whole("reduce_scatter", self._size, whole, piece)
        checked_call("reduce_scatter", self._size, piece.dtype, piece.numel(), op)
        # Gloo has no reduce-scatter of all dtypes and operations: all is reduced, and one piece kept.
        everything = whole.detach().clone(memory_format=torch.contiguous_format).view(-1)
        options = dist.AllreduceOptions()
        options.reduceOp = _OPS[op]

        def finish() -> None:
            mine = everything[self._rank * piece.numel() : (self._rank + 1) * piece.numel()]
            if op is Op.AVERAGE:
                mine.div_(self._size)
            piece.detach().copy_(mine.view(piece.shape))

        return TorchWork(self._torch.allreduce([everything], options), finish)

    def all_gather(self, whole: Tensor, piece: Tensor) -> TorchWork:
        """Fill `whole` with the members' pieces, in rank order, on every member."""
        check_whole("all_gather", self._size, whole, piece)
        checked_call("all_gather", self._size, piece.dtype, piece.numel())
        flat, back = _flat(whole, self._on_gpu)
        mine, _ = _flat(piece, self._on_gpu)
        rows = list(flat.view(self._size, piece.numel()))
        return TorchWork(self._torch.allgather([rows], [mine]), back)

    def broadcast(self, buffer: Tensor, root: int = 0) -> TorchWork:
        """Make `buffer` equal to the root's, on every member."""
        checked_call("broadcast", self._size, buffer.dtype, buffer.numel(), None, root)
        flat, back = _flat(buffer, self._on_gpu)
        options = dist.BroadcastOptions()
        options.rootRank = root
        return TorchWork(self._torch.broadcast([flat], options), back)

    def reduce(self, buffer: Tensor, root: int = 0, op: Op = Op.SUM) -> TorchWork:
        """Make the root's `buffer` the reduction of all; the others' stay as they are."""
        checked_call("reduce", self._size, buffer.dtype, buffer.numel(), op, root)
        # Torch leaves the others' buffers undefined, so what is handed over is a copy.
        flat = buffer.detach().clone(memory_format=torch.contiguous_format).view(-1)
        options = dist.ReduceOptions()
        options.reduceOp, options.rootRank = _OPS[op], root

        def finish() -> None:
            if self._rank == root:
                if op is Op.AVERAGE:
                    flat.div_(self._size)
                buffer.detach().copy_(flat.view(buffer.shape))

        return TorchWork(self._torch.reduce([flat], options), finish)

    def gather(self, whole: Tensor | None, piece: Tensor, root: int = 0) -> TorchWork:
        """Fill the root's `whole` with the members' pieces; the others give None."""
        check_root_whole("gather", self._rank, self._size, root, whole, piece)
        checked_call("gather", self._size, piece.dtype, piece.numel(), None, root)
        options = dist.GatherOptions()
        options.rootRank = root
        mine, _ = _flat(piece, self._on_gpu)
        if whole is None or self._rank != root:
            return TorchWork(self._torch.gather([], [mine], options))
        flat, back = _flat(whole, self._on_gpu)
        rows = list(flat.view(self._size, piece.numel()))
        return TorchWork(self._torch.gather([rows], [mine], options), back)

    def scatter(self, piece: Tensor, whole: Tensor | None, root: int = 0) -> TorchWork:
        """Give member i the i-th piece of the root's `whole`; the others give None."""
        check_root_whole("scatter", self._rank, self._size, root, whole, piece)
        checked_call("scatter", self._size, piece.dtype, piece.numel(), None, root)
        options = dist.ScatterOptions()
        options.rootRank = root
        flat, back = _flat(piece, self._on_gpu)
        rows: list[list[Tensor]] = []
        if whole is not None and self._rank == root:
            rows = [list(whole.detach().contiguous().view(self._size, piece.numel()))]
        return TorchWork(self._torch.scatter([flat], rows, options), back)

    def send(self, tensor: Tensor, to: int, tag: int = 0) -> TorchWork:
        """Send to one member; messages with different tags do not meet."""
        check_peer("send", self._rank, self._size, to)
        checked_call("message", self._size, tensor.dtype, tensor.numel())
        return TorchWork(self._torch.send([tensor.detach().contiguous().view(-1)], to, tag))

    def recv(self, tensor: Tensor, sender: int, tag: int = 0) -> TorchWork:
        """Receive from one member what it sent: as many elements, of the same dtype."""
        check_peer("recv", self._rank, self._size, sender)
        checked_call("message", self._size, tensor.dtype, tensor.numel())
        flat, back = _flat(tensor, self._on_gpu)
        return TorchWork(self._torch.recv([flat], sender, tag), back)

    def barrier(self) -> TorchWork:
        """Wait until every member has called it."""
        return TorchWork(self._torch.barrier())

    def split(self, ranks: Sequence[int]) -> "TorchGroup":
        """The smaller group of these `ranks`; all members call, each naming the group it goes to."""
        chosen = check_split(self._rank, self._size, ranks)
        named = torch.full((self._size,), -1, dtype=torch.int64)
        named[: len(chosen)] = torch.tensor(chosen)
        table = torch.empty(self._size, self._size, dtype=torch.int64)
        self.all_gather(table, named).wait()
        check_agreement([[rank for rank in row if rank >= 0] for row in table.tolist()])
        self._num_splits += 1
        key = f"split{self._num_splits}/{'-'.join(map(str, chosen))}"
        store = dist.PrefixStore(key, self._store)
        return TorchGroup(store, chosen.index(self._rank), len(chosen), self.backend, self._host)

    def empty(self, numel: int, dtype: torch.dtype = torch.float32, device: torch.device = CPU) -> Tensor:
        """An ordinary tensor: torch's backends move any memory alike."""
        checked_call("empty", self._size, dtype, numel)
        return torch.empty(numel, dtype=dtype, device=device)

    def beat(self) -> None:
        """Nothing: torch has nobody to tell."""

    def fail(self, error: BaseException) -> None:
        """Nothing: torch has no way to tell why somebody goes."""
        del error

    def close(self) -> None:
        """Let go of the connections."""
        self._torch = None
