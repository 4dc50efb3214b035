import pytest
import torch

from shoal.config.sections.data import Cifar10Config, DigitsConfig, FashionMnistConfig, MnistConfig
from shoal.data.load import load, load_idx
from shoal.data.sources.formats import encode_idx
from shoal.errors import DataError


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gz"])
def test_mnist_is_read_from_its_files(published, tmp_path, packed):
    published.write("mnist", tmp_path, packed)
    data = load(MnistConfig(dir=str(tmp_path)), catalogue=published.catalogue)
    pictures = published.contents["mnist"]["train-images-idx3-ubyte"][16:]
    assert data.train.inputs.shape == (30, 1, 4, 5)
    assert data.train.inputs.flatten().tolist() == list(pictures)
    assert data.test.labels.tolist() == [sample % 10 for sample in range(20)]
    assert data.train.labels.dtype == torch.int64
    assert data.validation is None


def test_fashion_mnist_is_normalised_by_its_own_mean(published, tmp_path):
    published.write("fashion-mnist", tmp_path)
    data = load(FashionMnistConfig(dir=str(tmp_path)), catalogue=published.catalogue)
    inputs = data.batch(data.train, torch.tensor([0])).inputs
    wanted = (data.train.inputs[:1] / 255 - 0.2860) / 0.3530
    torch.testing.assert_close(inputs, wanted, rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize("augment", [True, False])
def test_cifar_is_read_from_its_six_files(published, tmp_path, augment):
    published.write("cifar10", tmp_path / "cifar-10-batches-bin")
    data = load(Cifar10Config(dir=str(tmp_path), augment=augment), catalogue=published.catalogue)
    fifth = published.contents["cifar10"]["data_batch_5.bin"]
    assert data.train.inputs.shape == (30, 3, 32, 32)
    assert data.train.inputs.is_contiguous()
    assert data.train.labels[24] == fifth[0]
    assert data.train.inputs[24].flatten().tolist() == list(fifth[1:3073])
    assert data.test.inputs.shape == (6, 3, 32, 32)
    assert (data.augment is not None) == augment


def replace_file(published, folder, name, content):
    folder = published.write("mnist", folder)
    (folder / name).write_bytes(content)
    return MnistConfig(dir=str(folder))


IMAGES, LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"


@pytest.mark.parametrize(
    ("name", "change", "sentence"),
    [
        (IMAGES, lambda content: content[:-7], "is truncated: 609 bytes, but its header .* says 616"),
        (IMAGES, lambda content: b"<!DOCTYPE html>", "is a web page, not data"),
        (IMAGES, lambda content: b"", "is empty"),
        (IMAGES, lambda content: b"PK" + content[2:], "not an IDX file of 3 dimensions"),
        (
            LABELS,
            lambda content: content[:-1] + b"\x0c",
            "sample 29 has label 12, expected 0 to 9",
        ),
        (
            LABELS,
            lambda content: bytes(encode_idx(torch.zeros(29, dtype=torch.uint8))),
            "30 pictures.* 29 labels",
        ),
        (LABELS, lambda content: content[:-1] + b"\x00", "is not the published file: sha256 .*published: "),
    ],
    ids=["truncated", "web page", "empty", "magic", "label", "count", "sum"],
)
def test_a_damaged_file_is_one_sentence_that_names_it(published, tmp_path, name, change, sentence):
    config = replace_file(published, tmp_path, name, change(published.contents["mnist"][name]))
    with pytest.raises(DataError, match=sentence) as caught:
        load(config, catalogue=published.catalogue)
    assert str(tmp_path / name) in caught.value.message or name in caught.value.message
    assert "\n" not in caught.value.message


def test_the_files_of_another_data_set_are_recognised(published, tmp_path):
    published.write("fashion-mnist", tmp_path)
    with pytest.raises(DataError, match="is a file of the data set fashion-mnist"):
        load(MnistConfig(dir=str(tmp_path)), catalogue=published.catalogue)


def test_cifar_with_a_label_out_of_range_is_refused(published, tmp_path):
    folder = published.write("cifar10", tmp_path)
    content = bytearray(published.contents["cifar10"]["data_batch_2.bin"])
    content[3073] = 77
    (folder / "data_batch_2.bin").write_bytes(content)
    with pytest.raises(DataError, match=r"data_batch_2.bin: sample 1 has label 77"):
        load(Cifar10Config(dir=str(tmp_path)), catalogue=published.catalogue)


def test_data_of_ones_own_have_a_way_in(published, tmp_path):
    """Where the sum says no, the hint names the function that reads the files all the same."""
    folder = published.write("mnist", tmp_path)
    (folder / LABELS).write_bytes(bytes(encode_idx(torch.full((30,), 2, dtype=torch.uint8))))
    with pytest.raises(DataError) as caught:
        load(MnistConfig(dir=str(folder)), catalogue=published.catalogue)
    assert "shoal.data.load.load_idx(folder)" in caught.value.hint
    data = load_idx(str(folder), name="twos")
    assert (data.name, data.outputs, len(data.train), len(data.test)) == ("twos", 10, 30, 20)
    inputs = data.batch(data.train, torch.arange(30)).inputs
    assert abs(inputs.mean()) < 1e-4
    assert abs(inputs.std() - 1) < 1e-4


def test_ones_own_data_are_checked_for_form(published, tmp_path):
    folder = published.write("mnist", tmp_path)
    with pytest.raises(DataError, match="label 9, expected 0 to 2"):
        load_idx(str(folder), classes=3)
    (folder / "t10k-images-idx3-ubyte").write_bytes(encode_idx(torch.zeros((20, 4, 6), dtype=torch.uint8)))
    with pytest.raises(DataError, match="pictures of 4 × 5 pixels, but t10k-images-idx3-ubyte of 4 × 6"):
        load_idx(str(folder))
    (folder / LABELS).unlink()
    with pytest.raises(DataError, match=f"{LABELS} is missing"):
        load_idx(str(folder))


def test_the_package_loads_by_name():
    from shoal import data

    assert len(data.load(DigitsConfig()).test) == 2000
