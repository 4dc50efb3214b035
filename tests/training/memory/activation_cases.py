"""Networks whose gradients must have the same bits, however their activations are kept."""

from itertools import pairwise

import torch
from torch import nn
from torch.nn import functional as F

from shoal.models.lenet import lenet
from shoal.models.mlp import mlp
from shoal.models.resnet18 import resnet18
from shoal.models.transformer import transformer

PICTURES, TEXT = (4, 1, 16, 16), (2, 16)


def with_dropout():
    return nn.Sequential(
        nn.Flatten(),
        *(nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Dropout(0.3)) for _ in range(3)),
        nn.Linear(256, 10),
    )


def with_one_activation():
    """One module without parameters, used after every layer."""
    relu, sizes = nn.ReLU(), [256, 64, 64, 64, 64]
    layers = [each for size in pairwise(sizes) for each in (nn.Linear(*size), relu)]
    return nn.Sequential(nn.Flatten(), *layers, nn.Linear(64, 10))


def with_a_layer_twice():
    """One module with parameters that begins two blocks."""
    shared = nn.Linear(16, 16)
    between = [nn.Tanh(), nn.Linear(16, 16), nn.Tanh()]
    return nn.Sequential(shared, *between, shared, nn.Tanh(), nn.Flatten(), nn.Linear(256, 10))


class Listed(nn.Module):
    """Blocks in a list, called with keywords and returning tuples, as published models have them."""

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.fc, self.drop = nn.LayerNorm(256), nn.Linear(256, 256), nn.Dropout(0.1)

        def forward(self, hidden, scale=None, times=1):
            return (hidden + self.drop(F.gelu(self.fc(self.norm(hidden)))) * scale * times,)

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Listed.Layer() for _ in range(4))
        self.head = nn.Linear(256, 10)

    def forward(self, pictures):
        hidden = pictures.flatten(1)
        scale = hidden.abs().mean()
        for layer in self.layers:
            (hidden,) = layer(hidden, scale=scale, times=2)
        return self.head(hidden)


MODELS = {
    "mlp": lambda: mlp((1, 16, 16), 10, (512, 256, 128)),
    "lenet": lambda: lenet((1, 16, 16), 10),
    "resnet18": lambda: resnet18((1, 16, 16), 10, width=8),
    "transformer": lambda: transformer((16,), 256, layers=3, width=32),
    "sequential with dropout": with_dropout,
    "list with dropout": Listed,
    "one activation": with_one_activation,
    "a layer twice": with_a_layer_twice,
}


def made(name, dtype=torch.float32):
    """A model and a batch."""
    torch.manual_seed(3)
    model = MODELS[name]().to(dtype)
    if name == "transformer":
        return model, torch.randint(256, TEXT), torch.randint(256, TEXT)
    return model, torch.randn(PICTURES, dtype=dtype), torch.randint(10, PICTURES[:1])


def results(model, inputs, labels, saving=None, backwards=2):
    """Everything that two steps leave behind: losses, gradients, buffers, random state."""
    torch.manual_seed(5)
    found = []
    for _ in range(backwards):
        with saving() if saving else torch.enable_grad():
            loss = F.cross_entropy(model(inputs).flatten(0, -2), labels.flatten())
        loss.backward()
        found.append(loss.detach())
    found += [param.grad for param in model.parameters()]
    return [*found, *model.buffers(), torch.get_rng_state()]


def assert_same_bits(found, expected):
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one, other)
