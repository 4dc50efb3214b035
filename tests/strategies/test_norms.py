"""Clipping by the norm of all gradients, and norms whose bits do not depend on how parameters are divided."""

import pytest
import torch

from shoal.strategies.norms import CHUNK, chunk_norms, clip, global_norm, in_order


def clipped(grads, largest):
    """Clip gradients; their norm before."""
    norm = global_norm(in_order({str(index): chunk_norms(grad) for index, grad in enumerate(grads)}))
    clip(grads, norm, largest)
    return norm


@pytest.mark.parametrize("largest", [0.5, 1e6])
def test_clipping_keeps_direction_and_bounds_the_common_norm(largest):
    grads = [torch.tensor([3.0, 0.0]), torch.tensor([[4.0]])]
    before = [grad.clone() for grad in grads]
    assert clipped(grads, largest).item() == pytest.approx(5.0)
    scale = min(1.0, largest / 5.0)
    for grad, old in zip(grads, before, strict=True):
        torch.testing.assert_close(grad, old * scale)


def test_zero_gradients_are_not_clipped_into_nan():
    grads = [torch.zeros(3)]
    clipped(grads, 1.0)
    assert torch.equal(grads[0], torch.zeros(3))
    assert clipped([], 1.0).item() == 0


def test_a_slice_that_begins_at_a_chunk_has_the_same_norms():
    gradient = torch.randn(5 * CHUNK + 300, generator=torch.Generator().manual_seed(0))
    norms = chunk_norms(gradient)
    assert norms.shape == (6,)
    for first, last in ((0, 2), (2, 5), (5, 6), (1, 6)):
        assert torch.equal(chunk_norms(gradient[first * CHUNK : last * CHUNK]), norms[first:last])
