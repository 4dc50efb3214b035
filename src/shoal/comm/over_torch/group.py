"""A group over a `torch.distributed` backend (gloo, nccl): the way to many machines.

This class only translates. It knows nothing of mismatches or of members that are gone: `checked` adds
that, and `join_torch` gives both together. Sums follow the library's own order, so beyond two members
they may differ from the balanced tree's in the last digits; all members still hold the same bits.
"""

import ctypes
import threading
from collections.abc import Callable, Sequence
from typing import Any, final

import torch
import torch.distributed as dist
from torch import Tensor

from shoal.comm.calls import (
    check_peer,
    check_root_whole,
    check_still_in,
    check_whole,
    checked_call,
)
from shoal.comm.group import CPU
from shoal.comm.over_torch.backends import BACKENDS, ask_gloo
from shoal.comm.reduction import Op
from shoal.comm.splitting import chosen_by_all
from shoal.errors import ConfigError, unknown

_OPS: dict[Op, Any] = {
    Op.SUM: dist.ReduceOp.SUM,
    Op.AVERAGE: dist.ReduceOp.SUM,
    Op.MIN: dist.ReduceOp.MIN,
    Op.MAX: dist.ReduceOp.MAX,
    Op.PRODUCT: dist.ReduceOp.PRODUCT,
}


@final
class TorchWork:
    """A torch work, and what is left to do when it is over."""

    def __init__(
        self,
        work: Any = None,
        after: Callable[[], None] | None = None,
        ask: Callable[[Any, float], bool] = ask_gloo,
    ) -> None:
        self._work = work
        self._after = after
        self._ask = ask

    def wait(self) -> None:
        """Wait as torch does; finish what torch leaves to us."""
        if self._work is not None:
            self._work.wait()
        self._finish()

    def wait_for(self, seconds: float) -> bool:
        """Wait that long at most; whether it is over. Not for messages: they break on a timeout."""
        if self._work is not None and not self._ask(self._work, seconds):
            return False
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


@final
class TorchGroup:
    """A group over a torch backend that was made from `store`, which is kept for splitting.

    Its connections end with `close`, and with the process, but never by being forgotten: torch, told to let go of
    connections, first waits for what is under way on them, and so for the very member that is stopped or stuck.
    """

    overlaps = True
    """Whether work moves on while the caller computes: then there is a point in starting it early."""

    def __init__(
        self, store: Any, rank: int, size: int, backend: str = "gloo", host: str = "127.0.0.1"
    ) -> None:
        if backend not in BACKENDS:
            raise ConfigError(unknown("backend", backend, BACKENDS))
        self._store, self._host = store, host
        self.backend = backend
        self._rank, self._size = rank, size
        make, self._within_reach, self._ask = BACKENDS[backend]
        self._torch: Any = make(dist.PrefixStore("torch", store), rank, size, host)
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._torch))
        self._num_splits = 0
        self._num_under_way = 0
        self._counting = threading.Lock()

    @property
    def rank(self) -> int:
        """This member's number, from 0."""
        return self._rank

    @property
    def size(self) -> int:
        """How many members there are."""
        return self._size

    def _connected(self) -> Any:
        """Torch's own group."""
        check_still_in("a call", self._torch is None)
        return self._torch

    # What a caller hands over may lie anywhere and with any strides; torch gets rows in its own memory.

    def _row(self, tensor: Tensor) -> tuple[Tensor, Callable[[], None] | None]:
        """The elements in one row of the backend's memory; how to write them back, where that row is a copy."""
        tensor = tensor.detach()
        row = self._within_reach(tensor.contiguous()).view(-1)
        if row.device == tensor.device and row.data_ptr() == tensor.data_ptr():
            return row, None

        def back() -> None:
            tensor.copy_(row.view(tensor.shape))

        return row, back

    def _copied_row(self, tensor: Tensor) -> Tensor:
        """The same, but never the tensor's own memory."""
        row, back = self._row(tensor)
        return row.clone() if back is None else row

    def _rows(self, whole: Tensor) -> tuple[list[Tensor], Callable[[], None] | None]:
        """The pieces of a whole."""
        row, back = self._row(whole)
        return list(row.view(self._size, row.numel() // self._size)), back

    def _begun(self, work: Any, after: Callable[[], None] | None = None) -> TorchWork:
        """A work of torch's, counted until somebody has waited for it."""

        def finish() -> None:
            if after is not None:
                after()
            self._count(-1)

        self._count(1)
        return TorchWork(work, finish, self._ask)

    def _count(self, change: int) -> None:
        with self._counting:  # messages are waited for by threads of their own
            self._num_under_way += change

    def all_reduce(self, buffer: Tensor, op: Op = Op.SUM) -> TorchWork:
        """Make `buffer` the reduction of all members' buffers, on every member."""
        checked_call("all_reduce", self._size, buffer.dtype, buffer.numel(), op)
        flat, back = self._row(buffer)
        options = dist.AllreduceOptions()
        options.reduceOp = _OPS[op]

        def finish() -> None:
            if op is Op.AVERAGE:
                flat.div_(self._size)
            if back is not None:
                back()

        return self._begun(self._connected().allreduce([flat], options), finish)

    def reduce_scatter(self, piece: Tensor, whole: Tensor, op: Op = Op.SUM) -> TorchWork:
        """Give member i the reduction of everyone's i-th piece of `whole`."""
        check_whole("reduce_scatter", self._size, whole, piece)
        checked_call("reduce_scatter", self._size, piece.dtype, piece.numel(), op)
        # Gloo has no reduce-scatter of all dtypes and operations: all is reduced, and one piece kept.
        everything = self._copied_row(whole)
        options = dist.AllreduceOptions()
        options.reduceOp = _OPS[op]

        def finish() -> None:
            mine = everything[self._rank * piece.numel() : (self._rank + 1) * piece.numel()]
            if op is Op.AVERAGE:
                mine.div_(self._size)
            piece.detach().copy_(mine.view(piece.shape))

        return self._begun(self._connected().allreduce([everything], options), finish)

    def all_gather(self, whole: Tensor, piece: Tensor) -> TorchWork:
        """Fill `whole` with the members' pieces, in rank order, on every member."""
        check_whole("all_gather", self._size, whole, piece)
        checked_call("all_gather", self._size, piece.dtype, piece.numel())
        rows, back = self._rows(whole)
        mine, _ = self._row(piece)
        return self._begun(self._connected().allgather([rows], [mine]), back)

    def broadcast(self, buffer: Tensor, root: int = 0) -> TorchWork:
        """Make `buffer` equal to the root's, on every member."""
        checked_call("broadcast", self._size, buffer.dtype, buffer.numel(), None, root)
        flat, back = self._row(buffer)
        options = dist.BroadcastOptions()
        options.rootRank = root
        return self._begun(self._connected().broadcast([flat], options), back)

    def reduce(self, buffer: Tensor, root: int = 0, op: Op = Op.SUM) -> TorchWork:
        """Make the root's `buffer` the reduction of all; the others' stay as they are."""
        checked_call("reduce", self._size, buffer.dtype, buffer.numel(), op, root)
        # Torch leaves the others' buffers undefined, so what is handed over is a copy.
        flat = self._copied_row(buffer)
        options = dist.ReduceOptions()
        options.reduceOp, options.rootRank = _OPS[op], root

        def finish() -> None:
            if self._rank == root:
                if op is Op.AVERAGE:
                    flat.div_(self._size)
                buffer.detach().copy_(flat.view(buffer.shape))

        return self._begun(self._connected().reduce([flat], options), finish)

    def gather(self, whole: Tensor | None, piece: Tensor, root: int = 0) -> TorchWork:
        """Fill the root's `whole` with the members' pieces; the others give None."""
        check_root_whole("gather", self._rank, self._size, root, whole, piece)
        checked_call("gather", self._size, piece.dtype, piece.numel(), None, root)
        options = dist.GatherOptions()
        options.rootRank = root
        mine, _ = self._row(piece)
        if whole is None or self._rank != root:
            return self._begun(self._connected().gather([], [mine], options))
        rows, back = self._rows(whole)
        return self._begun(self._connected().gather([rows], [mine], options), back)

    def scatter(self, piece: Tensor, whole: Tensor | None, root: int = 0) -> TorchWork:
        """Give member i the i-th piece of the root's `whole`; the others give None."""
        check_root_whole("scatter", self._rank, self._size, root, whole, piece)
        checked_call("scatter", self._size, piece.dtype, piece.numel(), None, root)
        options = dist.ScatterOptions()
        options.rootRank = root
        flat, back = self._row(piece)
        rows = [self._rows(whole)[0]] if whole is not None and self._rank == root else []
        return self._begun(self._connected().scatter([flat], rows, options), back)

    def send(self, tensor: Tensor, to: int, tag: int = 0) -> TorchWork:
        """Send to one member; messages with different tags do not meet."""
        check_peer("send", self._rank, self._size, to)
        checked_call("message", self._size, tensor.dtype, tensor.numel())
        return self._begun(self._connected().send([self._row(tensor)[0]], to, tag))

    def recv(self, tensor: Tensor, sender: int, tag: int = 0) -> TorchWork:
        """Receive from one member what it sent: as many elements, of the same dtype."""
        check_peer("recv", self._rank, self._size, sender)
        checked_call("message", self._size, tensor.dtype, tensor.numel())
        flat, back = self._row(tensor)
        return self._begun(self._connected().recv([flat], sender, tag), back)

    def barrier(self) -> TorchWork:
        """Wait until every member has called it."""
        return self._begun(self._connected().barrier())

    def split(self, ranks: Sequence[int]) -> "TorchGroup":
        """The smaller group of these `ranks`; all members call, each naming the group it goes to."""
        chosen = chosen_by_all(self, ranks)
        self._num_splits += 1
        key = f"split{self._num_splits}/{'-'.join(map(str, chosen))}"
        store = dist.PrefixStore(key, self._store)
        return TorchGroup(store, chosen.index(self._rank), len(chosen), self.backend, self._host)

    def empty(self, numel: int, dtype: torch.dtype = torch.float32, device: torch.device = CPU) -> Tensor:
        """An ordinary tensor: torch's backends move any memory alike."""
        checked_call("empty", self._size, dtype, numel)
        return torch.empty(numel, dtype=dtype, device=device)

    def beat(self, busy_s: float = 0.0) -> None:
        """Nothing: torch has nobody to tell."""
        del busy_s

    def fail(self, error: BaseException) -> None:
        """Nothing: torch has no way to tell why somebody goes."""
        del error

    def close(self) -> None:
        """Let go of the connections; of those with something under way only when the process ends."""
        if self._torch is not None and not self._num_under_way:
            ctypes.pythonapi.Py_DecRef(ctypes.py_object(self._torch))
        self._torch = None
