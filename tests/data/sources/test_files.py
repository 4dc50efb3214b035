from pathlib import Path

import pytest

from shoal.data.sources.files import check_verified, find, inventory, verify
from shoal.errors import ConfigError, DataError


@pytest.mark.parametrize(
    "below", [".", "mnist", "MNIST/raw"], ids=["itself", "of its name", "torchvision's layout"]
)
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gz"])
def test_files_are_found_wherever_tools_put_them(published, tmp_path, below, packed):
    folder = published.write("mnist", tmp_path / below, packed)
    paths = find("mnist", str(tmp_path), published.catalogue)
    assert {path.resolve().parent for path in paths.values()} == {folder.resolve()}
    assert [state.problem for state in verify("mnist", str(tmp_path), published.catalogue)] == [""] * 4


@pytest.mark.parametrize("below", [".", "cifar10", "cifar-10-batches-bin", "cifar10/cifar-10-batches-bin"])
def test_cifar_is_found_unpacked(published, tmp_path, below):
    published.write("cifar10", tmp_path / below)
    assert len(find("cifar10", str(tmp_path), published.catalogue)) == 6


def test_the_folder_asked_for_comes_before_the_environment_and_that_before_the_cache(
    published, tmp_path, monkeypatch
):
    for place in ("asked", "environment", "cache/shoal"):
        published.write("mnist", tmp_path / place / "mnist")
    monkeypatch.setenv("SHOAL_DATA", str(tmp_path / "environment"))

    def found(directory=""):
        paths = find("mnist", directory, published.catalogue)
        return next(iter(paths.values())).parent.relative_to(tmp_path).parts[0]

    assert found(str(tmp_path / "asked")) == "asked"
    assert found() == "environment"
    monkeypatch.delenv("SHOAL_DATA")
    assert found() == "cache"


def test_a_home_directory_is_written_short(published, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    published.write("mnist", tmp_path / "here")
    assert len(find("mnist", "~/here", published.catalogue)) == 4


def test_equal_names_of_two_data_sets_do_not_mix_them_up(published, tmp_path):
    published.write("mnist", tmp_path)
    published.write("fashion-mnist", tmp_path / "fashion-mnist")
    assert find("fashion-mnist", str(tmp_path), published.catalogue)[
        "train-images-idx3-ubyte"
    ].parent.name == ("fashion-mnist")


def test_a_data_set_that_is_nowhere_tells_where_it_was_sought_and_what_to_do(published, tmp_path):
    with pytest.raises(DataError) as caught:
        find("mnist", str(tmp_path), published.catalogue)
    assert caught.value.message == (
        f"mnist is not on this machine (searched {tmp_path}, {tmp_path / 'cache' / 'shoal'})"
    )
    for word in ("shoal data fetch mnist", "--from FOLDER", "--data-dir FOLDER", "t10k-labels-idx1-ubyte"):
        assert word in caught.value.hint


def test_a_part_of_a_data_set_is_not_a_data_set(published, tmp_path):
    (published.write("mnist", tmp_path / "mnist") / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(DataError, match="holds only a part of mnist: t10k-labels-idx1-ubyte is missing"):
        find("mnist", str(tmp_path), published.catalogue)
    problems = [state.problem for state in verify("mnist", str(tmp_path), published.catalogue)]
    assert problems == ["", "", "", "t10k-labels-idx1-ubyte is missing"]


def test_verifying_says_whether_a_data_set_is_missing_or_damaged(published, tmp_path):
    def check() -> None:
        states = verify("mnist", str(tmp_path), published.catalogue)
        check_verified("mnist", states, str(tmp_path), published.catalogue)

    with pytest.raises(DataError, match=r"mnist is not on this machine[\s\S]*shoal data fetch mnist"):
        check()
    labels = published.write("mnist", tmp_path / "mnist") / "t10k-labels-idx1-ubyte"
    check()
    labels.write_bytes(labels.read_bytes()[:-1] + b"\xff")
    with pytest.raises(
        DataError, match=r"mnist is damaged: t10k-labels-idx1-ubyte differs[\s\S]*fetch mnist"
    ):
        check()


def test_a_folder_that_does_not_exist_is_a_slip(tmp_path):
    with pytest.raises(DataError, match=f"data folder {tmp_path}/nowhere does not exist"):
        find("mnist", f"{tmp_path}/nowhere")


def test_an_unknown_name_gets_the_nearest_known_one():
    with pytest.raises(ConfigError, match="did you mean 'fashion-mnist'"):
        find("fashion-minst")


def test_verify_names_every_damaged_file_and_shows_both_sums(published, tmp_path):
    folder = published.write("mnist", tmp_path / "mnist")
    names = list(published.contents["mnist"])
    (folder / names[0]).write_bytes(published.contents["mnist"][names[0]][:-1] + b"x")
    (folder / names[1]).write_bytes(b"<html>404</html>")
    (folder / names[2]).write_bytes(published.contents["mnist"][names[2]] + b"x")
    states = verify("mnist", str(tmp_path), published.catalogue)
    assert [state.path for state in states] == [folder / name for name in names]
    assert "is not the published file: sha256 " in states[0].problem
    assert published.catalogue["mnist"].files[0].sha256 in states[0].problem
    assert "is a web page" in states[1].problem
    assert "holds more than" in states[2].problem
    assert states[3].problem == ""


def test_the_inventory_says_what_there_is_and_where(published, tmp_path):
    published.write("mnist", tmp_path / "mnist", packed=True)
    rows = {row.name: row for row in inventory(str(tmp_path), published.catalogue)}
    assert rows["mnist"].folder == tmp_path / "mnist"
    assert rows["mnist"].size == sum(map(len, published.contents["mnist"].values()))
    assert rows["cifar10"].folder is None


def test_the_shipped_digits_are_always_here():
    digits = inventory()[0]
    assert digits.folder is not None
    assert digits.folder.parent == Path(find("digits")["train-images-idx3-ubyte"]).parent.parent
    assert [state.problem for state in verify("digits")] == [""] * 4
