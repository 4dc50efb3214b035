"""Records of nodes, as a program in the course's form would leave them."""

from shoal_labs.check.program import Event

PASS = ("pass", 240, "MySampler", 0)


def recorded(*events):
    """Events without a place; a tuple is a kind and its values."""
    pairs = [(each, ()) if isinstance(each, str) else (each[0], each[1:]) for each in events]
    return [Event(kind, "", tuple(values)) for kind, values in pairs]


def step(optimizer="SGD", grads=1.0, params=2.0, calls=100, now_s=5.0):
    return ("step", optimizer, [grads], [params], calls, now_s)


def trained(*between, samples=8, own=1.0, before=(), after=(), **values):
    """One batch: forward, backward, what comes between backward and the step, the step, what comes after it."""
    batch = ("batch", list(range(samples)))
    back = ("backward", [0.0], [own], 2.3)
    return (batch, *before, ("loss", samples, False, 2.3), back, *between, step(**values), *after)
