"""Students' solutions: ours with one task written otherwise, rightly or wrongly."""

import subprocess
import sys
import textwrap
from importlib import import_module

import pytest

from shoal.report.folder import write_files
from shoal_labs.check.nodes import Node, Raised
from shoal_labs.check.solution import find_file
from shoal_labs.check.trial import failures, faults_of, load, unlike_calls
from shoal_labs.handout.regions import Region, parts
from shoal_labs.handout.start import _sources
from shoal_labs.lab3.solution.check_sampler import SENTENCES
from shoal_labs.words import load_words


def with_body(folder, number, task, body):
    """What the check finds wrong with a task whose solution is replaced by the body."""
    files = {}
    for path, source in _sources(number).items():
        lines = []
        for part in parts(source):
            if isinstance(part, Region) and part.name == task:
                lines += textwrap.indent(textwrap.dedent(body).strip("\n"), part.indent).splitlines()
            else:
                lines += part.lines if isinstance(part, Region) else [part]
        files[path] = "\n".join(lines) + "\n"
    write_files(folder, files)
    checks = import_module(f"shoal_labs.lab{number}.check").CHECKS
    chosen = next(each for each in checks if task in each.tasks)
    return faults_of(chosen, find_file(number, folder, chosen.file).parent)


RIGHT = {
    ("1", "adam_step"): """
        self.steps += 1
        rate = self.lr * (1 - self.b2**self.steps) ** 0.5 / (1 - self.b1**self.steps)
        for i, p in enumerate(self.params):
            self.m[i] = self.b1 * self.m[i] + (1 - self.b1) * p.grad
            self.v[i] = self.b2 * self.v[i] + (1 - self.b2) * p.grad**2
            p.data = p.data - rate * self.m[i] / (self.v[i].sqrt() + self.eps)
        """,
    ("2", "allreduce_average_gradients"): """
        works = [dist.all_reduce(p.grad, async_op=True) for p in model.parameters()]
        for work, p in zip(works, model.parameters()):
            work.wait()
            p.grad = p.grad / dist.get_world_size()
        """,
}
WRONG = {
    ("1", "adam_step", "adam_uncorrected"): """
        for p, m, v in zip(self.params, self.m, self.v):
            m.mul_(self.b1).add_((1 - self.b1) * p.grad)
            v.mul_(self.b2).add_((1 - self.b2) * p.grad**2)
            p -= self.lr * m / (v.sqrt() + self.eps)
        """,
    ("1", "sgd_step", "unmoved"): "param = param - self.lr * param.grad",
    ("1", "batches", "gd_batches"): "yield from order.split(batch_size)",
    ("1", "gd_step", "raises"): "param -= self.rate * param.grad",
    ("2", "allreduce_average_gradients", "no_collective"): """
        for param in model.parameters():
            if param.grad is None:
                dist.all_reduce(param.grad)
                param.grad /= dist.get_world_size()
        """,
    ("2", "reduce_average_gradients", "only_some_nodes"): """
        for param in model.parameters():
            dist.reduce(param.grad, 0)
            param.grad /= dist.get_world_size()
        """,
    ("2", "allgather_average_gradients", "one_nodes"): """
        for param in model.parameters():
            gathered = [torch.zeros_like(param.grad)] * dist.get_world_size()
            dist.all_gather(gathered, param.grad)
            param.grad = sum(gathered) / dist.get_world_size()
        """,
    ("2", "allreduce_average_gradients", "order"): """
        for param in list(model.parameters())[:: -1 if dist.get_rank() == 1 else 1]:
            dist.all_reduce(param.grad)
            param.grad /= dist.get_world_size()
        """,
    ("2", "train_step", "sleeps_after"): """
        loss = nn.functional.cross_entropy(model(pictures), labels)
        optimizer.zero_grad()
        loss.backward()
        start_s = time.perf_counter()
        average(model)
        seconds = time.perf_counter() - start_s
        time.sleep(delay_s)
        optimizer.step()
        return loss.item(), seconds
        """,
    ("3", "random_partition", "sampler_missed"): "return iter(range(len(self)))",
    ("3", "train_epoch", "nodes_differ"): """
        loader.sampler.set_epoch(epoch)
        for pictures, labels in equally_many(loader, steps):
            total = sum_over_nodes(len(labels))
            loss = nn.functional.cross_entropy(model(pictures), labels, reduction="sum") / total
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            loss_sum, count = loss_sum + loss.item() * total, count + len(labels)
        """,
}


@pytest.mark.parametrize(("number", "task"), RIGHT, ids=lambda value: value)
def test_a_right_solution_passes_in_whatever_style(tmp_path, number, task):
    assert with_body(tmp_path, number, task, RIGHT[number, task]) == []


@pytest.mark.parametrize(
    ("number", "task", "key"),
    # Nodes that part wait for each other until torch gives up, in eight seconds.
    [pytest.param(*case, marks=pytest.mark.long if "order" in case else ()) for case in WRONG],
    ids=lambda value: value,
)
def test_a_wrong_one_is_explained(tmp_path, number, task, key):
    found = with_body(tmp_path, number, task, WRONG[number, task, key])
    assert key in {fault.key for fault in found}
    for lang in ("en", "zh"):
        for fault in found:
            sentence = load_words(f"shoal_labs.lab{number}", lang)(f"check.{fault.key}", **fault.values)
            assert "Traceback" not in sentence
            assert "\n" not in sentence


def node(*calls, raised=None, late=False):
    return Node(None, raised, calls, late=late)


def test_nodes_that_part_are_named_with_the_place():
    two = [node("all_reduce(6)", "barrier()"), node("all_reduce(6)", "all_reduce(5)")]
    assert [fault.key for fault in unlike_calls(two)] == ["order"]
    assert [fault.key for fault in unlike_calls([node("barrier()"), node()])] == ["count"]
    assert not unlike_calls([node("send(3,1)"), node("recv(3,0)")])


def test_an_error_of_one_node_is_not_blamed_on_the_others_wait():
    typo = Raised("NameError", "name 'x' is not defined", "dist_utils.py:30")
    gone = Raised("RuntimeError", "gloo: Connection closed by peer", "dist_utils.py:29")
    assert failures([node("all_reduce(6)", raised=gone), node(raised=typo)])[0].key == "raises"
    same = [node("reduce(6,0)", raised=gone), node("reduce(6,0)", late=True)]
    assert failures(same)[0].key == "waits"
    assert failures([node(late=True)])[0].key == "too_long"


def test_the_handed_out_check_and_the_command_say_the_same():
    words = load_words("shoal_labs.lab3", "en").sentences
    assert {key: words[f"check.sampler_{key}"] for key in SENTENCES} == SENTENCES


@pytest.mark.parametrize("lab", ["lab1", "lab2", "lab3", "lab4", "autograd"])
def test_a_table_names_functions_that_exist_and_faults_that_have_a_sentence(lab):
    sentences = load_words(f"shoal_labs.{lab}", "en").sentences
    for check in import_module(f"shoal_labs.{lab}.check").CHECKS:
        load(check)
        assert all(f"task.{task}" in sentences for task in check.tasks)
        assert all(f"check.{key}" in sentences for keys in check.parts.values() for key in keys)


def test_tables_are_read_without_torch():
    modules = ", ".join(f"shoal_labs.{lab}.check" for lab in ("lab1", "lab2", "lab3", "lab4", "autograd"))
    program = f"import sys, shoal_labs.check.solution, {modules}; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
