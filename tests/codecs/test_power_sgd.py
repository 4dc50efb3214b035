"""PowerSGD on small matrices, worked out by hand."""

import torch

from shoal.codecs.codec import Dense, Form
from shoal.codecs.power_sgd import PowerSgd


def iterate(codec, matrix, memory, steps):
    """The approximations of one matrix, each from the last step's Q."""
    for step in range(steps):
        payload = codec.encode(matrix, step, memory)
        memory = codec.remember(matrix, payload, memory, step)
        yield codec.decode(payload, Form.of(matrix), step)


def test_two_steps_by_hand():
    """M = diag(2, 1), Q = (1, 1): P = (2, 1) / √5, Q = (4, 1) / √5. Then P = (8, 1) / √65, Q = (16, 1) / √65."""
    matrix = torch.tensor([[2.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    first, second = iterate(PowerSgd(1), matrix, torch.ones(2, 1, dtype=torch.float64), 2)
    assert torch.allclose(first, torch.tensor([[8.0, 2], [4, 1]], dtype=torch.float64) / 5)
    assert torch.allclose(second, torch.tensor([[128.0, 8], [16, 1]], dtype=torch.float64) / 65)


def test_a_matrix_of_the_rank_is_exact_at_once():
    matrix = torch.tensor([[3.0, 0.0], [4.0, 0.0]])
    (approximation,) = iterate(PowerSgd(1), matrix, torch.ones(2, 1), 1)
    assert torch.allclose(approximation, matrix)


def test_it_tends_to_the_best_approximation():
    draw = torch.Generator().manual_seed(0)
    matrix = torch.randn(12, 7, generator=draw, dtype=torch.float64)
    best = torch.linalg.svdvals(matrix)[2:].norm()
    codec = PowerSgd(2)
    errors = [
        (matrix - approximation).norm()
        for approximation in iterate(codec, matrix, codec.new_memory(Form.of(matrix), 0), 200)
    ]
    assert errors[0] > 1.02 * best
    assert abs(errors[-1] / best - 1) < 1e-6


def test_vectors_are_sent_as_they_are_and_ranks_are_clamped():
    def form(*shape):
        return Form(shape, torch.float32)

    codec = PowerSgd(4)
    assert isinstance(codec.fitted(form(9)), Dense)
    assert isinstance(codec.fitted(form(1, 9)), Dense)
    assert codec.fitted(form(3, 9)) == PowerSgd(3)
    assert codec.fitted(form(8, 2, 3)) == codec
    assert "rank 4 is larger than the shorter side of a 3 × 9 matrix: rank 3 is used" in codec.remark(
        form(3, 9)
    )
    assert not codec.remark(form(9))
    assert not codec.remark(form(8, 6))


def test_a_zero_gradient_does_not_end_the_warm_start():
    matrix = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    memory = torch.ones(4, 2)
    codec = PowerSgd(2)
    kept = codec.remember(matrix, codec.encode(torch.zeros(5, 4), 0, memory), memory, 0)
    assert torch.equal(kept, memory)
