"""`--mesh`, `--strategy` and `--sync`: what they set, and what is refused."""

import dataclasses
from pathlib import Path

import pytest

from shoal.config.mesh import grid
from shoal.config.read import from_tree, merge, parse_toml, read, read_flags
from shoal.config.schema import RunConfig
from shoal.config.sections.launch import LaunchConfig
from shoal.config.sections.sync import OTHER_NAMES
from shoal.config.write import to_toml
from shoal.errors import ConfigError
from shoal.strategies.ddp.settings import DdpConfig
from shoal.strategies.onecopy.settings import OneCopyConfig
from shoal.strategies.settings import NaiveConfig, NoSyncConfig
from shoal.strategies.zero.settings import ZeroConfig


def read_words(words):
    return read(None, words.split())


@pytest.mark.parametrize(
    ("words", "strategy", "workers", "sync"),
    [
        ("", "single", 1, NoSyncConfig()),
        ("--workers 1", "single", 1, NoSyncConfig()),
        ("--workers 2", "ddp", 2, DdpConfig()),
        ("--mesh data=2", "ddp", 2, DdpConfig()),
        ("--mesh data=2 --workers 2", "ddp", 2, DdpConfig()),
        ("--mesh data=2 --strategy ddp", "ddp", 2, DdpConfig()),
        ("--mesh data=2 --strategy naive --combine mean", "naive", 2, NaiveConfig(combine="mean")),
        ("--mesh data=2 --sync naive", "naive", 2, NaiveConfig()),
        ("--mesh data=3,tensor=1 --strategy dp", "dp", 3, None),
        ("--workers 2 --strategy ddp --strategy.bucket_mib 3", "ddp", 2, DdpConfig(bucket_mib=3.0)),
        ("--workers 2 --strategy ddp --sync.bucket_mib 3", "ddp", 2, DdpConfig(bucket_mib=3.0)),
        ("--workers 2 --strategy tensor", "tensor", 2, DdpConfig()),
        ("--mesh data=2,tensor=2", "tensor", 4, DdpConfig()),
        ("--mesh data=1", "ddp", 1, DdpConfig()),
        ("--strategy pipeline --workers 3", "pipeline", 3, DdpConfig()),
        ("--strategy pipeline --workers 2 --strategy.recompute", "pipeline", 2, DdpConfig()),
        ("--mesh data=2,pipeline=2", "pipeline", 4, DdpConfig()),
        ("--mesh data=2,pipeline --workers 6 --pipeline.schedule gpipe", "pipeline", 6, DdpConfig()),
        ("--mesh data=2,pipeline=2,tensor=2", "pipeline+tensor", 8, DdpConfig()),
        ("--mesh data=2,pipeline=2 --sync zero", "pipeline+zero", 4, ZeroConfig()),
        ("--mesh data=2,tensor=2 --sync zero --sync.stage 3", "tensor+zero", 4, ZeroConfig(stage=3)),
        ("--mesh data=2,pipeline=2,tensor=2 --sync onecopy", "pipeline+tensor+onecopy", 8, OneCopyConfig()),
        ("--strategy tensor+zero --mesh data=2,tensor=2 --strategy.stage 2", "tensor+zero", 4, None),
        ("--mesh data=1 --strategy single", "single", 1, NoSyncConfig()),
    ],
)
def test_what_they_mean(words, strategy, workers, sync):
    config = read_words(words)
    assert (config.strategy, config.launch.workers) == (strategy, workers)
    assert sync is None or config.sync == sync


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("--mesh data=3,tensor=2 --workers 4", "data (3) × tensor (2) = 6 workers, but there are 4"),
        ("--mesh data=4 --workers 1", "data (4) = 4 workers, but there are 1"),
        ("--strategy pipeline+tensor --workers 4", "strategy pipeline+tensor needs a --mesh"),
        ("--strategy pipeline+zero --workers 4", "strategy pipeline+zero needs a --mesh"),
        ("--mesh data=2,pipeline=2,tensor=2 --sync zero --sync.stage 3", "layout pipeline does not support"),
        (
            "--mesh pipeline=3 --pipeline.cut fc1",
            "--pipeline.cut fc1 makes 2 stages, but the mesh has pipeline=3",
        ),
        (
            "--mesh pipeline=2 --micro-batch 8",
            "64 samples in 4 micro-batches are 16 each, but --micro-batch is 8",
        ),
        ("--mesh data=2,pipeline=2 --micro-batch 4", "32 samples in 4 micro-batches are 8 each"),
        ("--strategy pipeline --workers 2 --pipeline.schedule 1b1f", "unknown pipeline.schedule '1b1f'"),
        (
            "--mesh pipeline=2 --pipeline.schedule async --pipeline.weight_gradients once",
            "async updates after every micro-batch and cannot compute the weight gradients once per step",
        ),
        ("--mesh rows=2", "unknown mesh axis 'rows'"),
        ("--mesh data,tensor", "expected tensor=SIZE, got 'tensor'"),
        ("--mesh data=two", "expected data=SIZE, got 'data=two'"),
        ("--mesh data=²", "expected data=SIZE"),
        ("--mesh data=0", "the size of mesh axis data"),
        ("--mesh data=2,data=2", "the axis data is given twice"),
        ("--strategy single --workers 3", "strategy single does not support --workers 3"),
        ("--strategy ddp --sync naive --workers 2", "strategy ddp has sync ddp, but --sync is naive"),
        ("--strategy dpp --workers 2", "unknown strategy 'dpp': did you mean 'dp'"),
        ("--strategy.bucket_mib 3", "sync 'none' has no setting 'bucket_mib': it belongs to ddp"),
    ],
)
def test_what_is_refused(words, sentence):
    with pytest.raises(ConfigError) as refused:
        read_words(words)
    assert sentence in refused.value.message


def test_the_fix_of_a_wrong_product_is_right():
    with pytest.raises(ConfigError) as refused:
        read_words("--mesh data=3,tensor=2 --workers 4")
    assert refused.value.hint == "Use --workers 6, or --mesh data=2,tensor=2."


def test_in_python_too():
    assert RunConfig(mesh="data=4").launch.workers == 4
    with pytest.raises(ConfigError, match="strategy naive does not support layout tensor"):
        RunConfig(mesh="tensor=2", sync=NaiveConfig())


@pytest.mark.parametrize(
    ("saved", "words", "workers", "mesh"),
    [
        ({"mesh": "data=4", "launch": {"workers": 4}}, "--workers 2", 2, ""),
        ({"mesh": "data=4", "launch": {"workers": 4}}, "--mesh data=3", 3, "data=3"),
        ({"strategy": {"name": "ddp"}, "launch": {"workers": 4}}, "--mesh data=3", 3, "data=3"),
        ({"mesh": "pipeline=2", "launch": {"workers": 2}}, "--strategy ddp", 2, ""),
    ],
)
def test_a_flag_for_the_mesh_or_the_workers_overrides_the_other_of_a_recipe(saved, words, workers, mesh):
    config = from_tree(
        merge({"sync": "ddp", **saved} if "strategy" not in saved else saved, read_flags(words.split()))
    )
    assert (config.launch.workers, config.mesh, config.strategy) == (workers, mesh, "ddp")


def test_several_workers_alone_are_replicas_but_a_saved_single_worker_is_one():
    assert RunConfig(launch=LaunchConfig(workers=2)).strategy == "ddp"
    saved = parse_toml(to_toml(RunConfig()), Path("config.toml"))
    with pytest.raises(ConfigError, match="strategy single does not support --workers 2"):
        from_tree(merge(saved, read_flags(["--workers", "2"])))
    saved = parse_toml(to_toml(read_words("--workers 2")), Path("config.toml"))
    assert saved["sync"]["name"] == "ddp"


@pytest.mark.parametrize("name", OTHER_NAMES)
def test_names_of_other_programs_lead_to_flags_that_make_a_run(name):
    with pytest.raises(ConfigError) as refused:
        read_words(f"--strategy {name.upper()}")
    flags = OTHER_NAMES[name]
    assert flags in refused.value.hint
    assert read_words(f"{flags} --workers 2").strategy in refused.value.message


def test_a_section_called_strategy_is_read_as_the_sync_it_means():
    tree = {"strategy": {"name": "ddp", "bucket_mib": 2.0}, "launch": {"workers": 2}}
    assert from_tree(tree).sync == DdpConfig(bucket_mib=2.0)
    replaced = from_tree(merge(tree, read_flags(["--strategy", "naive"])))
    assert replaced.sync == NaiveConfig()


def test_a_measured_cut_belongs_to_its_number_of_stages():
    saved = {
        "mesh": "pipeline=2",
        "launch": {"workers": 2},
        "pipeline": {"cut": ["fc1"], "schedule": "gpipe"},
    }

    def resumed(words):
        return from_tree(merge(saved, read_flags(words.split()))).pipeline

    assert (resumed("--epochs 2").cut, resumed("--epochs 2").schedule) == (("fc1",), "gpipe")
    assert (resumed("--mesh pipeline=3").cut, resumed("--mesh pipeline=3").schedule) == ((), "gpipe")
    assert resumed("--mesh pipeline=3 --pipeline.cut conv2,fc1").cut == ("conv2", "fc1")


def test_an_axis_without_a_size_waits_for_the_number_of_workers():
    waiting = RunConfig(mesh="pipeline")
    assert waiting.mesh == "pipeline"
    assert dataclasses.replace(waiting, launch=LaunchConfig(workers=3)).mesh == "pipeline=3"


def test_the_grid_of_three_axes():
    assert grid({"data": 2, "pipeline": 2, "tensor": 2})[1:3] == [
        "data 0, pipeline 0   rank 0    rank 1",
        "data 0, pipeline 1   rank 2    rank 3",
    ]
    assert grid({"data": 1, "pipeline": 2}) == ["pipeline 0  pipeline 1", "rank 0      rank 1"]


def test_a_resumed_run_may_change_its_layout():
    pipeline = {"mesh": "pipeline=2", "launch": {"workers": 2}, "sync": {"name": "ddp"}}
    alone = from_tree(merge(pipeline, read_flags(["--strategy", "single", "--workers", "1"])))
    assert (alone.strategy, alone.mesh) == ("single", "")
    again = from_tree(
        merge({"sync": {"name": "none"}}, read_flags(["--strategy", "pipeline", "--workers", "2"]))
    )
    assert (again.strategy, again.mesh) == ("pipeline", "pipeline=2")


def test_a_plan_is_left_behind_with_its_axis():
    saved = {"mesh": "tensor=2", "launch": {"workers": 2}, "tensor": {"plan": "plan.toml"}}

    def resumed(words):
        return from_tree(merge(saved, read_flags(words.split()))).tensor.plan

    assert resumed("--epochs 2") == resumed("--mesh data=2,tensor=2") == "plan.toml"
    assert resumed("--strategy pipeline --workers 3") == resumed("--strategy single --workers 1") == ""


def test_other_workers_do_not_silently_undo_a_division_of_the_model():
    saved = {"mesh": "data=2,pipeline=2", "launch": {"workers": 4}}
    with pytest.raises(ConfigError, match=r"= 4 workers, but there are 8\n.*--mesh data=4,pipeline=2"):
        from_tree(merge(saved, read_flags(["--workers", "8"])))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--strategy pipeline --mesh data=2,tensor=2", "along pipeline, but --mesh is data=2,tensor=2"),
        ("--strategy ddp --workers 2 --pipeline.cut fc1", "--pipeline.cut fc1 needs --mesh pipeline"),
        ("--strategy ddp --workers 2 --tensor.plan p.toml", "--tensor.plan p.toml needs --mesh tensor"),
    ],
)
def test_a_layout_without_its_axis_is_refused(words, message):
    with pytest.raises(ConfigError, match=message):
        read(None, words.split())
