import torch

from shoal.autograd import ops
from shoal.autograd.static.graph import trace
from shoal.autograd.static.memory import ALIGNMENT, plan_memory


def test_a_chain_of_elementwise_operations_needs_one_buffer():
    graph = trace(lambda x: ops.exp(ops.tanh(ops.exp(x * 2.0))), [torch.ones(100)])
    assert plan_memory(graph).num_bytes == -(-400 // ALIGNMENT) * ALIGNMENT


def test_values_that_live_at_the_same_time_never_overlap():
    def function(x):
        values = [ops.exp(x * float(n)) for n in range(5)]
        total = values[0]
        for value in values[1:]:
            total = total @ value
        return total

    graph = trace(function, [torch.ones(6, 6)])
    plan = plan_memory(graph)
    made = {output: index for index, o in enumerate(graph.operations) for output in o.outputs}
    roots = list(plan.offsets)
    for a in roots:
        for b in roots:
            apart = (
                plan.offsets[a] + a.num_bytes <= plan.offsets[b]
                or plan.offsets[b] + b.num_bytes <= plan.offsets[a]
            )
            # An element-wise operation may begin where its input ends: there, and only there, lives may touch.
            together = made[a] < made[b] < plan.last_use[a]
            assert apart or not together or a is b
    assert plan.num_bytes < sum(root.num_bytes for root in roots)


def test_a_view_keeps_what_it_looks_at_alive():
    def function(x):
        base = x * 2.0
        view = ops.reshape(base, shape=(4,))
        other = ops.exp(x)
        return ops.matmul(other, other), view * 3.0

    graph = trace(function, [torch.ones(2, 2)])
    plan = plan_memory(graph)
    base = graph.operations[0].outputs[0]
    assert plan.roots[graph.operations[1].outputs[0]] is base
    assert plan.last_use[base] == len(graph.operations) - 1
