import sys
import textwrap
import threading

import pytest
import torch
from torch import nn

from shoal.config.sections.values import Custom
from shoal.errors import ConfigError
from shoal.models import build, build_loss


@pytest.fixture
def write_module(tmp_path, monkeypatch):
    """Write a module into a current directory of the test's own; it is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    before = set(sys.modules)

    def write(name, source):
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(source))

    yield write
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) and str(tmp_path) in sys.modules[name].__file__:
            del sys.modules[name]


NETS = """
    import time
    from torch import nn

    def tiny(width=3):
        first = nn.Linear(4, width)
        time.sleep(0.01)  # another thread may come in between
        return nn.Sequential(first, nn.Linear(width, 2))

    class Net(nn.Module):
        def __init__(self, width: int = 3) -> None:
            super().__init__()
            self.fc = nn.Linear(4, width)

    class Family:
        tiny = staticmethod(tiny)

    number = 3

    def nothing():
        return 3
"""


def own(name, **options):
    return build(Custom(name=name, options=tuple(options.items())), (4,), 2, seed=0)


def refusal(name, **options):
    with pytest.raises(ConfigError) as caught:
        own(name, **options)
    return str(caught.value)


def test_functions_classes_and_names_inside_names(write_module):
    write_module("own_nets", NETS)
    assert own("own_nets:tiny", width=5)[0].out_features == 5
    assert own("own_nets:Net", width=6).fc.out_features == 6
    assert own("own_nets:Family.tiny")[0].out_features == 3
    assert isinstance(own("torch.nn:Linear", in_features=4, out_features=2), nn.Linear)


def test_the_weights_depend_on_the_seed_and_the_global_state_is_put_back(write_module):
    write_module("own_nets", NETS)
    before = torch.get_rng_state()
    first, again = own("own_nets:tiny"), own("own_nets:tiny")
    assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(first[1].weight, again[1].weight)
    other = build(Custom(name="own_nets:tiny"), (4,), 2, seed=1)
    assert not torch.equal(first[1].weight, other[1].weight)


def test_threads_do_not_disturb_each_other(write_module):
    write_module("own_nets", NETS)
    expected = own("own_nets:tiny")[1].weight
    built = [None] * 4

    def work(rank):
        built[rank] = own("own_nets:tiny")

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(torch.equal(net[1].weight, expected) for net in built)


def test_the_import_path_is_put_back(write_module):
    write_module("own_nets", NETS)
    before = list(sys.path)
    own("own_nets:tiny")
    refusal("own_nets:absent")
    assert sys.path == before


def test_a_module_that_is_not_there(write_module):
    write_module("own_nets", NETS)
    assert "no module 'own_netz'" in refusal("own_netz:tiny")
    assert "no module 'absent'" in refusal("absent.deeper:tiny")


def test_a_module_whose_own_import_is_not_there(write_module):
    write_module("own_broken", "import a_package_nobody_has")
    assert "'own_broken' imports 'a_package_nobody_has'" in refusal("own_broken:tiny")


def test_a_module_that_fails(write_module):
    write_module("own_failing", "1 / 0")
    assert "importing 'own_failing' failed with ZeroDivisionError" in refusal("own_failing:tiny")
    write_module("own_unreadable", "def :")
    assert "SyntaxError" in refusal("own_unreadable:tiny")


def test_a_name_that_is_not_in_the_module(write_module):
    write_module("own_nets", NETS)
    assert "did you mean 'tiny'" in refusal("own_nets:tini")


def test_something_that_cannot_be_called_or_returns_no_model(write_module):
    write_module("own_nets", NETS)
    assert "own_nets:number is of type int, and cannot be called" in refusal("own_nets:number")
    assert "returned a value of type int, expected a torch.nn.Module" in refusal("own_nets:nothing")


def test_options_the_function_does_not_take(write_module):
    write_module("own_nets", NETS)
    words = refusal("own_nets:tiny", depth=2)
    assert "depth=2" in words
    assert "tiny(width=3)" in words
    assert "missing a required argument" in refusal("torch.nn:Linear", in_features=4)


def test_a_loss_of_ones_own(write_module):
    write_module(
        "own_losses", "def scaled(outputs, labels, by=1.0):\n    return by * (outputs - labels).sum()"
    )
    loss = build_loss(Custom(name="own_losses:scaled", options=(("by", 2.0),)))
    assert loss(torch.ones(3), torch.zeros(3)) == 6
    with pytest.raises(ConfigError, match="loss own_losses:scaled cannot be called with power=2"):
        build_loss(Custom(name="own_losses:scaled", options=(("power", 2),)))
