"""Check that the parameters and buffers of a model have values: none is lazy or on torch's meta device."""

from torch import nn

from shoal.errors import ConfigError, WrapperError


def check_has_values(model: nn.Module) -> None:
    """Refuse a model with a parameter or buffer that has no values yet."""
    tensors = [*model.named_parameters(), *model.named_buffers()]
    for name, tensor in tensors:
        if nn.parameter.is_lazy(tensor):
            raise WrapperError(
                f"parameter '{name}' has no shape yet: its layer is lazy", "Run the model on a sample first."
            )
        if tensor.is_meta:
            raise ConfigError(
                f"'{name}' is on torch's meta device, where tensors have no values",
                "Give it memory and weights first: model.to_empty(device='cpu'), then load or initialise them.",
            )
