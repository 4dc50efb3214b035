"""State of an exchange that follows parameters: one tensor for each, whatever bucket its gradient is in."""

from collections.abc import Mapping

import torch
from torch import Tensor

from shoal.parallel.buckets.bucket import Bucket


class ParameterState:
    """What an exchange remembers of each parameter, zero at first; for each bucket one flat tensor.

    After the first step the reducer may plan its buckets again, and a resumed run may use buckets of another size. The
    state of a parameter then moves to its new bucket's flat tensor. Error feedback, for example::

        residual = state.flat(bucket)           # what earlier steps did not send
        bucket.flat.add_(residual)
        sent = compress(bucket.flat)
        torch.sub(bucket.flat, sent, out=residual)

    The names of its pieces are the parameters'.

    >>> from shoal.parallel.buckets.bucket import Bucket
    >>> state = ParameterState()
    >>> _ = state.flat(Bucket.of("fc.bias", torch.zeros(3))).fill_(7)
    >>> state.pieces()
    {'fc.bias': tensor([7., 7., 7.])}
    """

    def __init__(self) -> None:
        self._flats: dict[str, tuple[frozenset[str], Tensor]] = {}
        self._of_param: dict[str, Tensor] = {}

    def flat(self, bucket: Bucket) -> Tensor:
        """The state of a bucket's parameters, in the order of its gradients; write to it in place."""
        if bucket.key in self._flats:
            return self._flats[bucket.key][1]
        flat = torch.zeros_like(bucket.gradients)
        for name, view in zip(bucket.names, bucket.split(flat), strict=True):
            if name in self._of_param:
                view.copy_(self._of_param[name])
            self._of_param[name] = view
        # A bucket that held one of these parameters no longer exists.
        names = frozenset(bucket.names)
        self._flats = {key: (held, old) for key, (held, old) in self._flats.items() if not held & names}
        self._flats[bucket.key] = names, flat
        return flat

    def pieces(self) -> dict[str, Tensor]:
        """The state of every parameter, in the parameter's shape."""
        return dict(self._of_param)

    def load(self, pieces: Mapping[str, Tensor]) -> None:
        """Replace the state of all parameters."""
        self._flats.clear()
        self._of_param = {name: piece.clone() for name, piece in pieces.items()}
