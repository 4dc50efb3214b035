import pytest

from shoal.errors import ConfigError
from shoal_labs.check.grade.weights import load_weights


def test_tasks_count_one_each_unless_the_file_says_otherwise(tmp_path):
    path = tmp_path / "weights.toml"
    path.write_text("[lab1]\nadam_step = 3\nzero_grad = 0.5\n[lab2]\ntrain_step = 9\n")
    weights = load_weights(path, "1")
    assert (weights["adam_step"], weights["zero_grad"], weights["gd_step"]) == (3.0, 0.5, 1.0)
    assert set(load_weights(None, "1").values()) == {1.0}


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("[lab1]\nadam_stp = 3\n", "adam_step"),
        ("[lab9]\nx = 1\n", "lab9"),
        ("[lab1]\nadam_step = -1\n", "adam_step = -1 is not a weight"),
        ("[lab1]\nadam_step = nan\n", "is not a weight"),
        ("[lab1]\nadam_step = true\n", "is not a weight"),
        ("[lab1]\nadam_step = '3'\n", "is not a weight"),
        ("adam_step = 3\n", "not in the table of a lab"),
        ("[lab1\n", "not valid TOML"),
        ("".join(["[lab1]\n", *(f"{task} = 0\n" for task in load_weights(None, "1"))]), "all weights are 0"),
    ],
)
def test_a_bad_file_is_refused_with_one_sentence(tmp_path, content, sentence):
    path = tmp_path / "weights.toml"
    path.write_text(content)
    with pytest.raises(ConfigError, match=sentence):
        load_weights(path, "1")
    with pytest.raises(ConfigError, match="cannot read"):
        load_weights(tmp_path / "none.toml", "1")
