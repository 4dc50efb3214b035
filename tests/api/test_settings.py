"""Settings as keywords."""

import pytest

from shoal.api.settings import config_of
from shoal.config.read import read
from shoal.errors import ConfigError


@pytest.mark.parametrize(
    ("keywords", "flags"),
    [
        ({"model": "mlp", "epochs": 2}, "--model mlp --epochs 2"),
        ({"model": {"name": "mlp", "hidden": [8, 4]}}, "--model mlp --model.hidden 8,4"),
        (
            {"strategy": "zero", "workers": 2, "strategy.stage": 3},
            "--strategy zero --workers 2 --strategy.stage 3",
        ),
        ({"batch_size": 32, "clip_norm": 1.0, "lr": 0.1}, "--batch-size 32 --clip-norm 1 --lr 0.1"),
        ({"mesh": "data=2,pipeline=2"}, "--mesh data=2,pipeline=2"),
        ({"train": {"epochs": 4}, "seed": 3}, "--train.epochs 4 --seed 3"),
    ],
)
def test_keywords_are_the_flags(keywords, flags):
    assert config_of("quickstart", keywords) == read("quickstart", flags.split())


@pytest.mark.parametrize(
    ("keywords", "sentence"),
    [
        ({"epoch": 2}, "unknown setting 'epoch': did you mean 'epochs'"),
        ({"epochs": "2"}, "train.epochs"),
        ({"model": "lenett"}, "unknown model 'lenett': did you mean 'lenet'"),
        ({"model": {"name": "mlp", "hiden": [8]}}, "model.hiden"),
    ],
)
def test_what_is_wrong_is_named(keywords, sentence):
    with pytest.raises(ConfigError, match=sentence):
        config_of(None, keywords)
