"""Collectives on each other's memory: when tensors come from `empty()`, nothing is copied in or out.

Each function runs when every member has arrived, and does this member's share of the work; afterwards one
more round tells everyone that all shares are done. Work goes in chunks.
"""

from collections.abc import Callable, Sequence

from torch import Tensor

from shoal.comm.algorithms import chunk_bounds
from shoal.comm.reduction import COMBINE, Op, reduce_block
from shoal.comm.shared_memory.regions import ELSEWHERE, Regions
from shoal.comm.signature import Signature

CHUNK_BYTES = 4 * 1024 * 1024
"""Large: a copy should not write lines that the addition has just pulled into the nearest cache.

With 256 KiB an all-reduce of 8 MiB took 1.2 ms, with 4 MiB 0.95 (two workers, Neoverse N1)."""

Places = Sequence[tuple[int, int]]
"""Per member: where its piece lies, and where its whole."""

Direct = Callable[[Regions, Signature, int, Places, Tensor, Tensor | None], None]


def _sum_in_place(op: Op, views: Sequence[Tensor]) -> None:
    """Make all views their balanced-tree reduction: in the first, then copied to the rest."""
    combine, size = COMBINE[op], len(views)
    distance = 1
    while distance < size:
        for low in range(0, size - distance, 2 * distance):
            combine(views[low], views[low + distance], out=views[low])
        distance *= 2
    if op is Op.AVERAGE:
        views[0].div_(size)
    for view in views[1:]:
        view.copy_(views[0])


def _my_slice(regions: Regions, call: Signature, rank: int, places: Places) -> list[tuple[Tensor, ...]]:
    """This member's share of everyone's buffers, in chunks."""
    start, stop = chunk_bounds(call.numel, len(places), rank)
    return regions.chunks([piece for piece, _ in places], call.numel, call.dtype, start, stop, CHUNK_BYTES)


def _all_reduce(
    regions: Regions, call: Signature, rank: int, places: Places, piece: Tensor, whole: Tensor | None
) -> None:
    """Each member reduces its own slice of all buffers, in all buffers."""
    del piece, whole
    for views in _my_slice(regions, call, rank, places):
        _sum_in_place(call.op or Op.SUM, views)


def _reduce(
    regions: Regions, call: Signature, rank: int, places: Places, piece: Tensor, whole: Tensor | None
) -> None:
    """Each member reduces its own slice of all buffers into the root's."""
    del piece, whole
    for views in _my_slice(regions, call, rank, places):
        reduce_block(call.op or Op.SUM, views, views[call.root or 0])


def _reduce_scatter(
    regions: Regions, call: Signature, rank: int, places: Places, piece: Tensor, whole: Tensor | None
) -> None:
    """Each member reduces its own piece of all wholes into its piece."""
    del whole
    first, size = rank * call.numel, len(places)
    wholes = [place for _, place in places]
    chunks = regions.chunks(wholes, size * call.numel, call.dtype, first, first + call.numel, CHUNK_BYTES)
    for parts, out in zip(chunks, piece.split(CHUNK_BYTES // call.dtype.itemsize), strict=True):
        reduce_block(call.op or Op.SUM, parts, out)


def _all_gather_push(
    regions: Regions, call: Signature, rank: int, places: Places, piece: Tensor, whole: Tensor | None
) -> None:
    """Each member writes its piece into all wholes."""
    del whole
    first, size = rank * call.numel, len(places)
    for other in range(size):
        target = regions.view(places[other][1], other, size * call.numel, call.dtype)
        if other != rank or target[first:].data_ptr() != piece.data_ptr():
            target[first : first + call.numel].copy_(piece)


def _all_gather_pull(
    regions: Regions, call: Signature, rank: int, places: Places, piece: Tensor, whole: Tensor | None
) -> None:
    """Each member reads everyone's piece."""
    del rank, piece
    if whole is not None:
        for other, row in enumerate(whole.view(len(places), call.numel)):
            row.copy_(regions.view(places[other][0], other, call.numel, call.dtype))


def _all_to_all(
    regions: Regions, call: Signature, rank: int, places: Places, piece: Tensor, whole: Tensor | None
) -> None:
    """Each member reads its own piece of all wholes."""
    del whole
    first, size = rank * call.numel, len(places)
    for other, row in enumerate(piece.view(size, call.numel)):
        row.copy_(
            regions.view(places[other][1], other, size * call.numel, call.dtype)[first : first + call.numel]
        )


def _broadcast(
    regions: Regions, call: Signature, rank: int, places: Places, piece: Tensor, whole: Tensor | None
) -> None:
    """Each member reads the root's buffer."""
    del whole
    root = call.root or 0
    if rank != root:
        piece.copy_(regions.view(places[root][0], root, call.numel, call.dtype))


def _all_pieces(root: int | None, places: Places) -> bool:
    del root
    return all(piece != ELSEWHERE for piece, _ in places)


def _all_wholes(root: int | None, places: Places) -> bool:
    del root
    return all(whole != ELSEWHERE for _, whole in places)


def _roots_piece(root: int | None, places: Places) -> bool:
    return places[root or 0][0] != ELSEWHERE


DIRECT: dict[str, list[tuple[Callable[[int | None, Places], bool], Direct]]] = {
    "all_reduce": [(_all_pieces, _all_reduce)],
    "reduce": [(_all_pieces, _reduce)],
    "reduce_scatter": [(_all_wholes, _reduce_scatter)],
    "all_gather": [(_all_wholes, _all_gather_push), (_all_pieces, _all_gather_pull)],
    "all_to_all": [(_all_wholes, _all_to_all)],
    "broadcast": [(_roots_piece, _broadcast)],
}
"""Which tensors must come from `empty()`, and what is done then: the first that fits."""


def choose_direct(operation: str, root: int | None, places: Places) -> Direct | None:
    """How this collective works on each other's memory, or None when the tensors do not allow it."""
    for fits, way in DIRECT.get(operation, ()):
        if fits(root, places):
            return way
    return None
