"""The shape of one input: formatted and checked."""

from collections.abc import Sequence

from shoal.errors import ConfigError


def times(shape: Sequence[int]) -> str:
    """A shape with × between the sizes.

    >>> times((1, 28, 28))
    '1×28×28'
    """
    return "×".join(map(str, shape))


def picture_shape(model: str, input_shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Channels, height and width; a ConfigError if the input is not a picture."""
    if len(input_shape) != 3:
        raise ConfigError(
            f"{model} takes pictures, channels×height×width, but the data's inputs are {times(input_shape)}",
            "Use --model mlp for vectors, or --model transformer for text.",
        )
    channels, height, width = input_shape
    return channels, height, width
