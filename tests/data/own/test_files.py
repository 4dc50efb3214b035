"""Pictures, CSV and NumPy files of one's own."""

import numpy as np
import pytest
import torch
from PIL import Image

from shoal.data.own.files import read_path
from shoal.errors import DataError


def picture(path, value, size=(6, 4), mode="L"):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, value).save(path)


def test_a_folder_of_pictures_has_a_class_in_each_folder(tmp_path):
    picture(tmp_path / "dog" / "a.png", 7)
    picture(tmp_path / "cat" / "b.png", 9)
    (tmp_path / "cat" / "notes.txt").write_text("no picture")
    split = read_path(tmp_path)["train"]
    assert split.labels.tolist() == [0, 1]
    assert split.inputs.shape == (2, 1, 4, 6)
    assert split.inputs[:, 0, 0, 0].tolist() == [9, 7]


def test_folders_train_and_test_are_splits(tmp_path):
    for part in ("train", "test"):
        picture(tmp_path / part / "cat" / "1.png", (1, 2, 3), mode="RGB")
        picture(tmp_path / part / "dog" / "1.jpg", (9, 9, 9), mode="RGB")
    splits = read_path(tmp_path)
    assert set(splits) == {"train", "test"}
    assert splits["test"].inputs[0, :, 0, 0].tolist() == [1, 2, 3]


def test_a_table_with_names_as_labels(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("label,a,b\nyes,1,2\nno,3,4.5\n\n")
    split = read_path(path)["train"]
    assert split.inputs.tolist() == [[1, 2], [3, 4.5]]
    assert split.labels.tolist() == [1, 0]


def test_a_table_without_header_has_its_label_last(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("1,2,0.5\n3,4,1.5\n")
    assert read_path(path)["train"].labels.tolist() == [0.5, 1.5]


def test_numpy_files(tmp_path):
    rows, labels = np.arange(6.0).reshape(3, 2), np.array([0, 1, 1])
    np.savez(tmp_path / "one.npz", x=rows, y=labels)
    np.savez(tmp_path / "two.npz", x_train=rows, y_train=labels, x_test=rows[:1], y_test=labels[:1])
    np.save(tmp_path / "rows.npy", np.column_stack([rows, labels]))
    assert set(read_path(tmp_path / "one.npz")) == {"train"}
    assert len(read_path(tmp_path / "two.npz")["test"]) == 1
    table = read_path(tmp_path / "rows.npy")["train"]
    assert torch.equal(table.labels, torch.tensor([0, 1, 1]))
    assert table.inputs.tolist() == rows.tolist()


def test_a_picture_of_another_size(tmp_path):
    picture(tmp_path / "cat" / "1.png", 0)
    picture(tmp_path / "cat" / "2.png", 0, size=(6, 5))
    with pytest.raises(DataError, match=r"2.png has 6 × 5 pixels, and .*1.png has 6 × 4"):
        read_path(tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("t.csv", "", "is empty"),
        ("t.csv", "a,b\n1,2\n1,2,3\n", "line 3: 3 columns, expected 2"),
        ("t.csv", "a,b,label\n1,x,0\n", "line 2: 'x' is not a number"),
        ("t.npz", "no archive", "cannot be read"),
        ("t.txt", "", "is no folder of pictures and no .csv"),
        ("cat/1.png", "no picture", "1.png is damaged or no picture\n"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path, name, content, sentence):
    path = tmp_path / "data" / name
    path.parent.mkdir(parents=True)
    path.write_text(content)
    with pytest.raises(DataError, match=sentence):
        read_path(path if "/" not in name else tmp_path / "data")


def test_no_object_of_a_numpy_file_is_unpickled(tmp_path):
    np.savez(tmp_path / "t.npz", x=np.array([{}], dtype=object), y=np.array([0]))
    with pytest.raises(DataError, match="cannot be read"):
        read_path(tmp_path / "t.npz")
