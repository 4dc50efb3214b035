"""A student's operations and chain rule: ours with one task written otherwise."""

import sys
import textwrap
from types import ModuleType

import pytest

from shoal.report.folder import write_files
from shoal_labs.autograd.check import CHECKS, tape
from shoal_labs.check.trial import faults_of
from shoal_labs.handout.regions import Region, parts, tasks
from shoal_labs.handout.start import _sources, skeleton
from shoal_labs.words import load_words

((_, SOURCE),) = _sources("autograd").items()

MUL = """
    r = Variable(self.value * rhs.value)
    print(f"{{r.name}} = {{self.name}} * {{rhs.name}}")
    gradient_tape.append(TapeEntry([self.name, rhs.name], [r.name], lambda g: {}))
    return r
    """
GRAD = """
    dL_d[L.name] = Variable(torch.ones(()))
    for entry in {}:
        if entry.outputs[0] in dL_d:
            for name, part in zip(entry.inputs, entry.propagate([dL_d[entry.outputs[0]]])):
                {}
    """
WRONG = {
    ("mul", "swapped"): MUL.format("[g[0] * self, g[0] * rhs]"),
    ("mul", "no_chain_rule"): MUL.format("[rhs, self]"),
    ("mul", "propagate_count"): MUL.format("[g[0] * rhs]"),
    ("mul", "gradient_not_a_variable"): MUL.format("[g[0].value * rhs.value, g[0].value * self.value]"),
    ("mul", "wrong_gradient_of"): MUL.format("[g[0] * rhs, g[0] * rhs]"),
    (
        "mul",
        "entries",
    ): "r = Variable(self.value * rhs.value); print(f'{r.name} = {self.name} * {rhs.name}'); return r",
    ("mul", "not_a_variable"): "return self.value * rhs.value",
    ("add", "like_mul"): MUL.format("[g[0] * rhs, g[0] * self]")
    .replace("*", "+", 1)
    .replace(" * {{", " + {{"),
    ("expand", "not_summed"): """
        r = Variable(self.value.expand(shape))
        print(f"{r.name} = {self.name}.expand({shape})")
        gradient_tape.append(TapeEntry([self.name], [r.name], lambda g: [g[0]]))
        return r
        """,
    ("sum", "not_expanded"): """
        r = Variable(self.value.sum(), name)
        print(f"{r.name} = {self.name}.sum()")
        gradient_tape.append(TapeEntry([self.name], [r.name], lambda g: [g[0]]))
        return r
        """,
    ("grad", "not_added"): GRAD.format("reversed(gradient_tape)", "dL_d[name] = part"),
    ("grad", "not_reached_back"): GRAD.format("gradient_tape[:]", "dL_d[name] = part"),
    ("grad", "seed"): GRAD.format(
        "reversed(gradient_tape)", "dL_d[name] = dL_d[name] + part if name in dL_d else part"
    ).replace("torch.ones(())", "torch.full((), 3.0)"),
}


def with_task(task, body):
    """Our solution, one task of it replaced."""
    lines = []
    for part in parts(SOURCE):
        if isinstance(part, Region) and part.name == task:
            lines += textwrap.indent(textwrap.dedent(body).strip("\n"), part.indent).splitlines()
        else:
            lines += part.lines if isinstance(part, Region) else [part]
    return "\n".join(lines)


def faults(monkeypatch, task, source):
    module = ModuleType("tape")
    exec(compile(source, "tape.py", "exec"), module.__dict__)
    monkeypatch.setitem(sys.modules, "tape", module)
    return tape.grad_faults() if task == "grad" else tape.operation_faults(task)


@pytest.mark.parametrize(("task", "key"), WRONG)
def test_a_wrong_task_is_named(task, key, monkeypatch):
    found = faults(monkeypatch, task, with_task(task, WRONG[task, key]))
    assert key in [fault.key for fault in found]
    for lang in ("en", "zh"):
        words = load_words("shoal_labs.autograd", lang)
        assert all(words(f"check.{fault.key}", **fault.values) for fault in found)


def test_all_faults_of_a_task_are_named(monkeypatch):
    body = "r = Variable(self.value + 1.0); gradient_tape.append(TapeEntry([], [], lambda g: [])); return r"
    found = faults(monkeypatch, "mul", with_task("mul", body))
    assert [fault.key for fault in found] == ["wrong_value", "not_printed", "wrong_names", "propagate_count"]


def test_each_task_is_checked_without_the_others(monkeypatch):
    for task in tasks(SOURCE):
        others = "\n".join(
            line
            for part in parts(SOURCE)
            for line in (
                (part.lines if part.name == task else [f"{part.indent}raise NotImplementedError"])
                if isinstance(part, Region)
                else [part]
            )
        )
        assert faults(monkeypatch, task, others) == []


def test_a_folder_is_checked_in_a_process_of_its_own(tmp_path):
    assert [task for check in CHECKS for task in check.tasks] == tasks(SOURCE)
    write_files(tmp_path, skeleton("autograd", "en"))
    assert [fault.key for fault in faults_of(CHECKS[-1], tmp_path / "taskautograd")] == ["not_done"]
