"""State of an exchange that follows parameters: one tensor for each, whatever bucket its gradient is in."""

from collections.abc import Mapping

import torch
from torch import Tensor

from shoal.strategies.buckets.bucket import Bucket


class ParameterState:
    """What an exchange remembers of each parameter, zero at first; for each bucket one flat tensor.

    After the first step the reducer may plan its buckets again, and a resumed run may use buckets of another size. The
    state of a parameter then moves to its new bucket's flat tensor. Error feedback, for example::

        residual = state.flat(bucket)           # what earlier steps did not send
        bucket.flat.add_(residual)
        sent = compress(bucket.flat)
        torch.sub(bucket.flat, sent, out=residual)

    Where a step may fail halfway, write the next state to `spare`, and `use_spare` when the step is complete.

    The names of its pieces are the parameters'.

    >>> from shoal.strategies.buckets.bucket import Bucket
    >>> state = ParameterState()
    >>> _ = state.flat(Bucket.of("fc.bias", torch.zeros(3))).fill_(7)
    >>> state.pieces()
    {'fc.bias': tensor([7., 7., 7.])}
    """

    def __init__(self) -> None:
        self._flats: dict[str, tuple[frozenset[str], Tensor]] = {}
        self._spares: dict[str, Tensor] = {}
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
        self._spares = {key: spare for key, spare in self._spares.items() if key in self._flats}
        self._flats[bucket.key] = names, flat
        return flat

    def spare(self, bucket: Bucket) -> Tensor:
        """Memory for the next state of a bucket, like `flat`; it holds nothing of use."""
        flat = self.flat(bucket)
        if bucket.key not in self._spares:
            self._spares[bucket.key] = torch.empty_like(flat)
        return self._spares[bucket.key]

    def use_spare(self, bucket: Bucket) -> None:
        """Make the spare memory the state; the old state's memory becomes the spare."""
        names, flat = self._flats[bucket.key]
        spare = self._spares[bucket.key]
        self._flats[bucket.key], self._spares[bucket.key] = (names, spare), flat
        self._of_param.update(zip(bucket.names, bucket.split(spare), strict=True))

    def held(self) -> list[Tensor]:
        """All its memory: the states and the spares."""
        return [*(flat for _, flat in self._flats.values()), *self._spares.values()]

    def pieces(self) -> dict[str, Tensor]:
        """The state of every parameter, in the parameter's shape."""
        return dict(self._of_param)

    def load(self, pieces: Mapping[str, Tensor]) -> None:
        """Replace the state of all parameters."""
        self._flats.clear()
        self._spares.clear()
        self._of_param = {name: piece.clone() for name, piece in pieces.items()}
