"""Strategies with a bug each, to be named as `wrong_strategies:Class`."""

import shoal


class Twice(shoal.ReplicaSync):
    """Divides by the workers once more."""

    def combine(self, gradients, part):
        for gradient in gradients.values():
            self.group.all_reduce(gradient).wait()
            gradient /= self.group.size


class Drifting(shoal.ReplicaSync):
    """After two steps, rank 1 goes a way of its own."""

    count = 0

    def mix(self, weights):
        self.count += 1
        if self.group.rank == 1 and self.count > 2:
            next(iter(weights.values())).mul_(1.01)


class Decaying(shoal.ReplicaSync):
    """Decays all weights once more."""

    def mix(self, weights):
        for weight in weights.values():
            weight.mul_(0.99)


class Signs(shoal.ReplicaSync):
    """Claims nothing."""

    is_exact = False

    def combine(self, gradients, part):
        for gradient in gradients.values():
            gradient.sign_()
