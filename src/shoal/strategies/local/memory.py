"""The memory of `local` in a step, as a formula."""

from dataclasses import replace

from shoal.strategies.local.settings import LocalConfig
from shoal.strategies.memory import ANCHORS, IN_FLIGHT, Component, Sizes, whole_copy


def local_memory(sizes: Sizes) -> list[Component]:
    """Whole copies, and the weights between two averagings."""
    each = sizes.weights / max(1, sizes.num_params)
    state = sizes.state if sizes.averages_state else 0
    bucket = f"{each:.3g}Ψ" + (f" + {state / max(1, sizes.num_params):.3g}Ψ" if state else "")
    return [
        *whole_copy(sizes),
        # The weights after the last averaging and before the next, and the momentum of the outer step.
        Component(ANCHORS, f"{3 * each:.3g}Ψ", 3 * sizes.weights),
        Component(IN_FLIGHT, bucket, sizes.weights + state),
    ]


def averaging_every_step(config: LocalConfig) -> LocalConfig:
    """The peak is in a step with an averaging."""
    moments = "average" if config.averages_moments else "keep"
    return replace(config, every=1, overlap=0, fragments=1, moments=moments)
