"""The memory of `ddp` in a step, as a formula."""

from shoal.strategies.memory import FRESH, IN_FLIGHT, Component, Sizes, whole_copy


def ddp_memory(sizes: Sizes) -> list[Component]:
    """Whole copies, and the buckets of the reducer."""
    if sizes.updated_in_backward:
        # Two buckets are summed and used at a time, while backward produces the gradients of a third.
        return [*whole_copy(sizes), Component(IN_FLIGHT, "2B", 2 * sizes.updated_in_backward)]
    # A gradient has memory of its own until it is copied to its bucket, which then is the gradient.
    return [*whole_copy(sizes), Component(FRESH, "G", sizes.largest)]
