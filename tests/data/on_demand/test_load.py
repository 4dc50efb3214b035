"""Data sets at a path: a folder of pictures, tar shards, a flat file of tokens."""

import io
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from shoal.config.read import read
from shoal.config.sections.data import FilesConfig
from shoal.data.load import load
from shoal.data.on_demand.pictures import picture_sources
from shoal.data.on_demand.shards import shard_sources
from shoal.data.on_demand.split import on_demand
from shoal.data.own.files import read_path
from shoal.errors import DataError
from shoal.training import worker

CLASSES = ("cat", "dog")
pytestmark = pytest.mark.filterwarnings("ignore:data .* has no test set")


def encoded(number, size=8, form="png"):
    pixels = np.random.default_rng(number).integers(0, 256, (size, size, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, form)
    return file.getvalue()


@pytest.fixture
def pictures(tmp_path):
    """FOLDER/train and FOLDER/test with twelve and four pictures."""
    for split, count in (("train", 12), ("test", 4)):
        for number in range(count):
            folder = tmp_path / "photos" / split / CLASSES[number % 2]
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{number:02}.png").write_bytes(encoded(number))
    return tmp_path / "photos"


def write_shard(path, numbers, size=8):
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as tar:
        for number in numbers:
            for suffix, content in (("png", encoded(number, size)), ("cls", str(number % 2).encode())):
                member = tarfile.TarInfo(f"{number:04}.{suffix}")
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))


@pytest.fixture
def shards(tmp_path):
    write_shard(tmp_path / "shards" / "000.tar", range(7))
    write_shard(tmp_path / "shards" / "001.tar", range(7, 12))
    return tmp_path / "shards"


def all_of(split):
    return split.read(torch.arange(len(split)))


def trained(path, flags="", model="--model mlp --model.hidden 4"):
    words = f"--data {path} {model} --batch-size 4 --epochs 1 --threads 1 --device cpu {flags}"
    return worker.run(read(None, [*words.split(), "--runs-dir", str(Path(path).parent / "runs")]))


def test_a_folder_of_pictures_has_the_samples_that_it_has_in_memory(pictures):
    data, in_memory = load(FilesConfig(path=str(pictures))), read_path(pictures)
    for split, wanted in ((data.train, in_memory["train"]), (data.test, in_memory["test"])):
        assert torch.equal(all_of(split).inputs, wanted.inputs)
        assert torch.equal(all_of(split).labels, wanted.labels)
    assert (data.input_shape, data.outputs, data.task) == ((3, 8, 8), 2, "classification")
    pixels = in_memory["train"].inputs.double() / 255
    assert data.mean is not None
    assert torch.allclose(data.mean.double(), pixels.mean((0, 2, 3)), atol=1e-6)
    assert trained(pictures, "--data.loaders 2 --data.augment true").status == "completed"


def test_pictures_of_several_sizes_get_one(pictures):
    (pictures / "train" / "dog" / "99.png").write_bytes(encoded(99, size=20))
    with pytest.raises(
        DataError, match=r"the input of sample 12 \(.*99.png\) has shape \[3, 20, 20\]"
    ) as caught:
        trained(pictures)
    assert "--data.size" in caught.value.hint
    assert load(FilesConfig(path=str(pictures), size=6)).input_shape == (3, 6, 6)
    assert trained(pictures, "--data.size 6").status == "completed"


def test_a_damaged_picture_is_named(pictures):
    (pictures / "train" / "cat" / "04.png").write_bytes(encoded(4)[:60])
    for loaders in (0, 1):
        with pytest.raises(DataError, match=r"04.png"):
            trained(pictures, f"--data.loaders {loaders}")


def test_a_broken_picture_of_a_shard_is_named_without_an_object_of_ours(tmp_path):
    members = {"0.png": encoded(0), "0.cls": b"0", "1.png": b"no picture", "1.cls": b"1"}
    with tarfile.open(tmp_path / "0.tar", "w") as tar:
        for member, content in members.items():
            found = tarfile.TarInfo(member)
            found.size = len(content)
            tar.addfile(found, io.BytesIO(content))
    with pytest.raises(DataError, match=r"1.png in .*0.tar is damaged or no picture\n"):
        all_of(on_demand(shard_sources(tmp_path, "here", None)["train"], None, 0))


def test_a_file_that_is_removed_during_training_is_gone(pictures, shards):
    for sources, gone in (
        (picture_sources(pictures, "here", None), pictures / "train" / "cat" / "04.png"),
        (shard_sources(shards, "here", None), shards / "001.tar"),
    ):
        split = on_demand(sources["train"], None, 0)
        gone.unlink()
        with pytest.raises(DataError, match=rf"{gone.name} is gone\n") as caught:
            all_of(split)
        assert "python" not in caught.value.hint


def test_compressed_shards_and_names_with_dots_are_explained(tmp_path, shards):
    for shard in shards.glob("*.tar"):
        shard.rename(shard.with_suffix(".tar.gz"))
    with pytest.raises(DataError, match=r"found 000.tar.gz: write plain tar"):
        load(FilesConfig(path=str(shards)))
    with tarfile.open(tmp_path / "0.tar", "w") as tar:
        tar.addfile(tarfile.TarInfo("photo.0001.png"))
    with pytest.raises(DataError, match="without samples") as caught:
        load(FilesConfig(path=str(tmp_path)))
    assert "ends at the first dot" in caught.value.hint


def test_shards_hold_the_samples_in_their_order(shards):
    data = load(FilesConfig(path=str(shards), validation=0.25))
    assert (len(data.train), len(data.validation), len(data.test), data.outputs) == (8, 2, 2, 2)
    everything = torch.cat([all_of(split).inputs for split in (data.train, data.validation, data.test)])
    wanted = [
        torch.from_numpy(np.array(Image.open(io.BytesIO(encoded(n))))).permute(2, 0, 1) for n in range(12)
    ]
    assert {each.numpy().tobytes() for each in everything} == {each.numpy().tobytes() for each in wanted}
    for split in (data.train, data.validation):
        assert torch.equal(all_of(split).labels, split.numbers % 2)
    assert trained(shards, "--data.loaders 2").status == "completed"


@pytest.mark.parametrize("cut", [1, 600, 1024, 5000, 10240])
def test_a_shard_that_is_cut_off_is_named_before_the_run_begins(shards, cut):
    """Also between two members, where tar itself sees an end."""
    shard = shards / "001.tar"
    with tarfile.open(shard) as tar:
        end = max(member.offset_data + member.size for member in tar)
    content = shard.read_bytes()[: -(-end // 512) * 512 + 1024]
    shard.write_bytes(content[: -min(cut + 512, len(content) - 600)])
    with pytest.raises(DataError, match=r"001.tar.* after sample \d"):
        trained(shards)
    assert not (shards.parent / "runs").exists()


@pytest.mark.parametrize(
    ("members", "named"),
    [
        (["a.png", "a.jpg", "a.cls"], "sample a has two inputs, a.png and a.jpg"),
        (["a.png", "a.cls", "a.CLS"], "sample a has two labels, a.cls and a.CLS"),
        (["in/a.png", "in/a.cls", "in/a.png", "in/a.cls"], "in/a has two inputs, in/a.png and in/a.png"),
    ],
)
def test_two_inputs_or_labels_of_one_sample_are_refused(tmp_path, members, named):
    with tarfile.open(tmp_path / "0.tar", "w") as tar:
        for member in members:
            content = b"1" if member.lower().endswith(".cls") else encoded(0)
            found = tarfile.TarInfo(member)
            found.size = len(content)
            tar.addfile(found, io.BytesIO(content))
    with pytest.raises(DataError, match=named):
        load(FilesConfig(path=str(tmp_path)))


def test_shards_of_another_form_are_refused(tmp_path):
    for name, members in (
        ("no label", {"a.png": encoded(0)}),
        ("no number", {"a.png": encoded(0), "a.cls": b"cat"}),
    ):
        folder = tmp_path / name
        folder.mkdir()
        with tarfile.open(folder / "0.tar", "w") as tar:
            for member, content in members.items():
                found = tarfile.TarInfo(member)
                found.size = len(content)
                tar.addfile(found, io.BytesIO(content))
        with pytest.raises(DataError) as caught:
            load(FilesConfig(path=str(folder)))
        assert "0001.cls" in caught.value.hint


TOKENS = np.arange(1000) * 7 % 50


@pytest.mark.parametrize("dtype", ["uint16", "uint32"])
def test_a_token_file_gives_windows_and_the_tokens_after_them(tmp_path, dtype):
    (tmp_path / "text").mkdir()
    TOKENS[:901].astype(dtype).tofile(tmp_path / "text" / "train.bin")
    TOKENS[900:].astype(dtype).tofile(tmp_path / "text" / "val.bin")
    data = load(FilesConfig(path=str(tmp_path / "text"), block_size=30, dtype=dtype))
    assert (len(data.train), len(data.test), data.outputs, data.task) == (30, 3, 50, "text")
    batch = data.batch(data.train, torch.arange(30))
    assert batch.inputs.flatten().tolist() == TOKENS[:900].tolist()
    assert batch.labels.flatten().tolist() == TOKENS[1:901].tolist()
    flags = f"--data.block_size 30 --data.dtype {dtype} --data.loaders 1"
    assert trained(tmp_path / "text", flags, "--model transformer --model.width 8").status == "completed"


def test_token_files_that_do_not_fit_are_refused(tmp_path):
    def problem(content, **settings):
        (tmp_path / "train.bin").write_bytes(content)
        with pytest.raises(DataError) as caught:
            load(FilesConfig(path=str(tmp_path / "train.bin"), **settings))
        return caught.value.message

    assert "61 bytes, and tokens have 2 each" in problem(bytes(61))
    assert "30 tokens, and one sample needs 257" in problem(bytes(60))
    some = np.array([1, 2, 60, 4, 5, 6], dtype=np.uint16).tobytes()
    assert "has label 60, expected 0 to 49" in problem(some, block_size=1, outputs=50)


def test_a_path_without_data_is_refused(tmp_path):
    with pytest.raises(DataError, match="does not exist"):
        load(FilesConfig(path=str(tmp_path / "nowhere")))
    with pytest.raises(DataError, match="no folders of pictures"):
        load(FilesConfig(path=str(tmp_path)))
