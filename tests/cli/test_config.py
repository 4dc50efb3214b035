"""`shoal config from-deepspeed`: the recipe trains as it is; bad files are one sentence."""

from pathlib import Path

import pytest

from shoal.cli.main import main

SHAPES = Path(__file__).parents[1] / "config/deepspeed"


def from_deepspeed(*words):
    return main(["config", "from-deepspeed", *map(str, words)])


@pytest.mark.parametrize("shape", ["cifar", "hf_zero2", "hf_zero3", "megatron"])
def test_shoal_train_takes_the_recipe_as_it_is(shape, tmp_path, capsys):
    recipe = tmp_path / "recipe.toml"
    assert from_deepspeed(SHAPES / f"{shape}.json", "--output", recipe) == 0
    assert f"wrote {recipe}" in capsys.readouterr().out
    small = "--steps 1 --data.samples 100 --threads 1 --device cpu --launcher threads --quiet"
    assert main(["train", str(recipe), *small.split(), "--runs-dir", str(tmp_path)]) == 0


def test_without_output_the_recipe_and_its_remarks_go_to_standard_output(tmp_path, capsys):
    assert from_deepspeed(SHAPES / "megatron.json", "--workers", 2) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    assert printed.out.startswith("# Translated from megatron.json by `shoal config from-deepspeed`.\n")
    assert '[strategy]\nname = "zero"\nstage = 1\n' in printed.out
    assert "# Not translated:\n" in printed.out
    (tmp_path / "recipe.toml").write_text(printed.out)
    assert from_deepspeed(SHAPES / "megatron.json", "--output", tmp_path / "second.toml") == 0
    assert (tmp_path / "second.toml").read_text() == printed.out


BAD = {
    "{'train_batch_size': 8}": "is not valid JSON: Expecting property name enclosed in double quotes: line 1 column 2",
    '{"a": 1, "a": 2}': "the key 'a' is there twice",
    "[1]": "is not a ds_config: expected a table {…} at the top",
    "[" * 100_000: "is nested too deeply",
    '{"train_batch_size": 16, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 3}': (
        "train_batch_size (16) is not a multiple of train_micro_batch_size_per_gpu (4) × "
        "gradient_accumulation_steps (3) = 12"
    ),
    '{"gradient_clipping": NaN}': "gradient_clipping: expected a number ≥ 0, got nan, which is not finite",
    '{"optimizer": {"type": "SGD", "params": {"nesterov": true}}}': "nesterov requires momentum",
}


@pytest.mark.parametrize("content", BAD, ids=lambda content: content[:20])
def test_a_bad_file_is_one_sentence(content, tmp_path, capsys):
    path = tmp_path / "ds_config.json"
    path.write_text(content)
    assert from_deepspeed(path) == 2
    printed = capsys.readouterr()
    assert BAD[content] in printed.err
    assert printed.out == ""


def test_files_that_cannot_be_read_or_written_are_one_sentence(tmp_path, capsys):
    assert from_deepspeed(tmp_path / "nothing.json") == 2
    assert f"cannot read {tmp_path / 'nothing.json'}: No such file" in capsys.readouterr().err
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe{")
    assert from_deepspeed(tmp_path / "bytes.json") == 2
    assert "is not text" in capsys.readouterr().err
    recipe = tmp_path / "recipe.toml"
    recipe.write_text("mine")
    assert from_deepspeed(SHAPES / "cifar.json", "--output", recipe) == 2
    assert f"cannot write {recipe}: it exists" in capsys.readouterr().err
    assert recipe.read_text() == "mine"
    assert from_deepspeed(SHAPES / "cifar.json", "--output", tmp_path / "no" / "folder.toml") == 2
    assert "cannot write" in capsys.readouterr().err
