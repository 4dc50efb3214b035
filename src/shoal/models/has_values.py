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
                f"'{name}' of the model is on the meta device, where tensors have a shape and no numbers",
                'First call model.to_empty(device="cpu"), or "cuda", and initialise the model or load its weights.',
            )
