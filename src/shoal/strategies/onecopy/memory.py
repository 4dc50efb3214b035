"""The memory of `onecopy` in a step, as a formula."""

from shoal.strategies.memory import FRESH, Component, Sizes, main_parts


def onecopy_memory(sizes: Sizes) -> list[Component]:
    """Parameters and state are divided; gradients are whole until they are summed."""
    return [*main_parts(sizes, (True, False, True)), Component(FRESH, "G", sizes.largest)]
