"""Batch norm with the statistics of all workers' samples: N workers normalise like one machine."""

from collections.abc import Callable
from typing import Annotated, Any, NamedTuple, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm  # pyright: ignore[reportPrivateUsage]

from shoal.comm.group import Group
from shoal.config.arguments import checks_arguments
from shoal.config.kinds import AtLeast, AtMost
from shoal.config.sections.values import Count, NonNegative
from shoal.errors import ConfigError


class Statistics(NamedTuple):
    """Mean and variance of every channel, and the number of values per channel."""

    mean: Tensor
    variance: Tensor
    num_values: Tensor


@final
class SyncBatchNorm(_BatchNorm):
    """Batch norm over the samples of all workers of a group. A worker may have any number of samples, 0 included.

    ::

        forward     μ, σ² over all workers' values; y = γ·x̂ + β  with  x̂ = (x − μ) / √(σ² + ε)
        backward    ∂L/∂x = γ/√(σ² + ε) · (dy − mean(dy) − x̂·mean(dy·x̂)),  both means over all workers' values

    Running statistics are equal on all workers, and equal to those of one machine with the whole batch. In evaluation,
    and without a group of at least two, it is ordinary batch norm. Parameters, buffers and their names are those of
    `nn.BatchNorm2d`.

    Costs per layer of C channels: an all-gather of 2C + 1 numbers in forward, an all-reduce of 2C in backward. All
    workers must run each layer the same number of times; a worker without samples runs it on an empty batch.

    `shoal.DistributedDataParallel` and the strategy `ddp` give their group to layers that have none.

    >>> model = SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4)))
    >>> type(model[1]).__name__, list(model.state_dict())[2]
    ('SyncBatchNorm', '1.weight')
    """

    group: Group | None = None
    worker_weight: Callable[[], float] | None = None
    """The weight of this worker's loss when gradients are exchanged; None: the same on all workers."""

    @checks_arguments
    def __init__(
        self,
        num_features: Count,
        eps: NonNegative = 1e-5,
        momentum: Annotated[float, AtLeast(0.0), AtMost(1.0)] | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_group: None = None,
        device: Any = None,
        dtype: Any = None,
        **others: Any,
    ) -> None:
        del process_group  # a wrapper gives its own
        super().__init__(
            num_features, eps, momentum, affine, track_running_stats, device=device, dtype=dtype, **others
        )

    @classmethod
    @checks_arguments
    def convert_sync_batchnorm(cls, module: nn.Module, group: Group | None = None) -> nn.Module:
        """The module with every batch norm in it converted; parameters and buffers stay the same tensors."""
        if isinstance(module, _BatchNorm):
            return cls._of(module, group)
        for name, child in module.named_children():
            converted = cls.convert_sync_batchnorm(child, group)
            if converted is not child:
                setattr(module, name, converted)
        return module

    @classmethod
    def _of(cls, norm: _BatchNorm, group: Group | None) -> "SyncBatchNorm":
        made = cls(norm.num_features, norm.eps, norm.momentum, norm.affine, norm.track_running_stats)
        for name in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked"):
            setattr(made, name, getattr(norm, name))
        made.training = norm.training
        made.group = group
        return made

    def __getstate__(self) -> dict[str, Any]:
        """The state of a copy: without the group. A wrapper gives the copy its own."""
        return {name: value for name, value in vars(self).items() if name not in ("group", "worker_weight")}

    def _check_input_dim(self, input: Tensor) -> None:  # noqa: A002 (torch's name)
        if input.dim() < 2:
            raise ValueError(f"expected at least 2 dimensions, got {input.dim()}")

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 (torch's name)
        """Normalised, scaled and shifted."""
        from_batch = self.training or self.running_mean is None
        if self.group is None or self.group.size == 1 or not from_batch:
            return super().forward(input)
        self._check_input_dim(input)
        weight = 1.0 if self.worker_weight is None else self.worker_weight()
        output, *statistics = _Normalise.apply(input, self.weight, self.bias, self.group, self.eps, weight)
        if self.training and self.track_running_stats:
            self._track(Statistics(*statistics))
        return output

    @torch.no_grad()
    def _track(self, batch: Statistics) -> None:
        """Move the running statistics towards the batch's, like torch: with the unbiased variance."""
        if self.running_mean is None or self.running_var is None or self.num_batches_tracked is None:
            return
        self.num_batches_tracked.add_(1)
        rate = 1 / self.num_batches_tracked.item() if self.momentum is None else self.momentum
        self.running_mean.lerp_(batch.mean.to(self.running_mean), rate)
        unbiased = batch.variance * (batch.num_values / (batch.num_values - 1))
        self.running_var.lerp_(unbiased.to(self.running_var), rate)


def give_group(module: nn.Module, group: Group, worker_weight: Callable[[], float] | None = None) -> bool:
    """Give this group to all synchronised batch norms that have none; return whether there are any."""
    norms = [layer for layer in module.modules() if isinstance(layer, SyncBatchNorm)]
    for norm in norms:
        norm.group = group if norm.group is None else norm.group
        norm.worker_weight = worker_weight
    return bool(norms)


def all_statistics(group: Group, values: Tensor, dims: list[int]) -> Statistics:
    """Mean and variance over `dims` of all workers' values.

    Each worker computes its own from nᵢ values; then μ = Σ nᵢμᵢ / Σn and σ² = Σ nᵢ·(σᵢ² + (μᵢ − μ)²) / Σn. (From sums
    of squares, σ² would be the small difference of large numbers.)
    """
    channels = values.shape[1]
    count = values.numel() // channels
    own = values.new_zeros(2 * channels + 1)
    if count:
        variance, mean = torch.var_mean(values, dims, correction=0)
        own[:channels], own[channels:-1] = mean, variance
        own[-1] = count
    table = own.new_empty(group.size, own.numel())
    group.all_gather(table, own).wait()
    means, variances, counts = table[:, :channels], table[:, channels:-1], table[:, -1:]
    total = counts.sum()
    mean = (counts * means).sum(0) / total
    variance = (counts * (variances + (means - mean) ** 2)).sum(0) / total
    return Statistics(mean, variance, total)


class _Normalise(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        values: Tensor,
        gamma: Tensor | None,
        beta: Tensor | None,
        group: Group,
        eps: float,
        weight: float,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        # Like torch's batch norm: statistics of half precision in float32.
        wide = values.float() if values.element_size() < 4 else values
        dims = [0, *range(2, values.dim())]
        mean, variance, num_values = all_statistics(group, wide, dims)
        # With two values here, the host need not wait for the device to learn the sum.
        if values.numel() < 2 * values.shape[1] and num_values.item() < 2:
            raise ConfigError(
                f"batch norm needs at least 2 values per channel; all workers together have {num_values.item():g}",
                "Use another batch size, or leave out a last batch of one sample.",
            )
        ctx.save_for_backward(values, gamma, mean, torch.rsqrt(variance + eps))
        ctx.group, ctx.num_values, ctx.worker_weight, ctx.dims = group, num_values, weight, dims
        gamma = None if gamma is None else gamma.to(mean)
        beta = None if beta is None else beta.to(mean)
        output = F.batch_norm(wide, mean, variance, gamma, beta, training=False, eps=eps)
        ctx.mark_non_differentiable(mean, variance, num_values)
        return output.to(values.dtype), mean, variance, num_values

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        values, gamma, mean, inverse = ctx.saved_tensors
        slope = gradients[0].to(mean.dtype)
        shape = [1, -1, *[1] * (values.dim() - 2)]
        normalised = (values.to(mean.dtype) - mean.view(shape)) * inverse.view(shape)
        own = torch.stack([slope.sum(ctx.dims), (slope * normalised).sum(ctx.dims)])
        # Every worker's loss depends on all workers' values, through μ and σ; each loss has its own weight.
        total = own * ctx.worker_weight
        ctx.group.all_reduce(total).wait()
        weight = ctx.worker_weight or 1.0  # a worker with weight 0 has no samples
        means = (total / (ctx.num_values * weight)).view(2, *shape)
        scale = inverse if gamma is None else gamma.to(mean.dtype) * inverse
        slopes = (slope - means[0] - normalised * means[1]) * scale.view(shape)
        grads = [None if gamma is None else grad.to(gamma.dtype) for grad in (own[1], own[0])]
        return slopes.to(values.dtype), *grads, None, None, None
