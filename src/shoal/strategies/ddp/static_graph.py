"""A graph that a program has declared static: every pass gives the same parameters as many gradients."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import final

from torch import Tensor, nn

from shoal.comm.group import Group
from shoal.errors import WrapperError


@final
class StaticGraph:
    """Counts the gradients of each parameter in every pass that is exchanged, and compares them with the first pass."""

    def __init__(
        self, group: Group, params: Mapping[str, nn.Parameter], is_exchanging: Callable[[], bool]
    ) -> None:
        self._group, self._is_exchanging = group, is_exchanging
        self._names = {param: name for name, param in params.items()}
        self._first: Counter[str] | None = None
        self._counts: Counter[str] = Counter()
        hooks = [param.register_post_accumulate_grad_hook(self._count) for param in params.values()]
        self.removers = [hook.remove for hook in hooks]

    def _count(self, param: Tensor) -> None:
        if self._is_exchanging():
            self._counts[self._names[param]] += 1  # pyright: ignore[reportArgumentType]

    def forget(self) -> None:
        """The pass has failed."""
        self._counts = Counter()

    def check(self) -> None:
        """At the end of a pass. A worker that takes part without a pass has no counts, and nothing to compare."""
        counts, self._counts = self._counts, Counter()
        if not counts:
            return
        if self._first is None:
            self._first = counts
        elif counts != self._first:
            names = sorted(name for name in self._first | counts if counts[name] != self._first[name])
            error = WrapperError(
                f"the graph is declared static, but '{names[0]}' got {counts[names[0]]} gradients in this pass and "
                f"{self._first[names[0]]} in the first, on rank {self._group.rank} ({len(names)} parameters differ)",
                "Pass find_unused_parameters=True instead of static_graph=True.",
            )
            # The other workers wait for gradients that are never sent: this ends their wait with the reason.
            self._group.fail(error)
            raise error
