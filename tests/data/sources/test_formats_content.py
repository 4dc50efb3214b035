import gzip

import pytest

from shoal.data.sources.formats import read_content
from shoal.errors import DataError

TEXT = b"some data that repeats itself " * 1000


@pytest.mark.parametrize("stored", [TEXT, gzip.compress(TEXT)], ids=["plain", "gzip"])
def test_plain_and_gzip_read_the_same_whatever_the_name(tmp_path, stored):
    path = tmp_path / "file"
    path.write_bytes(stored)
    assert read_content(path) == TEXT
    assert read_content(path, limit=len(TEXT)) == TEXT


@pytest.mark.parametrize(
    ("stored", "sentence"),
    [
        (b"", "is empty"),
        (b"\n<!DOCTYPE html><title>404</title>", "is a web page, not data"),
        (b"<html>Sign in to the hotel's network</html>", "is a web page, not data"),
        (gzip.compress(TEXT)[:-20], "is truncated: its gzip data end too early"),
        (gzip.compress(TEXT)[:10] + b"\xff" * 20, "is damaged: cannot unpack its gzip data"),
    ],
    ids=["empty", "page", "portal", "truncated", "damaged"],
)
def test_damage_is_named_with_the_file(tmp_path, stored, sentence):
    path = tmp_path / "file"
    path.write_bytes(stored)
    with pytest.raises(DataError, match=f"{path} {sentence}"):
        read_content(path)


def test_a_small_file_that_unpacks_to_a_huge_one_is_stopped_at_its_limit(tmp_path):
    path = tmp_path / "bomb"
    path.write_bytes(gzip.compress(bytes(50_000_000)))
    with pytest.raises(DataError, match="bomb holds more than the expected 1,000 bytes"):
        read_content(path, limit=1000)


def test_a_folder_in_place_of_a_file_is_said_so(tmp_path):
    with pytest.raises(DataError, match=f"cannot read {tmp_path}: Is a directory"):
        read_content(tmp_path)
