"""Top-k with feedback and DGC, step by step as published, worked out by hand."""

import pytest
import torch

from shoal.codecs.sparse import Dgc, TopK


def steps(codec, gradients):
    """What is sent in each step of one worker, and the residual at the end."""
    residual = torch.zeros(len(gradients[0]))
    memory, sent = None, []
    for gradient in map(torch.tensor, gradients):
        memory = codec.correct(gradient, memory, workers=4)
        x = gradient + residual
        payload = codec.encode(x, 0, memory)
        sent.append((x - _without(codec, x, payload)).tolist())
        memory = codec.remember(x, payload, memory, 0)
        residual = _without(codec, x, payload)
    return sent, residual.tolist()


def _without(codec, x, payload):
    rest = x.clone()
    codec.subtract(rest, payload, 0)
    return rest


def test_top_k_with_feedback():
    sent, residual = steps(TopK(0.5), [[1.0, -5.0, 2.0, 0.5], [1.0, 0.0, 0.0, 1.0], [0.5, 0.0, 0.0, 0.0]])
    assert sent == [[0, -5, 2, 0], [2, 0, 0, 1.5], [0.5, 0, 0, 0]]
    assert residual == [0, 0, 0, 0]


def test_dgc_sends_velocities_and_forgets_what_it_sent():
    """u = [4, 1], v = [4, 1]: 4 goes. u = [1, 1.5], v = [1, 2.5]: 2.5 goes. u = [1.5, 0], v = [2.5, 0]: 2.5 goes."""
    sent, residual = steps(Dgc(0.5, momentum=0.5, clip=0.0), [[4.0, 1.0], [1.0, 1.0], [1.0, 0.0]])
    assert sent == [[4, 0], [0, 2.5], [2.5, 0]]
    assert residual == [0, 0]


def test_dgc_clips_to_the_share_of_one_of_the_workers():
    """4 workers: each may contribute half of the norm, because norms of independent vectors add in squares."""
    sent, _ = steps(Dgc(1.0, momentum=0.0, clip=10.0), [[3.0, 4.0], [30.0, 40.0]])
    assert sent == [[3, 4], [pytest.approx(3), pytest.approx(4)]]


def test_the_ratio_falls_exponentially_in_the_warm_up():
    codec = Dgc(0.01, momentum=0.9, clip=0.0)
    ratios = [codec.warming(progress).ratio for progress in (0.0, 0.25, 0.5, 1.0)]
    assert ratios == pytest.approx([1.0, 0.316, 0.1, 0.01], rel=1e-2)
