# ruff: noqa: T201
"""A tape by hand: record a computation, read the tape, walk it backwards, add an operation, differentiate twice.

    python examples/tape.py

The last step computes the same gradients with `shoal.autograd`, the engine for real networks.
"""

import torch

from shoal.autograd import Variable as EngineVariable
from shoal.autograd import grad as engine_grad
from shoal_labs.autograd.tape import TapeEntry, Variable, grad, gradient_tape, reset_tape

PRICES, AMOUNTS = torch.tensor([2.0, 5.0]), torch.tensor([3.0, 4.0])


def cost(prices, amounts):
    """Every amount costs its price, and once more for each piece: (p + n) · n. `amounts` is used twice."""
    return (prices + amounts) * amounts


def tanh(x):
    """An operation of one's own: compute, print, append an entry with the chain rule. tanh′ = 1 − tanh²."""
    r = Variable(torch.tanh(x.value))
    print(f"{r.name} = tanh({x.name})")

    def propagate(gradients):
        (dL_dr,) = gradients
        ones, minus = (Variable(torch.full_like(r.value, number)) for number in (1.0, -1.0))
        return [dL_dr * (ones + minus * (r * r))]

    gradient_tape.append(TapeEntry(inputs=[x.name], outputs=[r.name], propagate=propagate))
    return r


def main() -> None:
    """Walk through the steps."""
    print("1. Record: every operation computes its value and appends an entry.")
    reset_tape()
    p, n = Variable.constant(PRICES, name="p"), Variable.constant(AMOUNTS, name="n")
    total = cost(p, n).sum(name="total")

    print("\n2. Read the tape: names go in, names come out.")
    for number, entry in enumerate(gradient_tape):
        print(f"entry {number}: {entry.inputs} -> {entry.outputs}")

    print("\n3. Walk backwards by hand: what is used twice receives a sum.")
    gradients = {"total": Variable.constant(torch.ones(()))}
    for entry in reversed(total.gradient_tape[:]):
        parts = entry.propagate([gradients[name] for name in entry.outputs])
        for name, part in zip(entry.inputs, parts, strict=True):
            gradients[name] = gradients[name] + part if name in gradients else part
    print("d total / d p =", gradients["p"], "  by hand: n =", AMOUNTS)
    print("d total / d n =", gradients["n"], "  by hand: p + 2 n =", PRICES + 2 * AMOUNTS)

    print("\n4. grad does the same.")
    reset_tape()
    p, n = Variable.constant(PRICES, name="p"), Variable.constant(AMOUNTS, name="n")
    dp, dn = grad(cost(p, n).sum(name="total"), [p, n])
    print("d total / d p =", dp)
    print("d total / d n =", dn)

    print("\n5. An operation of one's own, differentiated twice: tanh'' = -2 tanh (1 - tanh²).")
    reset_tape()
    x = Variable.constant(torch.tensor(0.5), name="x")
    (slope,) = grad(tanh(x), [x])
    (bend,) = grad(slope, [x])
    height = torch.tanh(torch.tensor(0.5))
    print(f"slope {slope.value:.6f}   by hand {1 - height**2:.6f}")
    print(f"bend {bend.value:.6f}   by hand {-2 * height * (1 - height**2):.6f}")

    print("\n6. The engine for real networks gives the same gradients, and prints nothing.")
    p, n = EngineVariable(PRICES, name="p"), EngineVariable(AMOUNTS, name="n")
    dp, dn = engine_grad(cost(p, n).sum(), [p, n])
    print("d total / d p =", dp.value)
    print("d total / d n =", dn.value)


if __name__ == "__main__":
    main()
