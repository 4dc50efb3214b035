# ruff: noqa: E501
"""Errors planted in right folders of both forms: which task each of them costs, and how it is named.

python tests/labs/planted.py [LAB …]     prints the table
"""

import sys
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from course_programs import RIGHT as COURSE

from shoal.report.folder import write_files
from shoal_labs.catalogue import lab_of
from shoal_labs.check.marks import grade, load_weights
from shoal_labs.check.solution import check_folders
from shoal_labs.handout.start import solution
from shoal_labs.words import load_words

FORMS = ("ours", "course")


@dataclass(frozen=True)
class Edit:
    """Lines of one file written otherwise."""

    file: str
    changes: dict[str, str]
    task: str
    word: str
    """Must be in the sentence about the task."""


@dataclass(frozen=True)
class Planted:
    """An error, in the forms that can have it."""

    name: str
    lab: str
    edits: dict[str, Edit] = field(default_factory=dict)


def both(name, lab, ours=None, course=None):
    """An error, with (file, changes, task, word) for each form that can have it."""
    return Planted(
        name, lab, {form: Edit(*given) for form, given in zip(FORMS, (ours, course), strict=True) if given}
    )


def right(name, lab, changes):
    """A right program in the course's form, with (old, new) lines in any of its files."""
    return Planted(name, lab, {"course": Edit("", changes, "", "")})


OPTIMIZER, MODEL, UTILS, SAMPLER = "MyOptimizer.py", "model.py", "dist_utils.py", "sampler.py"
COUNT = ("        self.steps += 1\n", "            if param.grad is not None:\n                m.mul_")
BACK = "    loss.backward()\n"
SYNC = "            torch.cuda.synchronize()\n"
SLEEP = "            if bottleneck and rank == 1:\n                time.sleep(0.1)\n"
STARTS = f"{SYNC}            start = time.time()\n"
AVERAGED = "            spent += time.time() - start\n"

LOOP = "        for i, (inputs, labels) in enumerate(dataloader):\n"
REDUCE = "            dist.all_reduce(param.grad.data, op=dist.ReduceOp.AVG)\n"
SUMS = "        dist.all_reduce(param.grad.data, op=dist.ReduceOp.SUM)\n        param.grad.data /= size\n"
CALLS = "                dist_utils.allreduce_average_gradients(model)\n"
PARTITION = """class Partition(torch.utils.data.Dataset):
    def __init__(self, data, index):
        self.data, self.index = data, index

    def __len__(self):
        return len(self.index)

    def __getitem__(self, index):
        return self.data[self.index[index]]


def train("""

PLANTED = (
    # Lab 1
    both(
        "Adam counts parameters, not steps", "1",
        (OPTIMIZER, {COUNT[0]: "", COUNT[1]: f"            self.steps += 1\n{COUNT[1]}"}, "adam_step", "counts parameters"),
        (OPTIMIZER, {"        self.t += 1\n": "", "            self.m[i] = self.b1": "            self.t += 1\n            self.m[i] = self.b1"}, "adam_step", "counts parameters"),
    ),
    both(
        "Adam without bias correction", "1",
        (OPTIMIZER, {" / (1 - self.b1**self.steps)": "", " / (1 - self.b2**self.steps)": ""}, "adam_step", "not corrected"),
        (OPTIMIZER, {" / (1 - self.b1 ** self.t)": "", " / (1 - self.b2 ** self.t)": ""}, "adam_step", "not corrected"),
    ),
    both(
        "Adam with ε inside the root", "1",
        (OPTIMIZER, {"(v_hat.sqrt() + self.eps)": "(v_hat + self.eps).sqrt()"}, "adam_step", "inside the root"),
        (OPTIMIZER, {"(torch.sqrt(v_hat) + 1e-8)": "torch.sqrt(v_hat + 1e-8)"}, "adam_step", "inside the root"),
    ),
    both(
        '"GD" with batches of one', "1",
        (MODEL, {"        yield order\n": "        yield from order.split(1)\n"}, "batches", "pass of GD has"),
        (MODEL, {"batch_size=len(data)": "batch_size=1"}, "batches", "pass of GD has 240 batches"),
    ),
    both(
        '"SGD" that keeps one random row of the gradient', "1",
        (OPTIMIZER, {"chosen in model.py.\n                param -= self.lr * param.grad": "chosen in model.py.\n                row = int(torch.randint(len(param), ()))\n                param[row] -= self.lr * param.grad[row]"}, "sgd_step", "elements change"),
        (OPTIMIZER, {"class SGDOptimizer(GdOptimizer):\n    pass": "class SGDOptimizer(BaseOptimizer):\n    def step(self):\n        for p in self.params:\n            if p.grad is not None:\n                p.data[0] -= self.lr * p.grad[0]"}, "sgd_step", "elements change"),
    ),
    both(
        "gradients never cleared", "1",
        (MODEL, {"    optimizer.zero_grad()\n": ""}, "train_step", "accumulate"),
        (MODEL, {"            optimizer.zero_grad()\n": ""}, "train_step", "accumulate"),
    ),
    both(
        "SGD with the whole set in every step", "1",
        (MODEL, {"        yield from order.split(batch_size)": "        yield order"}, "batches", "batches have"),
        (MODEL, {"batch_size=32, shuffle=True": "batch_size=len(data), shuffle=True"}, "batches", "which is GD"),
    ),
    both(
        "SGD in the stored order", "1",
        (MODEL, {"        yield from order.split(batch_size)": "        yield from torch.arange(num_samples).split(batch_size)"}, "batches", "stored order"),
        (MODEL, {"batch_size=32, shuffle=True": "batch_size=32, shuffle=False"}, "batches", "stored order"),
    ),
    both(
        "weight decay in GD", "1",
        (OPTIMIZER, {"                param -= self.lr * param.grad\n\n\nclass SgdOptimizer": "                param -= self.lr * (param.grad + 0.1 * param)\n\n\nclass SgdOptimizer"}, "gd_step", "weight decay"),
        (OPTIMIZER, {"p.data -= self.lr * p.grad\n\n\nclass SGDOptimizer(GdOptimizer):\n    pass": "p.data -= self.lr * (p.grad + 0.1 * p.data)\n\n\nclass SGDOptimizer(BaseOptimizer):\n    def step(self):\n        for p in self.params:\n            if p.grad is not None:\n                p.data -= self.lr * p.grad"}, "gd_step", "weight decay"),
    ),
    both(
        "softmax before the cross-entropy", "1",
        (MODEL, {"loss_fn(model(pictures), labels)": "loss_fn(model(pictures).softmax(1), labels)"}, "train_step", "not the gradient"),
        (MODEL, {"loss_fn(model(inputs), labels)": "loss_fn(F.softmax(model(inputs), dim=1), labels)"}, "train_step", "takes the softmax itself"),
    ),
    both("only the first batch of each pass", "1", None,
        (MODEL, {"            losses.append(loss.item())\n": "            losses.append(loss.item())\n            break\n"}, "batches", "ends after its first batch"),
    ),
    both("a return in the loop over the batches", "1", None,
        (MODEL, {"    losses = []\n    for": "    losses = []\n    one_pass(model, dataloader, optimizer, loss_fn, losses) or one_pass(model, dataloader, optimizer, loss_fn, losses)\n    return losses\n\n\ndef one_pass(model, dataloader, optimizer, loss_fn, losses, num_epochs=1):\n    for", "            losses.append(loss.item())\n    return losses": "            losses.append(loss.item())\n            return None"}, "batches", "ends after its first batch"),
    ),
    # Lab 2
    both(
        "all-gather into [zeros] * size", "2",
        (UTILS, {"[torch.empty_like(param.grad) for _ in range(dist.get_world_size())]": "[torch.empty_like(param.grad)] * dist.get_world_size()"}, "allgather_average_gradients", "is one tensor"),
        (UTILS, {"[torch.zeros_like(param.grad) for _ in range(size)]": "[torch.zeros_like(param.grad)] * size"}, "allgather_average_gradients", "is one tensor"),
    ),
    both(
        'an "all-reduce" that calls all-gather', "2",
        (UTILS, {"            dist.all_reduce(param.grad, op=dist.ReduceOp.SUM)\n            param.grad /= dist.get_world_size()\n\n\ndef allgather": "            parts = [torch.empty_like(param.grad) for _ in range(dist.get_world_size())]\n            dist.all_gather(parts, param.grad)\n            param.grad.copy_(torch.stack(parts).mean(dim=0))\n\n\ndef allgather"}, "allreduce_average_gradients", "must use all_reduce"),
        (MODEL, {"                dist_utils.allreduce_average_gradients(model)": "                dist_utils.allgather_average_gradients(model)"}, "train_step", "compares a thing with itself"),
    ),
    both(
        "the bottleneck sleeps after the collective", "2",
        (MODEL, {f"{BACK}    time.sleep(delay_s)  # before the collective: after it no node would wait for this one\n": BACK, "    optimizer.step()\n    return": "    time.sleep(delay_s)\n    optimizer.step()\n    return"}, "train_step", "sleeps after"),
        (MODEL, {SLEEP: "", AVERAGED: AVERAGED + SLEEP}, "train_step", "sleeps after"),
    ),
    both(
        "the bottleneck sleeps after the step", "2",
        (MODEL, {f"{BACK}    time.sleep(delay_s)  # before the collective: after it no node would wait for this one\n": BACK, "    optimizer.step()\n    return": "    optimizer.step()\n    time.sleep(delay_s)\n    return"}, "train_step", "sleeps after"),
        (MODEL, {SLEEP: "", "            optimizer.step()\n": "            optimizer.step()\n" + SLEEP}, "train_step", "sleeps after"),
    ),
    both(
        "no bottleneck at all", "2",
        (MODEL, {"    time.sleep(delay_s)  # before the collective: after it no node would wait for this one\n": ""}, "train_step", "sleeps for 0 s"),
        (MODEL, {SLEEP: ""}, "train_step", "no node is slower"),
    ),
    both(
        "every node sleeps", "2",
        (MODEL, {"time.sleep(delay_s)": "time.sleep(0.1)"}, "train_step", "sleeps for 0.1 s"),
        (MODEL, {"if bottleneck and rank == 1:": "if bottleneck:"}, "train_step", "no node is slower"),
    ),
    both(
        "GPU work timed without waiting for it", "2",
        (MODEL, {"start_s = synchronised(pictures.device)": "start_s = time.perf_counter()", "seconds = synchronised(pictures.device)": "seconds = time.perf_counter()"}, "train_step", "without waiting for the GPU"),
        (MODEL, {SYNC: ""}, "train_step", "without waiting for the GPU"),
    ),
    both(
        "the optimizer steps before the average", "2",
        (MODEL, {"device)\n    average(model)\n": "device)\n    optimizer.step()\n    average(model)\n", "- start_s\n    optimizer.step()\n": "- start_s\n"}, "train_step", "before the gradients are averaged"),
        (MODEL, {"            loss.backward()\n": "            loss.backward()\n            optimizer.step()\n", f"{AVERAGED}            optimizer.step()\n": AVERAGED}, "train_step", "before the gradients are averaged"),
    ),
    both(
        "the sum divided by 2, whatever the number of nodes", "2",
        (UTILS, {"            param.grad /= dist.get_world_size()\n\n\ndef allgather": "            param.grad /= 2\n\n\ndef allgather"}, "allreduce_average_gradients", "divided by 2"),
        (UTILS, {"op=dist.ReduceOp.AVG)": "op=dist.ReduceOp.SUM)\n            param.grad /= 2"}, "allreduce_average_gradients", "divided by 2"),
    ),
    both("nodes begin with different parameters", "2", None,
        (MODEL, {"    dist_utils.init_parameters(model)\n": ""}, "train_step", "begin with different parameters"),
    ),
    both(
        "gradients never cleared", "2",
        (MODEL, {"    optimizer.zero_grad()\n": ""}, "train_step", "accumulate"),
        (MODEL, {"            optimizer.zero_grad()\n": ""}, "train_step", "accumulate"),
    ),
    both(
        "averaged gradients cleared before the step", "2",
        (MODEL, {"    optimizer.step()\n    return": "    optimizer.zero_grad()\n    optimizer.step()\n    return"}, "train_step", "cleared before the step"),
        (MODEL, {"            optimizer.step()\n": "            optimizer.zero_grad()\n            optimizer.step()\n"}, "train_step", "no gradient"),
    ),
    both(
        "a handle of all_reduce that nobody waits for", "2",
        (UTILS, {"op=dist.ReduceOp.SUM)\n            param.grad /= dist.get_world_size()\n\n\ndef allgather": "op=dist.ReduceOp.SUM, async_op=True)\n            param.grad /= dist.get_world_size()\n\n\ndef allgather"}, "allreduce_average_gradients", "async_op=True"),
        (UTILS, {"op=dist.ReduceOp.AVG)": "op=dist.ReduceOp.AVG, async_op=True)"}, "allreduce_average_gradients", "async_op=True"),
    ),
    both(
        "a handle of all_gather that nobody waits for", "2", None,
        (UTILS, {"dist.all_gather(parts, param.grad)": "dist.all_gather(parts, param.grad, async_op=True)"}, "allgather_average_gradients", "async_op=True"),
    ),
    both("handles in the training loop that nobody waits for", "2", None,
        (MODEL, {"                dist_utils.allreduce_average_gradients(model)": "                handles = [dist_utils.dist.all_reduce(p.grad, op=dist_utils.dist.ReduceOp.AVG, async_op=True) for p in model.parameters()]", SYNC: "", ".cuda()": ""}, "train_step", "async_op=True"),
    ),
    both(
        "backward inside the timed part", "2",
        (MODEL, {f"{BACK}    time.sleep(delay_s)  # before the collective: after it no node would wait for this one\n": "    time.sleep(delay_s)\n", "start_s = synchronised(pictures.device)\n": f"start_s = synchronised(pictures.device)\n{BACK}"}, "train_step", "also times the backward pass"),
        (MODEL, {STARTS: "", "            loss.backward()\n": f"{STARTS}            loss.backward()\n"}, "train_step", "also times the backward pass"),
    ),
    both("forward and backward inside the timed part", "2", None,
        (MODEL, {STARTS: "", "            loss = loss_fn(": f"{STARTS}            loss = loss_fn("}, "train_step", "also times the backward pass"),
    ),
    both("a slow node for all-reduce only", "2", None,
        (MODEL, {"if bottleneck and rank == 1:": 'if bottleneck and rank == 1 and method == "allreduce":'}, "train_step", "only with all_reduce"),
    ),
    both("a slow node for all-gather only", "2", None,
        (MODEL, {SLEEP: "", "            else:\n                dist_utils": "            else:\n                if bottleneck and rank == 1:\n                    time.sleep(0.1)\n                dist_utils"}, "train_step", "only with all_gather"),
    ),
    both(
        "gradients averaged twice", "2",
        (MODEL, {"device)\n    average(model)\n": "device)\n    average(model)\n    average(model)\n"}, "train_step", "called 2 times"),
        (MODEL, {"                dist_utils.allreduce_average_gradients(model)\n": "                dist_utils.allreduce_average_gradients(model)\n                dist_utils.allreduce_average_gradients(model)\n"}, "train_step", "twice in a step"),
    ),
    both("gradients gathered twice", "2", None,
        (MODEL, {"            torch.cuda.synchronize()\n            spent": '            if method != "allreduce":\n                dist_utils.allgather_average_gradients(model)\n            torch.cuda.synchronize()\n            spent'}, "train_step", "twice in a step"),
    ),
    both("the same samples on all nodes", "2", None,
        (MODEL, {"batch_size=32, sampler=sampler": "batch_size=32"}, "train_step", "the same samples"),
    ),
    both("the same random samples on all nodes", "2", None,
        (MODEL, {"    data = mnist(True)": "    torch.manual_seed(0)\n    data = mnist(True)", "batch_size=32, sampler=sampler": "batch_size=32, shuffle=True"}, "train_step", "the same samples"),
    ),
    both("every node has rank 0's samples", "2", None,
        (MODEL, {"rank=args.rank)\n    loader": "rank=0)\n    loader"}, "train_step", "the same samples"),
    ),
    # Lab 3
    both(
        "a sampler that ranges over one node's share", "3",
        (SAMPLER, {"        count = len(self.dataset)  # of the whole data set, not of one node": "        count = len(self)"}, "random_partition", "seen by no node"),
        (SAMPLER, {"list(range(len(self.dataset)))": "list(range(self.num_samples))", "torch.randperm(len(self.dataset), generator=g)": "torch.randperm(self.num_samples, generator=g)"}, "random_partition", "seen by no node"),
    ),
    both(
        "a partition seeded by rank", "3",
        (SAMPLER, {"manual_seed(self.seed + self.epoch)\n            order = torch.randperm(count": "manual_seed(self.seed + self.epoch + 100 * self.rank)\n            order = torch.randperm(count"}, "random_partition", "rank part of the seed"),
        (MODEL, {"seed=7": "seed=rank"}, "train_epoch", "same seed"),
    ),
    both(
        "mean of means over uneven batches", "3",
        (MODEL, {'reduction="sum") / total': 'reduction="sum") / max(1, len(labels)) / dist.get_world_size()'}, "train_epoch", "mean of the nodes' means"),
        (MODEL, {
            "        dataloader.sampler.set_epoch(epoch)\n": "",
            "    loader = torch.utils.data.DataLoader(data, batch_size=32, shuffle=False, sampler=sampler)": (
                "    mine = range(150) if rank == 0 else range(150, 240)\n"
                "    loader = torch.utils.data.DataLoader(\n"
                "        torch.utils.data.Subset(data, mine), batch_size=50 if rank == 0 else 30, shuffle=True)"
            ),
        }, "train_epoch", "mean of the nodes' means"),
    ),
    both(
        "set_epoch never called", "3",
        (MODEL, {"    loader.sampler.set_epoch(epoch)  # without it, every epoch has the same order\n": ""}, "train_epoch", "set_epoch is never called"),
        (MODEL, {"        dataloader.sampler.set_epoch(epoch)\n": ""}, "train_epoch", "set_epoch is never called"),
    ),
    both(
        "gradients never exchanged", "3",
        (MODEL, {"        sum_gradients(model)\n": ""}, "train_epoch", "different weights"),
        (MODEL, {"            dist_utils.average_gradients(model)\n": ""}, "train_epoch", "different weights"),
    ),
    both(
        "__len__ is the whole set", "3",
        (SAMPLER, {"return len(range(self.rank, len(self.dataset), self.num_replicas))": "return len(self.dataset)"}, "length", "equal shares are"),
        (SAMPLER, {"        return self.num_samples\n": "        return len(self.dataset)\n"}, "length", "equal shares are"),
    ),
    both(
        "gradients never cleared", "3",
        (MODEL, {"        optimizer.zero_grad()\n": ""}, "train_epoch", "accumulate"),
        (MODEL, {"            optimizer.zero_grad()\n": ""}, "train_epoch", "accumulate"),
    ),
    both("a sampler that no loader has", "3", None,
        (MODEL, {"shuffle=False, sampler=sampler": "shuffle=True", "        dataloader.sampler.set_epoch(epoch)\n": ""}, "train_epoch", "the set is not divided"),
    ),
    both("every node takes the part of rank 0", "3", None,
        (MODEL, {"args.n_devices, rank, shuffle": "args.n_devices, 0, shuffle"}, "train_epoch", "the set is not divided"),
    ),
    both("a sampler for one node on every node", "3", None,
        (MODEL, {"args.n_devices, rank, shuffle": "1, 0, shuffle"}, "train_epoch", "the set is not divided"),
    ),
    both("the sum of the gradients instead of their mean", "3", None,
        (UTILS, {"        param.grad.data /= size\n": ""}, "train_epoch", "the sum of the nodes"),
    ),
    both("all-reduce without an operator", "3", None,
        (UTILS, {"dist.all_reduce(param.grad.data, op=dist.ReduceOp.SUM)\n        param.grad.data /= size\n": "dist.all_reduce(param.grad)\n"}, "train_epoch", "the sum of the nodes"),
    ),
    # Lab 4
    both(
        "initialising a model that holds only remote references", "4",
        (UTILS, {"enumerate(model.stages):\n        rpc": "enumerate(model.stages[:0]):\n        rpc"}, "init_parameters", "begin with different parameters"),
        (MODEL, {"    optimizer = Dist": "    init_parameters(model)\n    optimizer = Dist"}, "init_parameters", "does nothing"),
    ),
    both(
        "micro-batches put together in the wrong order", "4",
        (MODEL, {"torch.cat([part.wait() for part in scores])": "torch.cat([part.wait() for part in reversed(scores)])"}, "forward_microbatches", "labels of others"),
        (MODEL, {"torch.cat(torch.futures.wait_all(futures))": "torch.cat(torch.futures.wait_all(futures)[::-1])"}, "forward_microbatches", "labels of others"),
    ),
    both(
        "an optimizer with the parameters of one stage", "4",
        (UTILS, {"for stage in model.stages\n        for reference": "for stage in model.stages[1:]\n        for reference"}, "parameter_rrefs", "never updated"),
        (MODEL, {" + self.rref2.rpc_sync().parameter_rrefs()": " + self.rref2.rpc_sync().parameter_rrefs()[:0]"}, "parameter_rrefs", "never updated"),
    ),
    both(
        "a step outside of the context", "4",
        (MODEL, {"        optimizer.step(context_id)\n    return": "    optimizer.step(context_id)\n    return"}, "train_step", "after the context was left"),
        (MODEL, {"            optimizer.step(context_id)\n": "        optimizer.step(context_id)\n"}, "train_step", "after the context was left"),
    ),
    both(
        "train_step returns nothing", "4",
        (MODEL, {"        optimizer.step(context_id)\n    return loss.item()": "        optimizer.step(context_id)\n    loss.item()"}, "train_step", "expected a float, got a NoneType"),
    ),
    both(
        "train_step returns the sum of the losses", "4",
        (MODEL, {"    return loss.item()": "    return loss.item() * len(labels)"}, "train_step", "it returns a loss of"),
    ),
    both(
        "one seed for both stages", "4",
        (UTILS, {"args=(stage, seed + number)": "args=(stage, seed)"}, "init_parameters", "same random numbers"),
    ),
    both(
        "softmax at the end of forward", "4",
        (MODEL, {"        return rpc.rpc_sync(fc.owner(), run_stage, args=(fc, shapes))": "        return torch.softmax(rpc.rpc_sync(fc.owner(), run_stage, args=(fc, shapes)), dim=1)"}, "forward", "softmax"),
        (MODEL, {"        return self.fc2(x)": "        return torch.softmax(self.fc2(x), dim=1)"}, "forward", "softmax"),
    ),
    both(
        "softmax in the training step", "4",
        (MODEL, {"cross_entropy(scores, labels)": "cross_entropy(scores.softmax(1), labels)"}, "train_step", "softmax"),
        (MODEL, {"criterion(outputs, labels)": "criterion(nn.Softmax(dim=1)(outputs), labels)"}, "train_step", "softmax"),
    ),
)  # fmt: skip

ALIKE = (
    # Right programs that look like wrong ones. Lab 1
    right("a random batch in each of a few steps", "1", {LOOP: "        for i in range(12):\n            inputs, labels = next(iter(dataloader))\n"}),
    right("so many steps in all", "1", {"            losses.append(loss.item())\n": "            losses.append(loss.item())\n            if len(losses) == 9:\n                return losses\n"}),
    right("one step of each training, to try it", "1", {"        plt.plot(": "        for inputs, labels in loader:\n            optimizer.zero_grad()\n            nn.CrossEntropyLoss()(model(inputs), labels).backward()\n            optimizer.step()\n            break\n        plt.plot("}),
    right("a look at the first batch", "1", {"    losses = []\n": "    losses = []\n    for inputs, labels in dataloader:\n        plt.imshow(inputs[0][0])\n        break\n"}),
    # Lab 2
    right("handles that are waited for later", "2", {
        f"        if param.grad is not None:\n{REDUCE}": (
            "        if param.grad is not None:\n            handles.append(dist.all_reduce(param.grad, async_op=True))\n"
            "    for handle in handles:\n        handle.wait()\n    for param in model.parameters():\n        param.grad /= dist.get_world_size()\n"),
        "gradients(model):\n    for param in model.parameters():\n        if param.grad is not None:\n            handles": "gradients(model):\n    handles = []\n    for param in model.parameters():\n        if param.grad is not None:\n            handles",
    }),
    right("handles that the training loop waits for", "2", {
        f"    for param in model.parameters():\n        if param.grad is not None:\n{REDUCE}": "    return [dist.all_reduce(p.grad, op=dist.ReduceOp.AVG, async_op=True) for p in model.parameters()]\n",
        CALLS: "                for handle in dist_utils.allreduce_average_gradients(model):\n                    handle.wait()\n",
        SYNC: "", ".cuda()": "",
    }),
    right("the loss of all nodes, for the curve", "2", {"            loss.backward()\n": "            loss.backward()\n            shown = loss.detach().clone()\n            dist_utils.dist.all_reduce(shown, async_op=True)\n", SYNC: "", ".cuda()": ""}),
    right("the time of whole steps", "2", {STARTS: "", "            loss = loss_fn(": f"{STARTS}            loss = loss_fn(", f"{AVERAGED}            optimizer.step()\n": f"            optimizer.step()\n{AVERAGED}"}),
    right("the time of backward, too", "2", {"            optimizer.zero_grad()\n": f"            optimizer.zero_grad()\n{SYNC}            begin = time.time()\n", STARTS: f"{SYNC}            start = time.time()\n            computed = start - begin\n"}),
    right("a part of the set that each node takes itself", "2", {"    sampler = Dist": "    data = torch.utils.data.Subset(data, range(args.rank, len(data), args.n_devices))\n    sampler = Dist", "batch_size=32, sampler=sampler": "batch_size=32"}),
    right("the average repeated, to time it", "2", {CALLS: f"                for _ in range(5):\n    {CALLS}"}),
    right("node 1 waits for node 0 at the start", "2", {"    data = mnist(True)": "    if args.rank == 1:\n        time.sleep(2)\n    data = mnist(True)"}),
    # Lab 3
    right("a sum, and a learning rate for it", "3", {SUMS: SUMS.splitlines(keepends=True)[0], "lr=0.01": "lr=0.01 / args.n_devices"}),
    right("a sum, and a loss for it", "3", {SUMS: SUMS.splitlines(keepends=True)[0], "            loss.backward()": "            (loss / dist_utils.get_world_size()).backward()"}),
    right("a sum, divided in the training loop", "3", {SUMS: SUMS.splitlines(keepends=True)[0], "            optimizer.step()": "            for p in model.parameters():\n                p.grad.mul_(1 / dist_utils.get_world_size())\n            optimizer.step()"}),
    right("divided before the sum", "3", {SUMS: "".join(reversed(SUMS.splitlines(keepends=True)))}),
    right("the tutorial's Partition", "3", {
        "def train(": PARTITION, "        dataloader.sampler.set_epoch(epoch)\n": "",
        "    loader = torch.utils.data.DataLoader(data, batch_size=32, shuffle=False, sampler=sampler)": "    data = Partition(data, range(rank, len(data), args.n_devices))\n    loader = torch.utils.data.DataLoader(data, batch_size=32, shuffle=True)",
    }),
    # Lab 4
    right("log-softmax and nll_loss", "4", {"return self.fc2(x)": "return torch.log_softmax(self.fc2(x), dim=1)", "nn.CrossEntropyLoss()": "nn.NLLLoss()"}),
    right("both stages seeded alike", "4", {"torch.manual_seed(2)": "torch.manual_seed(1)"}),
    right("probabilities for the accuracy", "4", {"            loss = criterion": "            right = (outputs.softmax(1).argmax(1) == labels).sum()\n            loss = criterion"}),
    right("a function train_step of its own", "4", {
        "def train(args)": "def train_step(model, optimizer, criterion, inputs, labels, micro):\n    with dist_autograd.context() as context_id:\n        outputs = model.pipelined(inputs, micro) if micro > 1 else model(inputs)\n        dist_autograd.backward(context_id, [criterion(outputs, labels)])\n        optimizer.step(context_id)\n\n\ndef train(args)",
        "        with dist_autograd.context() as context_id:\n            outputs = model.pipelined(inputs, args.micro) if args.micro > 1 else model(inputs)\n            loss = criterion(outputs, labels)\n            dist_autograd.backward(context_id, [loss])\n            optimizer.step(context_id)\n": "        train_step(model, optimizer, criterion, inputs, labels, args.micro)\n",
    }),
)  # fmt: skip


def right_files(lab, form):
    """A right folder: our solution, or a program as students of the course write it."""
    return COURSE[lab] if form == "course" else {str(path): text for path, text in solution(lab).items()}


def plant(folder, planted, form):
    """Write a right folder with the error in it."""
    files, edit = dict(right_files(planted.lab, form)), planted.edits[form]
    for old, new in edit.changes.items():
        (path, *_) = [path for path in files if path.endswith(edit.file) and old in files[path]] or [""]
        assert path, (planted.name, form, old)
        files[path] = files[path].replace(old, new)
    write_files(folder, files)
    return folder


def graded(lab, folders, jobs=2):
    """The grades of folders, each checked in a sandbox as the command does."""
    words = load_words(lab_of(lab).package, "en")
    checked = check_folders(lab, folders, jobs=jobs)
    return [grade(each, "", load_weights(None, lab), words) for each in checked]


def outcomes(lab, root):
    """(error, form, edit, grade) of every error of a lab, and (None, form, None, grade) of right folders."""
    cases = [(None, form) for form in FORMS] + [
        (each, form) for each in (*PLANTED, *ALIKE) if each.lab == lab for form in each.edits
    ]
    folders = []
    for number, (each, form) in enumerate(cases):
        folders.append(Path(root, f"{number}"))
        if each:
            plant(folders[-1], each, form)
        else:
            write_files(folders[-1], right_files(lab, form))
    return [
        (each, form, each and each.edits[form], found)
        for (each, form), found in zip(cases, graded(lab, folders), strict=True)
    ]


def problem(edit, found):
    """Why a grade is not what it must be; empty if it is."""
    words = {task.name: task.word for task in found.tasks}
    said = {task.name: " | ".join(task.sentences) for task in found.tasks}
    if edit is None or not edit.task:
        return "" if found.percent == 100 and found.all_right else f"right folder: {words} {said}"
    if words[edit.task] not in ("wrong", "partly") or edit.word not in said[edit.task]:
        return f"not named: {words[edit.task]} {said[edit.task]}"
    others = {
        task: said[task]
        for task, word in words.items()
        if task != edit.task and word in ("wrong", "partly", "open")
    }
    return f"costs other tasks: {others}" if others else ""


def main(labs):
    """Print the table."""
    print("| lab | error | hand-out form | course's form |\n|---|---|---|---|")
    for lab in labs or "1234":
        rows = {}
        with TemporaryDirectory() as root:
            for each, form, edit, found in outcomes(lab, root):
                said = problem(edit, found) or (
                    f"{edit.task}, {found.percent:.0f} %" if edit and edit.task else f"{found.percent:.0f} %"
                )
                rows.setdefault(each.name if each else "(right)", {})[form] = said
        for name, cells in rows.items():
            print(f"| {lab} | {name} | {cells.get('ours', '—')} | {cells.get('course', '—')} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
