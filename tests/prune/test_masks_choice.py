"""Which weights are kept: how many, which of equal ones, and what was pruned before."""

import pytest
import torch

from shoal.errors import ConfigError
from shoal.prune.masks import keep_best, keep_pattern, prunable

SCORES = {"a": torch.tensor([[9.0, 8.0], [7.0, 6.0]]), "b": torch.tensor([[1.0, 2.0], [3.0, 4.0]])}


def everything(scores):
    return {name: torch.ones_like(score, dtype=torch.bool) for name, score in scores.items()}


def test_global_ranks_all_layers_together_and_layer_prunes_each():
    together = keep_best(SCORES, everything(SCORES), 0.5, "global")
    assert together["a"].all()
    assert not together["b"].any()
    each = keep_best(SCORES, everything(SCORES), 0.5, "layer")
    assert each["a"].tolist() == [[True, True], [False, False]]
    assert each["b"].tolist() == [[False, False], [True, True]]


@pytest.mark.parametrize("sparsity", [0.0, 0.1, 0.5, 0.77, 0.999])
@pytest.mark.parametrize("levels", [1, 3, 1000])
def test_the_number_of_pruned_weights_is_exact_also_among_equal_scores(sparsity, levels):
    draw = torch.Generator().manual_seed(0)
    scores = {"w": torch.randint(levels, (30, 40), generator=draw).float()}
    kept = keep_best(scores, everything(scores), sparsity, "global")["w"]
    assert int((~kept).sum()) == round(sparsity * 1200)
    assert scores["w"][kept].min() >= (scores["w"][~kept].max() if sparsity else 0)


def test_what_is_pruned_stays_pruned_even_with_the_largest_score():
    kept = everything(SCORES)
    kept["a"][0, 0] = False
    assert not keep_best(SCORES, kept, 0.25, "global")["a"][0, 0]
    assert not keep_pattern(SCORES, kept, 1, 2)["a"][0, 0]


@pytest.mark.parametrize("scope", ["global", "layer"])
def test_asking_for_less_than_is_pruned_already_revives_nothing(scope):
    kept = keep_best(SCORES, everything(SCORES), 0.75, scope)
    again = keep_best(SCORES, kept, 0.25, scope)
    assert {name: mask.tolist() for name, mask in again.items()} == {
        name: mask.tolist() for name, mask in kept.items()
    }


def test_a_pattern_that_keeps_more_than_is_left_revives_nothing():
    scores = {"w": torch.arange(8.0).view(2, 4)}
    kept = keep_pattern(scores, everything(scores), 1, 4)
    assert torch.equal(keep_pattern(scores, kept, 2, 4)["w"], kept["w"])


def test_a_pattern_keeps_n_of_every_m_inputs():
    weights = torch.randn(6, 2, 4, generator=torch.Generator().manual_seed(0)).abs()
    kept = keep_pattern({"w": weights}, everything({"w": weights}), 2, 4)["w"]
    assert (kept.view(-1, 4).sum(dim=1) == 2).all()
    with pytest.raises(ConfigError, match="does not divide the 8 inputs of w"):
        keep_pattern({"w": weights}, everything({"w": weights}), 2, 3)


def test_a_pattern_of_layers_that_matches_nothing_names_the_layers():
    params = {"fc1.weight": torch.zeros(2, 2), "fc1.bias": torch.zeros(2), "fc2.weight": torch.zeros(2, 2)}
    assert prunable(params, "fc2") == ["fc2.weight"]
    with pytest.raises(ConfigError, match=r"(?s)matches 'conv\*'.*fc1, fc2"):
        prunable(params, "conv*")
