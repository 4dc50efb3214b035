"""The schema accepts recipes that shoal accepts, and refuses unknown names, wrong kinds, numbers out of range."""

import tomllib

import pytest

from shoal.config.json_schema import recipe_schema
from shoal.config.read import from_tree, read, shipped_recipes
from shoal.config.schema import RunConfig
from shoal.config.sections.sync import STRATEGIES
from shoal.config.write import to_toml
from shoal.errors import ConfigError

jsonschema = pytest.importorskip("jsonschema", reason="a tool of developers; a GPU image may lack it")
VALIDATOR = jsonschema.Draft202012Validator(recipe_schema())

RECIPES = [
    *(path.read_text() for path in shipped_recipes().values()),
    to_toml(RunConfig()),
    *(
        to_toml(read(None, [*each.split(), "--workers", "2"]))
        for each in (
            "--strategy pipeline --pipeline.cut fc1 --clip-norm 1",
            "--strategy zero --strategy.offload file --optimizer torch.optim:Adagrad --optimizer.lr 0.1",
            "--exchange compressed:topk --link all:1gbit --bottleneck rank=1,delay=0-40ms --metrics top5",
        )
    ),
    'strategy = "naive"\noptimizer = "sgd"\nexchange = "by:ring"\nlaunch.workers = 2',
    'exchange = "compressed:topk"\nmodel = "mine:Net"\n[strategy]\nname = "ddp"\nbucket_mib = 3',
    '[strategy]\nname = "pipeline"\nschedule = "gpipe"\n[launch]\nworkers = 2',
    '[exchange]\nname = "compressed:powersgd"\nrank = 4\n[sync]\nname = "ddp"',
    '[data]\naugment = true\nname = "cifar10"\n[train]\nbatch_size = "all"',
    '[model]\nhidden = [8]\nname = "mlp"\n[launch]\nlink = "all:1gbit"\nworkers = 2',
]
WRONG = [
    "sed = 1",
    'seed = "one"',
    'model = "lenett"',
    'strategy = "zerro"',
    '[optimizer]\nname = "adam"\nmomentum = 0.9',
    "[optimizer]\nlr = -1",
    "[train]\nepochs = 0",
    "[train]\nepochs = 1.5",
    '[strategy]\nname = "zero"\nstage = 4',
    '[strategy]\nname = "ddp"\nstage = 2',
    '[memory]\nbudget = "much"',
    '[data]\nname = "digits"\nshape = [3]',
    '[exchange]\nname = "by"\nalgorithm = "rings"',
    "[launch]\nworkers = true",
    "stop = 3",
]


@pytest.mark.parametrize("recipe", RECIPES)
def test_what_shoal_takes_is_valid(recipe):
    tree = tomllib.loads(recipe)
    assert [error.message for error in VALIDATOR.iter_errors(tree)] == []
    from_tree(tree)


@pytest.mark.parametrize("recipe", WRONG)
def test_what_shoal_refuses_for_itself_is_invalid(recipe):
    tree = tomllib.loads(recipe)
    assert not VALIDATOR.is_valid(tree)
    with pytest.raises(ConfigError):
        from_tree(tree)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_strategy_is_a_choice(strategy):
    assert VALIDATOR.is_valid({"strategy": strategy})
    assert VALIDATOR.is_valid({"strategy": {"name": strategy}})


def test_every_setting_has_its_sentence_and_its_default():
    jsonschema.Draft202012Validator.check_schema(recipe_schema())
    train = recipe_schema()["properties"]["train"]["properties"]
    assert train["epochs"] == {
        "type": "integer",
        "minimum": 1,
        "default": 3,
        "description": train["epochs"]["description"],
    }
    assert train["epochs"]["description"].startswith("Passes")
