import sys

import pytest
import torch

from shoal_labs.check.student import NotWrittenError, class_like, with_method, written


@pytest.fixture
def file(tmp_path, monkeypatch):
    (tmp_path / "their_file.py").write_text(
        "import torch\n"
        "def full(x):\n    return x\n"
        "def empty(x):\n    '''Does it.'''\n    pass\n"
        "class MySGD:\n    @torch.no_grad()\n    def step(self):\n        pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    yield "their_file"
    sys.modules.pop("their_file", None)


def test_what_is_missing_or_empty_is_not_written(file):
    assert written(file, "full")(3) == 3
    assert written(file, "other", "full")(3) == 3
    for name in ("empty", "absent"):
        with pytest.raises(NotWrittenError, match=f"their_file.py {name}"):
            written(file, name)


def test_a_class_may_have_another_name_and_needs_its_method(file):
    kind = class_like(file, "sgd", "SgdOptimizer")
    assert kind.__name__ == "MySGD"
    with pytest.raises(NotWrittenError, match=r"MySGD\.step"):
        with_method(kind, "step")
    assert with_method(torch.optim.SGD, "step") is torch.optim.SGD
