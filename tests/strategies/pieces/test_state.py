"""State as pieces: it goes out and comes back bit by bit, and never into another model."""

import pytest
import torch
from torch import nn

from shoal.comm.alone import alone
from shoal.errors import CheckpointError
from shoal.strategies.pieces.piece import Piece, Place, by_name
from shoal.strategies.pieces.state import load_optimizer, load_weights, optimizer_pieces
from shoal.strategies.pieces.whole_tensors import weights_sha256


def trained(steps, optimizer_class=torch.optim.Adam, seed=0):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
    optimizer = optimizer_class(model.parameters(), lr=0.1)
    for _ in range(steps):
        step(model, optimizer)
    return model, optimizer


def place_in(model):
    return lambda name: Place.whole(dict(model.named_parameters())[name])


def pieces_of(model, optimizer):
    weights = [Piece.whole(f"model.{name}", tensor) for name, tensor in model.state_dict().items()]
    return weights + optimizer_pieces(dict(model.named_parameters()), place_in(model), optimizer)


def fingerprint_of(tensors):
    return weights_sha256([Piece.whole(name, tensor) for name, tensor in tensors.items()], alone())


def step(model, optimizer):
    optimizer.zero_grad()
    model(torch.arange(8.0).view(2, 4).cos()).square().sum().backward()
    optimizer.step()


def test_names_are_those_of_one_machine():
    names = by_name(pieces_of(*trained(1))).keys()
    assert {"model.0.weight", "model.1.running_mean", "optim.0.weight.exp_avg", "optim.1.bias.step"} <= names


@pytest.mark.parametrize("optimizer_class", [torch.optim.Adam, torch.optim.SGD, torch.optim.Rprop])
def test_going_on_from_pieces_changes_no_bit(optimizer_class):
    model, optimizer = trained(3, optimizer_class)
    pieces = {name: tensor.clone() for name, tensor in by_name(pieces_of(model, optimizer)).items()}
    other, its_optimizer = trained(0, optimizer_class, seed=1)
    load_weights(
        other, {name: tensor for name, tensor in pieces.items() if name.startswith("model.")}, "model."
    )
    load_optimizer(dict(other.named_parameters()), place_in(other), its_optimizer, pieces)
    for _ in range(3):
        step(model, optimizer)
        step(other, its_optimizer)
    assert weights_sha256(pieces_of(model, optimizer), alone()) == weights_sha256(
        pieces_of(other, its_optimizer), alone()
    )


def test_the_fingerprint_sees_every_bit_name_and_shape():
    pieces = {"model.a": torch.zeros(4), "optim.a.step": torch.tensor(1.0)}
    fingerprint = fingerprint_of(pieces)
    assert fingerprint_of({**pieces, "optim.a.step": torch.tensor(2.0)}) == fingerprint
    for other in (
        {"model.a": torch.tensor([0.0, 0, 0, -0.0])},
        {"model.b": torch.zeros(4)},
        {"model.a": torch.zeros(2, 2)},
        {"model.a": torch.zeros(4, dtype=torch.int32)},
    ):
        assert fingerprint_of(other) != fingerprint


@pytest.mark.parametrize(
    ("weights", "sentence"),
    [
        ({"weight": torch.zeros(3, 4)}, r"they lack 'bias' \(3,\)"),
        (
            {"weight": torch.zeros(3, 5), "bias": torch.zeros(3)},
            r"'weight' is \(3, 5\) there and \(3, 4\) here",
        ),
        (
            {"weight": torch.zeros(3, 4), "bias": torch.zeros(3), "extra": torch.zeros(1)},
            "'extra' is not in this model",
        ),
    ],
)
def test_weights_of_another_model_are_refused_before_anything_changes(weights, sentence):
    model = nn.Linear(4, 3)
    before = model.weight.clone()
    with pytest.raises(CheckpointError, match=sentence):
        load_weights(model, weights)
    assert torch.equal(model.weight, before)
