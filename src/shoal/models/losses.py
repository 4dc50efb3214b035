"""Losses, and the check that a model, a loss and labels fit, once before the first step.

A loss is the sum over samples, so that the losses of parts of a batch add up. Outputs are [N, width], or
[N, positions…, width] for text; a sample's loss is the mean over its positions. An empty batch has loss zero and a
gradient of zeros.
"""

from collections.abc import Callable
from functools import partial
from typing import NoReturn

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from shoal.config.custom import calling, check_options, load
from shoal.config.kinds import options_of
from shoal.config.sections.model import LossConfig
from shoal.config.sections.values import Custom
from shoal.errors import ConfigError, ShoalError
from shoal.models.common import check_has_values, evaluation_mode

Loss = Callable[[Tensor, Tensor], Tensor]


def cross_entropy(outputs: Tensor, labels: Tensor, smoothing: float = 0.0) -> Tensor:
    """−Σ log softmax(output)[label]; with smoothing s the target is (1 − s)·label + s·(uniform).

    >>> cross_entropy(torch.zeros(3, 2), torch.tensor([0, 1, 1]))  # three times log 2
    tensor(2.0794)
    """
    total = F.cross_entropy(
        outputs.flatten(0, -2), labels.flatten().long(), reduction="sum", label_smoothing=smoothing
    )
    return _mean_over_positions(total, outputs)


def mse(outputs: Tensor, labels: Tensor) -> Tensor:
    """Σ ‖output − target‖²: also summed over the components, where torch's mean divides by their number.

    >>> mse(torch.tensor([[1.0, 2.0]]), torch.tensor([[0.0, 0.0]]))
    tensor(5.)
    """
    total = F.mse_loss(outputs, targets(outputs, labels), reduction="sum")
    return _mean_over_positions(total, outputs)


def mae(outputs: Tensor, labels: Tensor) -> Tensor:
    """Σ |output − target|₁: also summed over the components.

    >>> mae(torch.tensor([[1.0, 2.0]]), torch.tensor([1]))  # against the one-hot target (0, 1)
    tensor(2.)
    """
    total = F.l1_loss(outputs, targets(outputs, labels), reduction="sum")
    return _mean_over_positions(total, outputs)


LOSSES: dict[str, Callable[..., Tensor]] = {"cross_entropy": cross_entropy, "mse": mse, "mae": mae}
"""Each takes (outputs, labels), and the options of its configuration by keyword."""


def build_loss(config: LossConfig) -> Loss:
    """The loss as a function (outputs, labels) → sum over samples, a tensor without dimensions.

    A user's own loss is called as `function(outputs, labels, **options)` and must return the sum too; `check_fit`
    checks this.

    >>> from shoal.config.sections.model import MseConfig
    >>> build_loss(MseConfig())(torch.ones(4, 1), torch.zeros(4))
    tensor(4.)
    """
    if isinstance(config, Custom):
        with calling("loss", config):
            function = load("loss", config)
        check_options("loss", config, function, given=2)
        return partial(function, **dict(config.options))
    return partial(LOSSES[config.name], **options_of(config))


def targets(outputs: Tensor, labels: Tensor) -> Tensor:
    """The target values of the outputs: floating-point labels unchanged, integer labels as one-hot rows.

    >>> targets(torch.zeros(2, 3), torch.tensor([2, 0]))
    tensor([[0., 0., 1.],
            [1., 0., 0.]])
    """
    if labels.is_floating_point():
        return labels.view_as(outputs)
    # By comparison: torch's one_hot reads the largest label on the host, which waits for the GPU.
    classes = torch.arange(outputs.shape[-1], device=outputs.device)
    return (labels.unsqueeze(-1) == classes).to(outputs.dtype)


def _mean_over_positions(total: Tensor, outputs: Tensor) -> Tensor:
    positions = outputs.shape[1:-1].numel()
    return total if positions == 1 else total / positions


@torch.no_grad()
def check_fit(model: nn.Module, loss: LossConfig, inputs: Tensor, labels: Tensor) -> None:
    """Raise a ConfigError that names the shapes if the model's output does not fit the labels.

    `inputs` are a few samples; `labels` begin with their labels and may continue with those of the whole data set, so
    that the largest label is checked. Cost: one forward pass in evaluation mode, which changes no batch statistics;
    the mode of every module is restored.

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
    fits = FITS.get(loss.name, _custom_fits)
    fits(loss, outputs, labels)


def _outputs(model: nn.Module, inputs: Tensor) -> Tensor:
    try:
        outputs = model(inputs)
    except ShoalError:
        raise
    except (RuntimeError, IndexError, TypeError, ValueError) as error:
        dtype = next((param.dtype for param in model.parameters()), inputs.dtype)
        raise ConfigError(
            f"the model cannot take a batch of {_described(inputs)}: {_first_line(error)}",
            "Inputs are float32: build the model in float32, model.float(). --precision bf16 computes in bfloat16."
            if inputs.is_floating_point() and dtype != inputs.dtype
            else "Choose a model for inputs of this shape, or other data.",
        ) from error
    if not isinstance(outputs, Tensor):
        raise ConfigError(
            f"the model returned a value of type {type(outputs).__name__}, expected one tensor",
            "Wrap it in a module whose forward returns one tensor, such as the logits.",
        )
    if outputs.ndim == 0 or len(outputs) != len(inputs):
        raise ConfigError(
            f"the model's output is {list(outputs.shape)} for a batch of {len(inputs)} samples",
            f"It should be [{len(inputs)}, outputs], or [{len(inputs)}, length, outputs] for text.",
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


def _custom_fits(loss: LossConfig, outputs: Tensor, labels: Tensor) -> None:
    """Call the user's loss and check that it returns the sum over samples, which training requires."""
    assert isinstance(loss, Custom)
    function = build_loss(loss)
    # `shoal.fit` takes losses that are means, as torch's are, and multiplies them by the number of samples.
    takes_mean = getattr(getattr(function, "func", function), "takes_mean", False)
    reduction = "mean" if takes_mean else "sum"
    labels = labels[: len(outputs)].to(outputs.device)
    values = [_value(loss, function, outputs, labels, reduction)]
    values += [
        _value(loss, function, outputs[i : i + 1], labels[i : i + 1], reduction) for i in range(len(outputs))
    ]
    together, total = values[0], sum(values[1:])
    if abs(together - total) > 1e-3 * max(abs(together), abs(total)):
        _refuse_sum(loss, outputs, labels, together, total, reduction)
    if not labels.is_floating_point():
        _classes_fit(loss, outputs, labels)


def _refuse_sum(
    loss: Custom, outputs: Tensor, labels: Tensor, together: float, total: float, reduction: str
) -> NoReturn:
    if labels.is_floating_point() and outputs.shape != labels.shape and outputs.numel() == labels.numel():
        raise ConfigError(
            f"loss {loss.name} is wrong for outputs {list(outputs.shape)} and labels {list(labels.shape)}: probably it "
            "compares each output with every label",
            "Give both one shape: labels.unsqueeze(1) in the data, or outputs.squeeze(1) in the model.",
        )
    num = len(outputs)
    if reduction == "mean":
        raise ConfigError(
            f"loss {loss.name} of {num} samples is {together / num:.6g}, but the mean of the losses of the single "
            f"samples is {total / num:.6g}",
            "Return the mean over the samples. With class weights or ignored labels, torch divides by another number: "
            'return F.cross_entropy(…, reduction="sum") / len(labels).',
        )
    raise ConfigError(
        f"loss {loss.name} of {num} samples is {together:.6g}, but the losses of the single samples "
        f"add up to {total:.6g}",
        "Return the sum over the samples, not the mean: training divides by the batch size.",
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
    loss: Custom,
    function: Callable[[Tensor, Tensor], object],
    outputs: Tensor,
    labels: Tensor,
    reduction: str,
) -> float:
    try:
        value = function(outputs, labels)
    except ShoalError:
        raise
    except (RuntimeError, IndexError, TypeError, ValueError) as error:
        raise ConfigError(
            f"loss {loss.name} cannot take outputs {_described(outputs)} and labels {_described(labels)}: "
            f"{_first_line(error)}"
        ) from error
    if not isinstance(value, Tensor) or value.ndim != 0:
        found = list(value.shape) if isinstance(value, Tensor) else type(value).__name__
        raise ConfigError(
            f"loss {loss.name} returned {found}, expected a tensor with one number",
            f"Return the {reduction} over the samples.",
        )
    return float(value)


def _first_line(error: Exception) -> str:
    return (str(error) or repr(error)).splitlines()[0]


def _described(tensor: Tensor) -> str:
    return f"{list(tensor.shape)} ({str(tensor.dtype).removeprefix('torch.')})"


FITS: dict[str, Callable[[LossConfig, Tensor, Tensor], None]] = {
    "cross_entropy": _cross_entropy_fits,
    "mse": _distance_fits,
    "mae": _distance_fits,
}
