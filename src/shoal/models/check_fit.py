"""Check that a model, a loss and the samples fit, once before the first step."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

import torch
from torch import Tensor, nn

from shoal import nested
from shoal.config.sections.model import LossConfig
from shoal.config.sections.values import Custom
from shoal.errors import ConfigError, ShoalError
from shoal.models.common import check_has_values, evaluation_mode
from shoal.models.losses import build_loss, of_pair
from shoal.nested import Nested, described

CLOSE = 1e-3
"""The relative difference up to which sums in float32 are one."""


@torch.no_grad()
def check_fit(
    model: nn.Module, loss: LossConfig, inputs: Nested, labels: Nested | None, coupled: bool = False
) -> bool:
    """Raise a ConfigError that names the shapes if the model's output does not fit the labels.

    `inputs` are a few samples; `labels` begin with their labels and may continue with those of the whole data set, so
    that the largest label is checked. Without labels the loss gets the inputs. Returns whether the loss counts, that is
    returns a pair (sum, count). With `coupled`, the loss of a sample may depend on the others.

    Cost: one forward pass in evaluation mode, which changes no batch statistics; the mode of every module is restored.

    >>> from shoal.config.sections.model import CrossEntropyConfig
    >>> check_fit(nn.Linear(4, 5), CrossEntropyConfig(), torch.zeros(2, 4), torch.tensor([0, 9]))
    Traceback (most recent call last):
        ...
    shoal.errors.ConfigError: the model's output is [2, 5], for labels 0 to 4, but the labels are 0 to 9
      Give the model 10 outputs.
    """
    check_has_values(model)
    with evaluation_mode(model):
        outputs = _outputs(model, inputs)
    if isinstance(loss, Custom):

        def of_sample(i: int) -> Any:
            """The outputs of one sample; a number that the model returns for all samples is computed anew."""
            if all(leaf.ndim for _, leaf in nested.leaves(outputs)):
                return nested.part(outputs, i, i + 1)
            with evaluation_mode(model):
                return _outputs(model, nested.part(inputs, i, i + 1))

        return _custom_fits(
            loss, outputs, of_sample, inputs if labels is None else labels, labels is None, coupled
        )
    outputs = _one_tensor(loss, outputs, nested.length(inputs))
    if not isinstance(labels, Tensor):
        raise ConfigError(
            f"{loss.name} compares outputs with one tensor of labels, but the samples have "
            f"{'none' if labels is None else described(labels)}",
            "Give a loss of your own: --loss package.module:function.",
        )
    FITS[loss.name](loss, outputs, labels)
    return False


def _outputs(model: nn.Module, inputs: Nested) -> Any:
    try:
        return nested.call(model, inputs)
    except ShoalError:
        raise
    except (RuntimeError, IndexError, TypeError, ValueError, KeyError, AttributeError) as error:
        first = nested.first(inputs)
        dtype = next((param.dtype for param in model.parameters()), first.dtype)
        hint = "Choose a model for inputs of this shape, or other data."
        if first.is_floating_point() and dtype != first.dtype:
            hint = "Inputs are float32: build the model in float32, model.float(). "
            hint += "--precision bf16 computes in bfloat16."
        elif not isinstance(inputs, Tensor):
            hint = (
                "A dictionary is passed by its keys and a tuple by its order, as the arguments of `forward`."
            )
        raise ConfigError(
            f"the model cannot take a batch of {described(inputs)}: {_first_line(error)}", hint
        ) from error


def _one_tensor(loss: LossConfig, outputs: Any, num_samples: int) -> Tensor:
    """The outputs for a loss of ours."""
    if not isinstance(outputs, Tensor):
        raise ConfigError(
            f"the model returned a value of type {type(outputs).__name__}, and {loss.name} takes one tensor",
            "Wrap it in a module whose forward returns one tensor, such as the logits; or give a loss of your own.",
        )
    if outputs.ndim == 0 or len(outputs) != num_samples:
        raise ConfigError(
            f"the model's output is {list(outputs.shape)} for a batch of {num_samples} samples",
            f"It should be [{num_samples}, outputs], or [{num_samples}, length, outputs] for text.",
        )
    return outputs


def _cross_entropy_fits(loss: LossConfig, outputs: Tensor, labels: Tensor) -> None:
    if labels.is_floating_point():
        raise ConfigError(
            f"{loss.name} needs integer labels 0, 1, 2, …, but the labels are {labels.dtype}",
            "Use --loss mse.",
        )
    _labels_fit(loss, outputs, labels)


def _distance_fits(loss: LossConfig, outputs: Tensor, labels: Tensor) -> None:
    if not labels.is_floating_point():
        _labels_fit(loss, outputs, labels)
        return
    target_shape = list(labels[: len(outputs)].shape)
    if list(outputs.shape) not in (target_shape, [*target_shape, 1]):
        raise ConfigError(
            f"the model's output is {list(outputs.shape)} and the labels are {target_shape}: "
            f"{loss.name} compares them element by element",
            "Give the model one output for each element of a label.",
        )


def _labels_fit(loss: LossConfig, outputs: Tensor, labels: Tensor) -> None:
    """Integer labels: one per sample or position, each with an output."""
    label_shape = list(labels[: len(outputs)].shape)
    if list(outputs.shape[:-1]) != label_shape:
        raise ConfigError(
            f"the model's output is {list(outputs.shape)} and the labels are {label_shape}: "
            f"{loss.name} needs a row of scores for each label",
            f"The output should be {[*label_shape, int(labels.max()) + 1]}.",
        )
    smallest, largest = (int(label) for label in labels.aminmax())
    if smallest < 0 or largest >= outputs.shape[-1]:
        raise ConfigError(
            f"the model's output is {list(outputs.shape)}, for labels 0 to {outputs.shape[-1] - 1}, "
            f"but the labels are {smallest} to {largest}",
            f"Give the model {largest + 1} outputs."
            if smallest >= 0
            else "Labels must start at 0: fix the data.",
        )


class _Value(NamedTuple):
    """What a loss returned, as numbers; a loss that returns no pair has no count."""

    total: float
    number: float | None

    def is_close(self, other: "_Value") -> bool:
        """Whether both numbers are the same up to rounding; NaN is not."""
        pairs = ((self.total, other.total), (self.number or 0.0, other.number or 0.0))
        return all(abs(one - two) <= CLOSE * max(abs(one), abs(two)) for one, two in pairs)


def _custom_fits(
    loss: Custom,
    outputs: Any,
    of_sample: Callable[[int], Any],
    labels: Nested,
    is_unlabelled: bool,
    coupled: bool,
) -> bool:
    """Call the user's loss and check that it returns the sum over samples, which training requires."""
    function = build_loss(loss)
    # `shoal.fit` takes losses that are means, as torch's are, and multiplies them by the number of samples.
    takes_mean = getattr(getattr(function, "func", function), "takes_mean", False)
    reduction = "mean" if takes_mean else "sum"
    num = _length(outputs, labels)
    labels = nested.mapped(
        lambda tensor: tensor.to(nested.first(outputs).device), nested.part(labels, 0, num)
    )
    together = _value(loss, function, outputs, labels, reduction)
    _refuse_without_gradient(loss, function, outputs, labels)
    if not coupled:
        _refuse_nonfinite(loss, together, num)
        each = [
            _value(loss, function, of_sample(i), nested.part(labels, i, i + 1), reduction) for i in range(num)
        ]
        counts = [value.number for value in each if value.number is not None]
        total = _Value(sum(value.total for value in each), sum(counts) if counts else None)
        if not together.is_close(total):
            _refuse_sum(loss, outputs, labels, together, total, reduction)
    has_accuracy = isinstance(labels, Tensor) and isinstance(outputs, Tensor) and not is_unlabelled
    if has_accuracy and not labels.is_floating_point():
        _classes_fit(loss, outputs, labels)
    return together.number is not None


def _length(outputs: Any, labels: Nested) -> int:
    """The number of samples of a few outputs."""
    found = next((len(leaf) for _, leaf in nested.leaves(outputs) if leaf.ndim), None)
    if found is None:
        raise ConfigError(
            f"the model returned {described(outputs)} for several samples",
            "Return tensors whose first dimension counts the samples.",
        )
    return min(found, nested.length(labels))


@torch.enable_grad()
def _refuse_without_gradient(
    loss: Custom, function: Callable[[Any, Any], Any], outputs: Any, labels: Nested
) -> None:
    leaves = nested.mapped(lambda leaf: leaf.detach().requires_grad_(_has_gradient(leaf)), outputs)
    value, _ = of_pair(function(leaves, labels))
    if not value.requires_grad:
        raise ConfigError(
            f"loss {loss.name} has no gradient: it does not depend on the model's outputs as torch sees it",
            "Compute it from the outputs themselves, without detach(), item(), argmax() or torch.no_grad().",
        )


def _has_gradient(tensor: Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def _refuse_nonfinite(loss: Custom, together: _Value, num: int) -> None:
    number = 0.0 if together.number is None else together.number
    if math.isfinite(together.total) and math.isfinite(number):
        return
    count = "" if together.number is None else f" with a count of {number:g}"
    raise ConfigError(
        f"loss {loss.name} of the first {num} samples is {together.total:g}{count}, before any training",
        "Look for a division by 0, a logarithm of 0, or numbers of the data or the model that are not finite.",
    )


def _refuse_sum(
    loss: Custom, outputs: Any, labels: Nested, together: _Value, total: _Value, reduction: str
) -> NoReturn:
    tensors = isinstance(outputs, Tensor) and isinstance(labels, Tensor)
    if (
        tensors
        and labels.is_floating_point()
        and outputs.shape != labels.shape
        and outputs.numel() == labels.numel()
    ):
        raise ConfigError(
            f"loss {loss.name} is wrong for outputs {list(outputs.shape)} and labels {list(labels.shape)}: probably it "
            "compares each output with every label",
            "Give both one shape: labels.unsqueeze(1) in the data, or outputs.squeeze(1) in the model.",
        )
    num = nested.length(labels)
    contrastive = " If the loss compares samples with each other: --train.coupled true."
    if together.number is not None:
        raise ConfigError(
            f"loss {loss.name} of {num} samples is {together.total:.6g} with a count of {together.number:g}, but the "
            f"single samples add up to {total.total:.6g} with a count of {total.number or 0:g}",
            f"Return the sum over all that counts, and their number.{contrastive}",
        )
    if reduction == "mean":
        raise ConfigError(
            f"loss {loss.name} of {num} samples is {together.total / num:.6g}, but the mean of the losses of the "
            f"single samples is {total.total / num:.6g}",
            "Return the mean over the samples. With class weights or ignored labels torch divides by another number: "
            f"return two values, the sum and the number that it is divided by.{contrastive}",
        )
    raise ConfigError(
        f"loss {loss.name} of {num} samples is {together.total:.6g}, but the losses of the single samples "
        f"add up to {total.total:.6g}",
        f"Return the sum over the samples, not the mean: training divides by the batch size.{contrastive}",
    )


def _classes_fit(loss: Custom, outputs: Tensor, labels: Tensor) -> None:
    """Whole numbers are classes, and the accuracy needs a score for each."""
    largest = int(labels.max())
    if list(outputs.shape[:-1]) == list(labels.shape) and (outputs.shape[-1] > 1 or largest == 0):
        return
    raise ConfigError(
        f"the model's output is {list(outputs.shape)} and the labels are whole numbers {list(labels.shape)} up to "
        f"{largest}: the accuracy needs a score for each class",
        f"The output should be {[*labels.shape, largest + 1]}. If {loss.name} takes other targets (one output for two "
        "classes, several classes for one sample), return the labels as floating-point numbers: labels.float().",
    )


def _value(
    loss: Custom, function: Callable[[Any, Any], object], outputs: Any, labels: Nested, reduction: str
) -> _Value:
    try:
        returned = function(outputs, labels)
    except ShoalError:
        raise
    except (RuntimeError, IndexError, TypeError, ValueError, KeyError, AttributeError) as error:
        raise ConfigError(
            f"loss {loss.name} cannot take outputs {described(outputs)} and labels {described(labels)}: "
            f"{_first_line(error)}"
        ) from error
    value, count = of_pair(returned)
    if not isinstance(value, Tensor) or value.ndim != 0:
        found = list(value.shape) if isinstance(value, Tensor) else type(value).__name__
        raise ConfigError(
            f"loss {loss.name} returned {found}, expected a tensor with one number",
            f"Return the {reduction} over the samples, or two values: the sum and the number that it is divided by.",
        )
    is_number = count.ndim == 0 if isinstance(count, Tensor) else isinstance(count, int | float | None)
    if not is_number or (count is not None and not float(count) >= 0):
        shown = list(count.shape) if isinstance(count, Tensor) and count.ndim else count
        raise ConfigError(
            f"loss {loss.name} returned a count of {shown}, expected one number of 0 or more",
            "Return one tensor, or two values: the sum and the number that it is divided by.",
        )
    return _Value(float(value), None if count is None else float(count))


def _first_line(error: Exception) -> str:
    return (str(error) or repr(error)).splitlines()[0]


FITS: dict[str, Callable[[LossConfig, Tensor, Tensor], None]] = {
    "cross_entropy": _cross_entropy_fits,
    "mse": _distance_fits,
    "mae": _distance_fits,
}
