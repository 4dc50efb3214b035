"""The transformer: scores for each position, no look-ahead, what it refuses."""

import pytest
import torch

from shoal.errors import ConfigError
from shoal.models.initialise import initialise
from shoal.models.transformer import transformer


def seeded(net):
    initialise(net, seed=0)
    return net


def test_transformer_gives_scores_for_every_position():
    net = transformer((10,), layers=1, width=8, heads=2)
    for dtype in (torch.uint8, torch.int32, torch.int64):
        assert net(torch.zeros(3, 10, dtype=dtype)).shape == (3, 10, 256)
    assert net(torch.zeros(3, 4, dtype=torch.uint8)).shape == (3, 4, 256)


def test_transformer_never_looks_ahead():
    net = seeded(transformer((12,), layers=2, width=16, heads=4)).double()
    text = torch.randint(0, 256, (1, 12), generator=torch.Generator().manual_seed(0))
    for changed in range(12):
        other = text.clone()
        other[0, changed] = (other[0, changed] + 1) % 256
        with torch.no_grad():
            moved = (net(other) - net(text)).abs().amax(dim=-1)[0]
        assert (moved[:changed] == 0).all()
        assert (moved[changed:] > 0).all()


def test_transformer_knows_where_a_byte_stands():
    net = seeded(transformer((6,), layers=1, width=16, heads=2))
    with torch.no_grad():
        scores = net(torch.full((1, 6), 65))[0]
    assert not torch.allclose(scores[0], scores[5])


def test_transformer_refuses_heads_that_do_not_divide_the_width():
    with pytest.raises(ConfigError, match=r"width \(10\).*heads \(4\)[\s\S]*1, 2, 5, 10"):
        transformer((8,), width=10, heads=4)


def test_transformer_refuses_pictures():
    with pytest.raises(ConfigError, match=r"reads bytes.*1×28×28[\s\S]*--data.task text"):
        transformer((1, 28, 28))
