"""What a sweep would train: products of values for the variants that have the settings, checked at once."""

import pytest

from shoal.compare.repeated.sweep import read_sweep
from shoal.compare.variants import by_seeds, variants_of
from shoal.errors import ConfigError

OWN = """recipe = "quickstart"
[variants]
single = "--strategy single --threads 1"
topk = "--strategy ddp --workers 2 --threads 1 --exchange compressed:topk"
"""


@pytest.fixture
def own(tmp_path):
    (tmp_path / "own.toml").write_text(OWN)
    return [str(tmp_path / "own.toml")]


def swept(recipes, *texts, flags=()):
    return variants_of(recipes, list(flags), sweep=read_sweep(texts))


def test_only_variants_that_have_a_setting_are_trained_with_its_values(own):
    made = {each.name: each for each in swept(own, "exchange.ratio=0.1,0.01")}
    assert list(made) == ["single", "topk,ratio=0.1", "topk,ratio=0.01"]
    assert [made[name].config.exchange.ratio for name in list(made)[1:]] == [0.1, 0.01]
    assert [each.swept_from for each in made.values()] == ["", "topk", "topk"]


def test_several_sweeps_make_every_product(own):
    made = swept(own, "exchange.ratio=0.1,0.01", "lr=0.1,0.2,0.3")
    of_topk = {
        (each.config.exchange.ratio, each.config.optimizer.lr) for each in made if each.swept_from == "topk"
    }
    assert of_topk == {(ratio, lr) for ratio in (0.1, 0.01) for lr in (0.1, 0.2, 0.3)}
    assert [each.config.optimizer.lr for each in made if each.swept_from == "single"] == [0.1, 0.2, 0.3]


def test_settings_of_several_workers_leave_single_as_it_is(own):
    made = swept(own, "workers=2,4", "exchange=by:ring,compressed:int8")
    assert [each.name for each in made if each.config.strategy == "single"] == ["single"]
    assert {each.config.launch.workers for each in made[1:]} == {2, 4}
    assert {each.config.exchange.name for each in made[1:]} == {"by", "compressed"}


def test_a_sweep_alone_makes_a_comparison_of_one_variant(tmp_path):
    (tmp_path / "one.toml").write_text('recipe = "quickstart"\n[variants]\none = "--threads 1"\n')
    assert len(swept([str(tmp_path / "one.toml")], "lr=0.1,0.2")) == 2
    with pytest.raises(ConfigError, match="at least two variants"):
        swept([str(tmp_path / "one.toml")])


def test_the_standard_comparison_takes_a_sweep_with_the_threads_of_its_reference():
    made = swept(["quickstart"], "lr=0.1,0.2")
    singles = [each for each in made if each.swept_from == "single"]
    assert {each.config.threads for each in singles} == {
        each.config.threads for each in made if each.swept_from == "ddp"
    }
    assert len(made) == 2 * len(variants_of(["quickstart"], []))


def test_a_program_gives_values_by_key(own):
    texts, values = ["exchange.ratio=0.1,0.01"], {"exchange.ratio": [0.1, 0.01]}
    assert read_sweep(texts) == read_sweep(values)
    (made,) = read_sweep({"model.hidden": [[64, 32]]}).combinations()
    assert [(each.text, each.label) for each in made] == [("64,32", "hidden=64_32")]


def test_the_first_seed_has_the_run_of_a_comparison_with_one(own):
    once = swept(own, flags=["--seed", "3"])
    made = by_seeds(once, 2)
    assert [(each.name, each.config.seed) for each in made] == [
        ("single", 3), ("topk", 3), ("single,seed=4", 4), ("topk,seed=4", 4),
    ]  # fmt: skip
    assert [each.row for each in made] == ["single", "topk"] * 2
    assert [each.config for each in made[:2]] == [each.config for each in once]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("lrr=1,2", "did you mean '--lr'"),
        ("lr", "needs a setting and its values"),
        ("lr=", "needs a setting and its values"),
        ("lr=0.1,,0.2", "needs a setting and its values"),
        ("lr=0.1,0.1", "0.1 twice"),
        ("seed=1,2", "does not take seed"),
        ("strategy=ddp,zero", "does not take strategy"),
        ("runs-dir=a,b", "does not take runs-dir"),
        ("exchange.ratio=0.1,7", "variant 'topk,ratio=7'"),
        ("lr=-1", "variant 'single,lr=-1'"),
        ("strategy.every=1,2", "no variant has the setting strategy.every"),
    ],
)
def test_what_cannot_be_swept_is_named_before_anything_runs(own, text, sentence):
    with pytest.raises(ConfigError) as error:
        swept(own, text)
    assert sentence in str(error.value)


@pytest.mark.parametrize("values", ["0.1", 3, []])
def test_a_program_gives_a_list_of_values(values):
    with pytest.raises(ConfigError, match="values"):
        read_sweep({"lr": values})


def test_a_setting_is_swept_once(own):
    with pytest.raises(ConfigError, match="given twice"):
        swept(own, "lr=0.1,0.2", "optimizer.lr=0.3")
