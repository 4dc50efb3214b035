"""What `shoal compare` would train: variants read, layered and checked before anything runs."""

import json
import warnings
from contextlib import nullcontext

import pytest

from shoal.compare import variants as module
from shoal.compare.variants import Variant, train_again, variants_of
from shoal.config.read import read
from shoal.config.sections.sync import STRATEGIES
from shoal.config.write import to_toml
from shoal.errors import ConfigError
from shoal.launch.cores import threads_per_worker
from shoal.training.observer import Silent


def by_name(recipes, *flags, every=False):
    return {variant.name: variant.config for variant in variants_of(recipes, flags, every=every)}


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_the_demo_has_eight_runs_the_first_as_wide_as_a_worker():
    short, whole = by_name(["quickstart"]), by_name(["quickstart"], every=True)
    assert list(short) == ["single", "ddp", "zero", "pipeline", "server", "local", "ddp-slow", "ddp-balanced"]
    assert short["single"].threads == short["ddp"].threads
    # With --all, an earlier short comparison has the first runs.
    assert {name: whole[name] for name in short} == short


def test_with_all_every_strategy_is_compared_on_the_same_batches():
    configs = by_name(["quickstart"], every=True)
    # A mesh of several axes needs four workers.
    assert {config.strategy for config in configs.values()} == {
        each for each in STRATEGIES if "+" not in each
    }
    assert {config.launch.group for config in configs.values()} >= {"gloo", "shm"}
    assert {config.threads for config in configs.values() if config.strategy == "single"} >= {1}
    assert len({(c.seed, c.train.batch_size, c.train.epochs, c.model, c.data) for c in configs.values()}) == 1
    slow = [config for config in configs.values() if config.launch.bottleneck]
    assert {config.train.balance for config in slow} == {False, True}


@pytest.mark.parametrize(
    "flags",
    [
        "--workers 2",
        "--strategy ddp --workers 2 --bottleneck rank=1,slowdown=3 --balance",
        "--mesh data=2,pipeline=2 --pipeline.microbatches 2 --sync zero",
        "--strategy naive --workers 3 --exchange by:ring --partition label",
        "--strategy pipeline --workers 2 --pipeline.cut fc1",
    ],
)
def test_single_is_one_process_for_the_recipe_of_a_run_with_several_workers(here, flags):
    recipe = write(here / "config.toml", to_toml(read(None, flags.split())))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # strategies that do not support the recipe are left out
        configs = by_name([recipe])
    assert configs["single"].strategy == "single"
    assert configs["single"].launch.workers == 1
    assert configs["ddp"].launch.workers == 2


def test_every_variant_uses_all_cores_together_unless_it_says_otherwise():
    for config in by_name(["quickstart"], every=True).values():
        assert config.threads in (1, threads_per_worker(config.launch.workers), threads_per_worker(2))


def test_one_process_with_the_workers_number_of_threads_is_always_there(here, monkeypatch):
    for cores, singles in ((1, [1]), (2, [1, 2]), (4, [2, 4, 1])):
        monkeypatch.setattr(module, "threads_per_worker", lambda workers, n=cores: max(1, n // workers))
        configs = by_name(["quickstart"], every=True)
        assert configs["single"].threads == configs["ddp"].threads
        assert [config.threads for config in configs.values() if config.strategy == "single"] == singles
        own = by_name(
            [write(here / "own.toml", '[variants]\none = ""\ntwo = "--strategy ddp --workers 2"\n')]
        )
        assert [config.threads for config in own.values() if config.strategy == "single"][-1] == singles[0]


@pytest.mark.parametrize(("delay", "kept"), [(0.05, "second"), (0.5, "first"), (None, "first")])
def test_a_run_that_was_delayed_is_replaced_by_one_that_was_delayed_less(tmp_path, monkeypatch, delay, kept):
    def train(variant, folder, observer, which="second", not_scheduled=delay):
        (folder / variant.name).mkdir(parents=True)
        if not_scheduled is None:
            raise KeyboardInterrupt
        end = {"event": "end", "not_scheduled": not_scheduled}
        (folder / variant.name / "events.rank0.jsonl").write_text(json.dumps(end) + "\n")
        (folder / variant.name / which).touch()

    variant = Variant("a", by_name(["quickstart"])["single"])
    train(variant, tmp_path, None, "first", 0.4)
    monkeypatch.setattr(module, "train", train)
    with pytest.raises(KeyboardInterrupt) if delay is None else nullcontext():
        train_again(variant, tmp_path, Silent())
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a" / kept).exists()


def test_flags_go_over_all_and_those_of_the_launcher_over_several_workers():
    configs = by_name(["quickstart"], "--epochs", "2", "--workers", "4", "--lr", "0.5", every=True)
    assert {config.train.epochs for config in configs.values()} == {2}
    assert {config.optimizer.lr for config in configs.values()} == {0.5}
    assert {c.launch.workers for c in configs.values() if c.strategy == "single"} == {1}
    assert {c.launch.workers for c in configs.values() if c.strategy != "single"} == {4}


def test_a_plain_recipe_is_tried_in_every_way_and_several_are_left_as_they_are(here):
    mine = write(here / "mine.toml", 'model = "mlp"\n')
    other = write(here / "other.toml", 'model = "linear"\nstrategy = "naive"\n[launch]\nworkers = 2\n')
    assert by_name([mine]).keys() == by_name(["quickstart"]).keys()
    assert {config.model.name for config in by_name([mine]).values()} == {"mlp"}
    both = by_name([mine, other], "--workers", "3")
    assert (both["mine"].strategy, both["other"].strategy) == ("single", "naive")
    assert (both["mine"].launch.workers, both["other"].launch.workers) == (1, 3)


def test_a_comparison_of_the_users_own(here):
    text = 'recipe = "quickstart"\nflags = "--epochs 5"\n[variants]\nslow = "--lr 0.1"\nfast = "--epochs 1 --lr 0.2"\n'
    configs = by_name([write(here / "c.toml", text)])
    assert [(config.train.epochs, config.optimizer.lr) for config in configs.values()] == [(5, 0.1), (1, 0.2)]
    more = write(here / "more.toml", text + '[more]\nmost = "--lr 1"\n')
    assert (list(by_name([more])), list(by_name([more], every=True))) == (
        ["slow", "fast"],
        ["slow", "fast", "most"],
    )


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('[variants]\na = ""\n', "at least two variants"),
        ('variants = "a"\n', "at least two variants"),
        ('[variants]\na = ""\nb = 3\n', "flags must be one text, not 3"),
        ('[variants]\na = ""\nb = "--lr \'0.1"\n', "cannot be read"),
        ('[variants]\na = ""\n"b/c" = ""\n', "'b/c' cannot be the name of a folder"),
        ('[variants]\na = ""\nb = "--lrr 3"\n', "--lrr"),
        (
            '[variants]\na = ""\nb = "--strategy single --workers 3"\n',
            "variant 'b': strategy single does not support --workers 3",
        ),
        ('recipe = 3\n[variants]\na = ""\nb = ""\n', "recipe must be a name or a path, not 3"),
        ('recipe = "c.toml"\n[variants]\na = ""\nb = ""\n', "c.toml is itself a comparison"),
        (
            '[variants]\na = ""\nb = ""\n[more]\na = "--lr 1"\n',
            "[more] needs variants with names of their own",
        ),
        ('recip = "x"\n[variants]\na = ""\nb = ""\n', "did you mean 'recipe'?"),
    ],
)
def test_a_comparison_that_cannot_be_is_named(here, text, sentence):
    with pytest.raises(ConfigError) as error:
        variants_of([write(here / "c.toml", text)], [])
    assert sentence in str(error.value)


def test_unknown_names_and_names_given_twice(here):
    with pytest.raises(ConfigError, match="unknown comparison 'quickstrat': did you mean 'quickstart'"):
        variants_of(["quickstrat"], [])
    with pytest.raises(ConfigError, match="unknown recipe 'nothing'"):
        variants_of(["quickstart", "nothing"], [])
    (here / "a").mkdir()
    again = write(here / "a/mine.toml", "seed = 1")
    with pytest.raises(ConfigError, match="two recipes are called 'mine'"):
        variants_of([write(here / "mine.toml", "seed = 1"), again], [])
    own = write(here / "own.toml", '[variants]\na = ""\nb = ""\n')
    with pytest.raises(ConfigError, match="is itself a comparison"):
        variants_of(["quickstart", own], [])


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [(["--name", "x"], "--out DIR"), (["--strategy", "ddp"], "--strategy is what a comparison compares")],
)
def test_flags_that_would_make_all_variants_the_same_are_refused(flags, sentence):
    with pytest.raises(ConfigError) as error:
        variants_of(["quickstart"], flags)
    assert sentence in str(error.value)


def test_a_strategy_that_does_not_support_the_settings_is_left_out_of_the_standard_comparison(tmp_path):
    with pytest.warns(UserWarning, match="variant 'rpc': .*it is left out"):
        names = {variant.name for variant in variants_of(["quickstart"], ["--clip-norm", "1"], every=True)}
    assert "rpc" not in names
    assert {"single", "ddp", "pipeline"} <= names
    own = tmp_path / "own.toml"
    own.write_text('[variants]\none = ""\ntwo = "--strategy rpc --workers 2"\n')
    with pytest.raises(ConfigError, match="variant 'two'"):
        variants_of([str(own)], ["--clip-norm", "1"])
