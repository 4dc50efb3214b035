"""A group over a `torch.distributed` backend (gloo, nccl): the way to many machines.

This class only translates. It does not detect mismatches or members that are gone: `checked` adds that, and
`join_torch` makes both together. Reductions follow the library's own order, so beyond two members they may differ from
the balanced tree's in the last digits; all members still hold the same bits.
"""

import ctypes
import threading
from collections.abc import Callable
from typing import Any, final

import torch
import torch.distributed as dist
from torch import Tensor

from shoal.comm.group import ANYONE, Group
from shoal.comm.over_torch.backends import BACKENDS, GLOO, Backend
from shoal.comm.reduction import Op
from shoal.comm.signature import Signature, check_open
from shoal.errors import ConfigError, unknown

_OPS: dict[Op, Any] = {
    Op.SUM: dist.ReduceOp.SUM,
    Op.AVERAGE: dist.ReduceOp.SUM,
    Op.MIN: dist.ReduceOp.MIN,
    Op.MAX: dist.ReduceOp.MAX,
    Op.PRODUCT: dist.ReduceOp.PRODUCT,
}

POLL_S = 0.001
"""How long a poll waits for a work that reports its completion only to a wait."""

Finish = Callable[[], None]
Started = tuple[Any, Finish | None]
"""Torch's work, and what is left to do after it."""


@final
class TorchWork:
    """A torch work, and what is left to do when it is over."""

    def __init__(
        self,
        work: Any = None,
        after: Finish | None = None,
        backend: Backend = GLOO,
        source: int = ANYONE,
        silent: bool = False,
    ) -> None:
        self._work = work
        self._after = after
        self._ask, self._wait = backend.ask, backend.wait
        self._silent = silent
        self.source = source

    def wait(self) -> None:
        """Wait for as long as it takes; finish what torch leaves to us."""
        if self._work is not None:
            self._wait(self._work)
        self._finish()

    def wait_for(self, seconds: float) -> bool:
        """Wait that long at most; whether it is over. Not for messages: a timeout breaks their connection."""
        if self._work is not None and not self._ask(self._work, seconds):
            return False
        self._finish()
        return True

    def done(self) -> bool:
        """Whether torch reports it as completed; a message is so only after a wait."""
        if self._silent and self._work is not None:
            return self.wait_for(POLL_S)
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
class TorchGroup(Group):
    """A group over a torch backend that was made from `store`, which is kept for splitting.

    Its connections end with `close` or with the process, never by garbage collection: torch's destructor waits for work
    that is under way, and so for the very member that is stopped or stuck.
    """

    overlaps = True
    devices = ("cpu", "cuda")

    def __init__(
        self, store: Any, rank: int, size: int, backend: str = "gloo", host: str = "127.0.0.1"
    ) -> None:
        if backend not in BACKENDS:
            raise ConfigError(unknown("backend", backend, BACKENDS))
        self._store, self._host = store, host
        self.kind = backend
        self.rank, self.size = rank, size
        self._backend = BACKENDS[backend]
        self._within_reach = self._backend.within_reach
        self._torch: Any = self._backend.make(dist.PrefixStore("torch", store), rank, size, host)
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._torch))
        self._num_splits = 0
        self._num_under_way = 0
        self._counting = threading.Lock()
        self._start: dict[str, Callable[[Signature, Tensor, Any], Started]] = {
            "all_reduce": self._all_reduce,
            "reduce_scatter": self._reduce_scatter,
            "all_gather": self._all_gather,
            "all_to_all": self._all_to_all,
            "broadcast": self._broadcast,
            "reduce": self._reduce,
            "gather": self._gather,
            "scatter": self._scatter,
            "barrier": self._barrier,
        }

    # A caller's tensors may be on any device and have any strides; torch gets rows in its own memory.

    def _row(self, tensor: Tensor) -> tuple[Tensor, Finish | None]:
        """The elements in one row of the backend's memory; how to write them back, where that row is a copy."""
        row = self._within_reach(tensor.contiguous()).view(-1)
        if row.device == tensor.device and row.data_ptr() == tensor.data_ptr():
            return row, None

        def back() -> None:
            tensor.copy_(row.view(tensor.shape))

        return row, back

    def _rows(self, whole: Tensor) -> tuple[list[Tensor], Finish | None]:
        """The pieces of a whole."""
        row, back = self._row(whole)
        return list(row.view(self.size, row.numel() // self.size)), back

    def _begun(
        self, work: Any, after: Finish | None = None, source: int = ANYONE, silent: bool = False
    ) -> TorchWork:
        """A work of torch's, counted until it has been waited for."""

        def finish() -> None:
            if after is not None:
                after()
            self._count(-1)

        self._count(1)
        return TorchWork(work, finish, self._backend, source, silent)

    def _count(self, change: int) -> None:
        with self._counting:  # messages are waited for by threads of their own
            self._num_under_way += change

    def issue(self, call: Signature, piece: Tensor, whole: Tensor | None = None) -> TorchWork:
        """Start the backend's own collective."""
        check_open(call.operation, self.closed)
        if call.operation == "empty":
            return TorchWork()
        work, after = self._start[call.operation](call, piece, whole)
        return self._begun(work, after, silent=call.operation in self._backend.silent)

    def _reduced(self, call: Signature, row: Tensor, back: Finish | None) -> Finish | None:
        """What is left to do after a reduction into `row`: torch has no average of every dtype."""
        if call.op is not Op.AVERAGE:
            return back

        def finish() -> None:
            row.div_(self.size)
            if back is not None:
                back()

        return finish

    def _all_reduce(self, call: Signature, piece: Tensor, whole: None) -> Started:
        row, back = self._row(piece)
        options = _options(dist.AllreduceOptions(), call)
        return self._torch.allreduce([row], options), self._reduced(call, row, back)

    def _reduce_scatter(self, call: Signature, piece: Tensor, whole: Tensor) -> Started:
        row, back = self._row(piece)
        options = _options(dist.ReduceScatterOptions(), call)
        work = self._torch._reduce_scatter_base(row, self._row(whole)[0], options)
        return work, self._reduced(call, row, back)

    def _all_gather(self, call: Signature, piece: Tensor, whole: Tensor) -> Started:
        rows, back = self._rows(whole)
        return self._torch.allgather([rows], [self._row(piece)[0]]), back

    def _all_to_all(self, call: Signature, piece: Tensor, whole: Tensor) -> Started:
        row, back = self._row(piece)
        # As bytes, because gloo refuses some dtypes.
        out, given = (each.view(torch.uint8) for each in (row, self._row(whole)[0]))
        return self._torch.alltoall_base(out, given, [], [], dist.AllToAllOptions()), back

    def _broadcast(self, call: Signature, piece: Tensor, whole: None) -> Started:
        row, back = self._row(piece)
        return self._torch.broadcast([row], _options(dist.BroadcastOptions(), call)), back

    def _reduce(self, call: Signature, piece: Tensor, whole: None) -> Started:
        # Torch leaves the others' buffers undefined, so it gets a copy.
        row, back = self._row(piece)
        row = row.clone() if back is None else row

        def finish() -> None:
            if self.rank == call.root:
                piece.copy_((row.div_(self.size) if call.op is Op.AVERAGE else row).view(piece.shape))

        return self._torch.reduce([row], _options(dist.ReduceOptions(), call)), finish

    def _gather(self, call: Signature, piece: Tensor, whole: Tensor | None) -> Started:
        rows, back = ([], None) if whole is None else self._rows(whole)
        options = _options(dist.GatherOptions(), call)
        return self._torch.gather([rows] if rows else [], [self._row(piece)[0]], options), back

    def _scatter(self, call: Signature, piece: Tensor, whole: Tensor | None) -> Started:
        row, back = self._row(piece)
        rows = [] if whole is None else [self._rows(whole)[0]]
        return self._torch.scatter([row], rows, _options(dist.ScatterOptions(), call)), back

    def _barrier(self, call: Signature, piece: Tensor, whole: None) -> Started:
        return self._torch.barrier(), None

    # Messages; those with different tags do not meet.

    def issue_send(self, call: Signature, tensor: Tensor, to: int, tag: int = 0) -> TorchWork:
        """Send to one member."""
        check_open("send", self.closed)
        return self._begun(self._torch.send([self._row(tensor)[0]], to, tag))

    def issue_recv(self, call: Signature, tensor: Tensor, sender: int, tag: int = 0) -> TorchWork:
        """Receive a message. From `ANYONE` only over gloo."""
        check_open("recv", self.closed)
        row, back = self._row(tensor)
        if sender != ANYONE:
            return self._begun(self._torch.recv([row], sender, tag), back, sender)
        work = self._torch.recv_anysource([row], tag)

        def finish() -> None:
            begun.source = work._source_rank()
            if back is not None:
                back()

        begun = self._begun(work, finish)
        return begun

    def split_off(self, ranks: tuple[int, ...]) -> "TorchGroup":
        """Make the smaller group of these ranks."""
        self._num_splits += 1
        key = f"split{self._num_splits}/{'-'.join(map(str, ranks))}"
        store = dist.PrefixStore(key, self._store)
        return TorchGroup(store, ranks.index(self.rank), len(ranks), self.kind, self._host)

    def beat(self, busy_s: float = 0.0) -> None:
        """Do nothing: torch has no signs of life."""

    def fail(self, error: BaseException) -> None:
        """Do nothing: torch cannot report why a member ends."""

    @property
    def closed(self) -> bool:
        """Whether this member has left the group."""
        return self._torch is None

    def close(self) -> None:
        """Close the connections; those with work under way stay until the process ends."""
        if self._torch is not None and not self._num_under_way:
            ctypes.pythonapi.Py_DecRef(ctypes.py_object(self._torch))
        self._torch = None


def _options(options: Any, call: Signature) -> Any:
    """Torch's options of this call."""
    if call.op is not None:
        options.reduceOp = _OPS[call.op]
    if call.root is not None:
        options.rootRank = call.root
    return options
