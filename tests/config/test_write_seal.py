"""The checksum of the settings in a run folder."""

import contextlib
import random

import pytest

from shoal.config.read import from_tree, read, read_recipe
from shoal.config.write import sealed, to_toml
from shoal.errors import ConfigError


@pytest.mark.parametrize("seed", range(40))
def test_no_flipped_bit_gives_other_settings(tmp_path, seed):
    config, path = read(None, ["--seed", "5"]), tmp_path / "config.toml"
    content = bytearray(sealed(to_toml(config)).encode())
    draw = random.Random(seed)
    content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    path.write_bytes(content)
    with contextlib.suppress(ConfigError):
        assert from_tree(read_recipe(str(path))) == config  # the damage is in the words of the comment


def test_settings_of_earlier_versions_have_no_checksum(tmp_path):
    path = tmp_path / "config.toml"
    path.write_text("seed = 7\n")
    assert read_recipe(str(path)) == {"seed": 7}


def test_an_edited_copy_under_another_name_is_a_recipe(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(sealed("seed = 7\n").replace("seed = 7", "seed = 8"))
    assert read_recipe(str(path)) == {"seed": 8}
    path.rename(tmp_path / "config.toml")
    with pytest.raises(ConfigError, match="is damaged or was edited"):
        read_recipe(str(tmp_path / "config.toml"))
