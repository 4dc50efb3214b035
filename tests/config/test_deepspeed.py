"""A ds_config becomes settings of the same meaning; what has no counterpart is named, also in docs/en/deepspeed.md."""

import json
import re
from pathlib import Path

import pytest

from shoal.config.deepspeed import OFF, REASONS, as_recipe, read_ds_config, reason_of, remark_lines, translate
from shoal.config.read import from_tree, known_flags, parse_toml
from shoal.config.sections.optimizer import AdamConfig, AdamWConfig, CosineConfig, SgdConfig
from shoal.errors import ConfigError
from shoal.strategies.zero.settings import ZeroConfig

FOLDER = Path(__file__).parent / "deepspeed"
PAGE = (Path(__file__).parents[2] / "docs/en/deepspeed.md").read_text(encoding="utf-8")
ROWS = [
    re.split(r"(?<!\\)\|", line)[1:3] for line in PAGE.splitlines() if line.startswith("| ") and "`" in line
]
SHAPES = ["cifar", "hf_zero2", "hf_zero3", "megatron"]


def translated(shape, workers=None):
    return translate(read_ds_config(FOLDER / f"{shape}.json"), workers)


def run_of(content, workers=None):
    """The run that the recipe of a ds_config describes, and its remarks as one text."""
    translation = translate(content, workers)
    recipe = as_recipe(translation, "ds_config.json")
    return from_tree(parse_toml(recipe, Path("recipe.toml"))), "\n".join(remark_lines(translation, 1000))


def adamw(**params):
    return {"optimizer": {"type": "AdamW", "params": {"lr": 0.01, **params}}}


def test_the_shape_of_the_cifar_example():
    config, remarks = run_of(json.loads((FOLDER / "cifar.json").read_text()), workers=4)
    assert config.strategy == "ddp"
    assert config.precision == "fp16"
    assert config.train.batch_size == 16
    assert config.train.clip_norm == 1.0
    assert config.launch.workers == 4
    # The scheduler decides the rate, and DeepSpeed's Adam decays weights as AdamW does.
    assert config.optimizer == AdamWConfig(lr=0.001, beta1=0.8, beta2=0.999, eps=1e-8, weight_decay=3e-7)
    assert (config.schedule.name, config.schedule.warmup) == ("constant", 1000)
    assert "fp16.{loss_scale, loss_scale_window, hysteresis, min_loss_scale, initial_scale_power}" in remarks
    assert "optimizer.params.lr (0.002) has no effect" in remarks
    assert "prescale_gradients" not in remarks  # it is off


def test_the_shape_of_the_trainers_zero_3_leaves_its_auto_values_open():
    config, remarks = run_of(json.loads((FOLDER / "hf_zero3.json").read_text()))
    assert config.strategy == "zero"
    assert config.sync.stage == 3
    assert config.sync == ZeroConfig(stage=3)
    assert config.optimizer == AdamWConfig()
    opened = remarks.partition("Translated")[0]
    for key, setting in {
        "train_batch_size": "train.batch_size",
        "optimizer.params.lr": "optimizer.lr",
        "gradient_clipping": "train.clip_norm",
        "scheduler.params.warmup_num_steps": "schedule.warmup",
        "bf16.enabled": "precision",
    }.items():
        assert f'{key}: "auto"; set {setting}, or keep its default' in opened
    assert "zero_optimization.offload_param.{device, pin_memory}: parameters are not offloaded" in remarks


def test_the_shape_of_the_trainers_zero_2_needs_the_number_of_workers_for_its_batch():
    config, remarks = run_of(json.loads((FOLDER / "hf_zero2.json").read_text()))
    assert (config.train.batch_size, config.train.micro_batch) == (8, 2)
    assert "train.batch_size is that of 1 worker (8); give it to this command: --workers N" in remarks
    config, remarks = run_of(json.loads((FOLDER / "hf_zero2.json").read_text()), workers=4)
    assert (config.train.batch_size, config.train.micro_batch, config.launch.workers) == (32, 2, 4)
    assert "--workers N" not in remarks
    assert config.sync == ZeroConfig(stage=2)


def test_the_shape_of_megatron_names_what_it_loses():
    config, remarks = run_of(json.loads((FOLDER / "megatron.json").read_text()))
    assert (config.train.batch_size, config.train.micro_batch, config.launch.workers) == (64, 4, 2)
    assert (config.strategy, config.precision, config.sync.stage) == ("zero", "bf16", 1)
    assert config.schedule == CosineConfig(floor=0.1, warmup=20)
    assert config.train.steps == 2000
    assert config.output.trace
    missing = remarks.partition("Not translated")[2]
    assert "activation_checkpointing.{partition_activations, contiguous_memory_optimization" in missing
    assert "gradient_checkpointing_enable" in missing
    assert "optimizer.params.max_coeff: our optimizer has no such setting" in missing
    assert "tensorboard.{output_path, job_name}" in missing
    assert "zero_optimisation: not a key that we know: did you mean 'zero_optimization'?" in missing
    assert "comms_logger" not in remarks  # it is disabled
    assert "optimizer.type: there is no FusedLamb here: the recipe has adamw" in remarks


@pytest.mark.parametrize("shape", SHAPES)
def test_every_key_of_a_file_is_a_setting_or_is_named(shape):
    """Keys that are translated are few; every other leaf that is not switched off has a remark."""
    content = read_ds_config(FOLDER / f"{shape}.json")
    remarks = "\n".join(remark_lines(translated(shape), 1000))
    becomes_a_setting = {
        "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "gradient_clipping",
        "stage", "type", "lr", "betas", "eps", "weight_decay", "warmup_num_steps", "warmup_min_ratio", "cos_min_ratio",
        "warmup_type", "warmup_min_lr", "warmup_max_lr", "enabled", "wall_clock_breakdown", "device",
    }  # fmt: skip

    def leaves(table):
        for key, value in table.items():
            if isinstance(value, dict) and value.get("enabled") in (True, None):
                yield from leaves(value)
            elif not isinstance(value, dict) and value is not False:
                yield key

    for key in leaves(content):
        assert key in becomes_a_setting or key in remarks, key


@pytest.mark.parametrize(
    ("stage", "strategy"), [(0, "ddp"), (1, "zero"), (2, "zero"), (3, "zero"), (True, "zero"), (False, "ddp")]
)
def test_stages(stage, strategy):
    old_form = isinstance(stage, bool)
    config, _ = run_of({"zero_optimization": stage if old_form else {"stage": stage}})
    assert config.strategy == strategy
    if strategy == "zero":
        assert config.sync.stage == int(stage)


def test_options_of_zero():
    config, _ = run_of({"zero_optimization": {"stage": 2, "ignore_unused_parameters": True}})
    assert config.sync == ZeroConfig(stage=2, unused="zero")
    config, remarks = run_of({"zero_optimization": {"stage": 2, "cpu_offload": True}})
    assert config.sync == ZeroConfig(stage=2)  # a run on a CPU would refuse to offload to memory
    assert 'offload_optimizer.device: on a GPU, set strategy.offload = "memory"' in remarks
    nvme = {"device": "nvme", "nvme_path": "/local", "buffer_count": 4}
    config, remarks = run_of({"zero_optimization": {"stage": 3, "offload_optimizer": nvme}})
    assert config.sync == ZeroConfig(stage=3, offload="file", offload_dir="/local")
    assert "offload_optimizer.buffer_count: how state is moved is not configurable" in remarks
    config, remarks = run_of({"zero_optimization": {"offload_optimizer": {"device": "cpu"}}})
    assert config.strategy == "ddp"
    assert "offload_optimizer.device: without ZeRO, optimizer state is not offloaded" in remarks


def test_adam_is_adamw_unless_the_file_says_otherwise():
    def optimizer(kind, **params):
        return run_of({"optimizer": {"type": kind, "params": params}})[0].optimizer

    assert optimizer("Adam", weight_decay=0.1) == AdamWConfig(weight_decay=0.1)
    assert optimizer("Adam") == optimizer("AdamW") == AdamWConfig(weight_decay=0.0)
    assert optimizer("AdamW", torch_adam=True) == AdamWConfig(weight_decay=0.01)
    assert optimizer("Adam", adam_w_mode=False, weight_decay=0.1) == AdamConfig(weight_decay=0.1)
    sgd = optimizer("SGD", lr=0.1, momentum=0.9, nesterov=True)
    assert sgd == SgdConfig(lr=0.1, momentum=0.9, nesterov=True)
    assert optimizer("SGD").lr == 1e-3


def test_schedules():
    def run(kind, **params):
        return run_of(adamw() | {"scheduler": {"type": kind, "params": params}})

    config, remarks = run("WarmupDecayLR", total_num_steps=500, warmup_num_steps=10, warmup_max_lr=0.02)
    assert config.schedule == CosineConfig(warmup=10)
    assert (config.optimizer.lr, config.train.steps) == (0.02, 500)
    assert (
        "scheduler.type: the rate falls to 0 along half a cosine here, along a line in DeepSpeed" in remarks
    )
    config, remarks = run("OneCycle", cycle_min_lr=0.1)
    assert config.schedule.name == "constant"
    assert "scheduler.type: there is no OneCycle here" in remarks


@pytest.mark.parametrize(
    ("content", "workers", "micro_batch"),
    [
        ({"train_batch_size": 32}, 4, 2048),
        ({"train_batch_size": 32, "gradient_accumulation_steps": 2}, 4, 4),
        ({"train_batch_size": 32, "train_micro_batch_size_per_gpu": 4}, 4, 4),
        ({"train_micro_batch_size_per_gpu": 8}, 4, 8),
    ],
    ids=str,
)
def test_the_same_batch_whichever_numbers_are_given(content, workers, micro_batch):
    config, _ = run_of(content, workers)
    assert (config.train.batch_size, config.train.micro_batch) == (32, micro_batch)


BAD = {
    "wrong type": ({"train_batch_size": "many"}, "train_batch_size: expected an integer ≥ 1, got 'many'"),
    "no table": ({"zero_optimization": 3}, "zero_optimization: expected a table {…}, got 3"),
    "no table inside": ({"optimizer": {"params": []}}, "optimizer.params: expected a table"),
    "stage": ({"zero_optimization": {"stage": 4}}, "stage: expected an integer ≥ 0 and ≤ 3, got 4"),
    "betas": (adamw(betas=[0.9]), "optimizer.params.betas: expected"),
    "rate": (adamw(lr=-1), "optimizer.params.lr: expected a number > 0, got -1"),
    "device": (
        {"zero_optimization": {"offload_optimizer": {"device": "gpu"}}},
        "unknown zero_optimization.offload_optimizer.device 'gpu'",
    ),
    "both": ({"bf16": {"enabled": True}, "fp16": {"enabled": True}}, "bf16 and fp16 are both enabled"),
    "three numbers": (
        {"train_batch_size": 50, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2},
        "train_batch_size (50) is not a multiple of train_micro_batch_size_per_gpu (4) × "
        "gradient_accumulation_steps (2) = 8",
    ),
    "two numbers": (
        {"train_batch_size": 50, "train_micro_batch_size_per_gpu": 4},
        "train_batch_size (50) is not a multiple of train_micro_batch_size_per_gpu (4)",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_what_deepspeed_would_refuse_is_one_sentence(name):
    content, sentence = BAD[name]
    with pytest.raises(ConfigError) as caught:
        translate(content)
    assert sentence in caught.value.message


def test_a_number_of_workers_that_contradicts_the_batch_is_one_sentence():
    content = {"train_batch_size": 64, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 8}
    with pytest.raises(
        ConfigError, match=r"\(64\) is not .* \(4\) × .* \(8\) × workers \(4\) = 128"
    ) as caught:
        translate(content, workers=4)
    assert "correct one of them" in caught.value.hint


def test_a_key_with_odd_characters_cannot_leave_its_comment():
    content = {"a\nname = 'evil'": 1, "b\x1b": {"c\r\n[x]": 2}}
    config, remarks = run_of(content)
    assert config == run_of({})[0]
    assert r"a\nname = 'evil': not a key that we know" in remarks


def test_no_key_has_two_reasons():
    assert not REASONS["needless"].keys() & REASONS["missing"].keys()
    assert all(reason_of(key) == ("missing", REASONS["missing"][key]) for key in OFF)


def is_known(path):
    """Whether the translation reads a key, or says why it does not."""
    first, _, rest = path.partition(".")
    content = {first: {rest: "auto"}} if rest else {first: "auto"}
    try:
        return "not a key that we know" not in str(translate(content).remarks["missing"])
    except ConfigError as error:  # it is read, and "auto" is not a table
        return "expected a table" in error.message


def test_every_key_of_the_page_is_known():
    assert not is_known("zero_optimization.stages")
    for row in ROWS:
        keys = re.findall(r"`([a-z]\w*(?:\.\w+)*)`", row[0])
        # After the first key of a cell, the others are written without their table.
        table = keys[0].rpartition(".")[0] if keys else ""
        for key in keys:
            assert is_known(key) or is_known(f"{table}.{key}"), key


def test_every_setting_of_the_page_exists():
    flags = {flag.removeprefix("--").replace("sync.", "strategy.") for flag in known_flags()}
    settings = [found for row in ROWS for found in re.findall(r"`(?:--)?([a-z]+\.[a-z_0-9]+)", row[1])]
    assert len(settings) > 15
    assert set(settings) <= flags
