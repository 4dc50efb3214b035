"""A group over a `torch.distributed` backend (gloo, nccl): the way to many machines.

This class only translates. It does not detect mismatches or members that are gone: `checked` adds that, and
`join_torch` makes both together. Reductions follow the library's own order, so beyond two members they may differ from
the balanced tree's in the last digits; all members still hold the same bits.
"""

import ctypes
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple, final

import torch
import torch.distributed as dist
from torch import Tensor

from shoal.comm.group import ANYONE, Group
from shoal.comm.reduction import Op, tree_reduce
from shoal.comm.signature import Signature, check_open
from shoal.errors import ConfigError, JoinError, unknown

_DAY = timedelta(days=1)
"""Torch's own timeout. It never ends a wait, because it cannot name the missing member."""

_CONNECT = timedelta(minutes=1)
"""How long connecting to members that have already met may take."""

_GLANCE_S = 50e-6
"""Between two polls of a work."""
_OPS: dict[Op, Any] = {
    Op.SUM: dist.ReduceOp.SUM,
    Op.AVERAGE: dist.ReduceOp.SUM,
    Op.MIN: dist.ReduceOp.MIN,
    Op.MAX: dist.ReduceOp.MAX,
    Op.PRODUCT: dist.ReduceOp.PRODUCT,
}
Finish = Callable[[], None]
Started = tuple[Any, Finish | None]
"""Torch's work, and what is left to do after it."""


def _gloo(store: Any, rank: int, size: int, host: str) -> Any:
    gloo: Any = dist.ProcessGroupGloo
    options = gloo._Options()
    options._timeout = _CONNECT
    options._devices = [gloo.create_device(hostname=host)]
    backend = gloo(store, rank, size, options)
    backend._set_default_timeout(_DAY)
    return backend


def _nccl(store: Any, rank: int, size: int, host: str) -> Any:
    if not (dist.is_nccl_available() and torch.cuda.is_available()):
        raise JoinError(
            f"rank {rank} cannot use nccl: torch sees no GPU here", "Use gloo, or shm on one machine."
        )
    return dist.ProcessGroupNCCL(store, rank, size, dist.ProcessGroupNCCL.Options())


def wait_gloo(work: Any) -> None:
    """Wait for as long as it takes. Without an argument, messages would time out after `_CONNECT`."""
    work.wait(_DAY)


def wait_nccl(work: Any) -> None:
    """The same; with an argument, NCCL would block the processor until the device is done."""
    work.wait()


def ask_gloo(work: Any, seconds: float) -> bool:
    """Wait that long at most; whether it is over."""
    try:
        work.wait(timedelta(seconds=seconds))
    except RuntimeError as error:
        if "timed out" in str(error).lower():
            return False
        raise
    return True


def ask_nccl(work: Any, seconds: float) -> bool:
    """The same by polling: a wait of NCCL's that runs out of time takes the whole communicator down."""
    deadline = time.monotonic() + seconds
    while not work.is_completed():
        if time.monotonic() > deadline:
            return False
        time.sleep(_GLANCE_S)
    work.wait()  # from here on the caller's own operations on the device come after it
    return True


class Backend(NamedTuple):
    """One of torch's backends."""

    make: Callable[[Any, int, int, str], Any]
    """Connects to the others: (store, rank, size, address to listen on)."""
    within_reach: Callable[[Tensor], Tensor]
    """The tensor in memory that the backend can move: itself, or a copy where it is on another device."""
    wait: Callable[[Any], None]
    """Waits for a work, for as long as it takes."""
    ask: Callable[[Any, float], bool]
    """Whether a work of the backend is over within so many seconds; asking does not break it."""


GLOO = Backend(_gloo, Tensor.cpu, wait_gloo, ask_gloo)
NCCL = Backend(_nccl, Tensor.cuda, wait_nccl, ask_nccl)
BACKENDS: dict[str, Backend] = {"gloo": GLOO, "nccl": NCCL}
"""Torch's backends by name."""


@final
class TorchWork:
    """A torch work, and what is left to do when it is over."""

    def __init__(
        self,
        work: Any = None,
        after: Finish | None = None,
        backend: Backend = GLOO,
        source: int = ANYONE,
    ) -> None:
        self._work = work
        self._after = after
        self._ask, self._wait = backend.ask, backend.wait
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
            "barrier": lambda call, piece, whole: (self._torch.barrier(), None),
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
        row, back = self._row(whole)
        return list(row.view(self.size, row.numel() // self.size)), back

    def _begun(self, work: Any, after: Finish | None = None, source: int = ANYONE) -> TorchWork:
        """A work of torch's, counted until it has been waited for."""

        def finish() -> None:
            if after is not None:
                after()
            self._count(-1)

        self._count(1)
        return TorchWork(work, finish, self._backend, source)

    def _count(self, change: int) -> None:
        with self._counting:  # messages are waited for by threads of their own
            self._num_under_way += change

    def issue(self, call: Signature, piece: Tensor, whole: Tensor | None = None) -> TorchWork:
        """Start the backend's own collective."""
        check_open(call.operation, self.closed)
        if call.operation == "empty":
            return TorchWork()
        work, after = self._start[call.operation](call, piece, whole)
        return self._begun(work, after)

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
        if self.kind == "gloo":
            return self._reduce_scatter_over_gloo(call, row, back, self._row(whole)[0])
        options = _options(dist.ReduceScatterOptions(), call)
        work = self._torch._reduce_scatter_base(row, self._row(whole)[0], options)
        return work, self._reduced(call, row, back)

    def _reduce_scatter_over_gloo(
        self, call: Signature, row: Tensor, back: Finish | None, given: Tensor
    ) -> Started:
        """Torch's own is an all-reduce over gloo, and sends twice as much. Here all pieces arrive, and are reduced."""
        arrived = torch.empty_like(given)

        def finish() -> None:
            tree_reduce(call.op or Op.SUM, list(arrived.view(self.size, -1)), out=row)
            if back is not None:
                back()

        out, whole = arrived.view(torch.uint8), given.view(torch.uint8)
        return self._torch.alltoall_base(out, whole, [], [], dist.AllToAllOptions()), finish

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
    if call.op is not None:
        options.reduceOp = _OPS[call.op]
    if call.root is not None:
        options.rootRank = call.root
    return options
