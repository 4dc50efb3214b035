"""Which settings are tried for a run."""

from shoal.config.read import read
from shoal.memory.techniques import TECHNIQUES, combined, single_variants

TEXT = "--model transformer --model.layers 3 --data synthetic --data.task text --device cpu --batch-size 32"


def flags_of(flags):
    return [each.flags for each in single_variants(read(None, flags.split()))]


def test_what_a_run_supports_is_tried():
    found = flags_of(TEXT)
    assert found[:5] == [
        "--memory.checkpoint 2",
        "--memory.checkpoint 1",
        "--memory.offload file",
        "--micro-batch 16",
        "--micro-batch 8",
    ]


def test_what_a_run_does_not_support_is_left_out():
    assert not any("checkpoint" in each or "offload" in each for each in flags_of(f"{TEXT} --engine tape"))
    assert not any("checkpoint" in each for each in flags_of(f"{TEXT} --mesh pipeline=2"))


def test_settings_of_the_user_stay():
    found = flags_of(f"{TEXT} --memory.checkpoint 1")
    assert not any("checkpoint" in each for each in found)
    assert "--memory.offload file" in found


def test_combinations_have_each_technique_once():
    config = read(None, TEXT.split())
    singles = [each for each in single_variants(config) if each.is_exact and "micro" not in each.flags]
    found = combined(config, singles)
    assert {each.flags for each in found} >= {
        "--memory.checkpoint 2 --memory.offload file",
        "--memory.checkpoint 1 --memory.offload file",
    }
    for variant in found:
        assert len(set(variant.techniques)) == len(variant.techniques) > 1
        assert set(variant.techniques) <= set(TECHNIQUES)


def test_accumulation_is_not_exact_with_batch_statistics():
    def is_exact(flags):
        variants = single_variants(read(None, f"--device cpu --data cifar10 {flags}".split()))
        return {each.is_exact for each in variants if each.techniques == ("accumulation",)}

    assert is_exact("--model resnet18 --model.width 4") == {False}
    assert is_exact("--model resnet18 --model.width 4 --model.norm group") == {True}
