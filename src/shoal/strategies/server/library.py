"""`shoal.ParameterServer`: workers of your own training loop push gradients to servers that hold the weights."""

from collections.abc import Callable, Iterable
from typing import Literal, TypeVar, final

import torch
from torch import Tensor, nn

from shoal.comm.agree import check_same_model
from shoal.comm.group import Group
from shoal.config.arguments import checks_arguments
from shoal.config.sections.values import Count, NonNegative, Number
from shoal.errors import ConfigError
from shoal.models.common import check_has_values
from shoal.strategies.exchange.exchange import AllReduce
from shoal.strategies.guard import Guard
from shoal.strategies.library.divided_training import Trained
from shoal.strategies.library.set_up import group_of
from shoal.strategies.not_finite import Remedies
from shoal.strategies.pieces.state import model_pieces
from shoal.strategies.replicas.initial_state import sync_initial_state
from shoal.strategies.server.messages import Request, RequestKind, ServerClient
from shoal.strategies.server.settings import ServerConfig
from shoal.strategies.server.shards import Shard
from shoal.strategies.server.updates import Updates, answer_requests
from shoal.strategies.update import Update

Returned = TypeVar("Returned")
Mode = Literal["bsp", "ssp", "asp"]


@final
class ParameterServer:
    """The last ranks of a program serve the weights; the others train, and push the gradient of every step.

    ::

        server = shoal.ParameterServer(model, lambda params: torch.optim.SGD(params, lr=0.1), mode="asp")

        def train():
            for inputs, labels in loader:              # this worker's samples: server.workers.rank of .size
                server.zero_grad()
                F.cross_entropy(model(inputs), labels).backward()
                server.step()                          # the model now has the server's newest weights

        server.run(train)                              # on a server: answers until all workers have returned

    `mode` is when `step` returns: "bsp" after the update with the mean of all workers' gradients, as with
    `shoal.DistributedDataParallel`; "ssp" when no worker is more than `staleness` steps behind; "asp" at once. A push
    counts 1/W of its gradient for W workers, so W pushes move SGD as far as one averaged step.

    With "bsp" and "ssp" every worker makes equally many steps; with "asp" they need not. `make_optimizer` is given
    flat slices of the weights and must update each element on its own, as SGD and Adam do. Buffers stay each worker's
    own. Start the program with W + `servers` workers: `shoal launch --workers 3` has 2 that train and 1 server.
    """

    @checks_arguments
    def __init__(
        self,
        model: nn.Module,
        make_optimizer: Callable[[Iterable[Tensor]], torch.optim.Optimizer],
        *,
        mode: Mode = "asp",
        servers: Count = 1,
        staleness: Number | None = None,
        damping: bool = False,
        compensation: NonNegative = 0.0,
        group: Group | None = None,
    ) -> None:
        config = ServerConfig(
            mode=mode, servers=servers, staleness=staleness, damping=damping, compensation=compensation
        )
        check_has_values(model)
        params = {name: param for name, param in model.named_parameters() if param.requires_grad}
        if not params:
            raise ConfigError("the model has no parameter to train", "Call requires_grad_() on some of them.")
        self._world = world = group_of(group, params)
        size = world.size - servers
        if servers > size:
            raise ConfigError(
                f"{servers} of {world.size} ranks would serve, which leaves {max(0, size)} to train: there must be at "
                "least as many workers as servers",
                f"Start the program with {2 * servers} ranks or more, or use fewer servers.",
            )
        trained = Trained(model, dict(params))
        self._params = trained.params
        check_same_model(world, self._params)
        sync_initial_state(world, model_pieces(model.state_dict()))
        self.serves = world.rank >= size
        """Whether this rank is a server."""
        self.workers = world.split(range(size, world.size) if self.serves else range(size))
        """The workers that train (on a server: the servers), to divide data and to agree on things."""
        update = Update(trained, make_optimizer)
        self.lr = update.base_lr
        """The learning rate of the next steps; the optimizer's own unless you set it."""
        if self.serves:
            shard = Shard(trained, update, self.workers, size, config.gathers, world)
            guard = Guard(
                self.workers,
                AllReduce(),
                "stop",
                remedies=Remedies(clips=False, skips=False, exchanges=False),
            )
            self._updates = Updates(shard, config, size, guard, trained.zero)
        else:
            update.check_divisible()
            self._client = ServerClient(world, servers, self._params)
        self._steps = 0

    @checks_arguments
    def run(self, train: Callable[[], Returned]) -> Returned | None:
        """Call `train` on a worker, and return its result once all workers have returned and the weights are final.

        On a server, answer the workers meanwhile, and return None.
        """
        if self.serves:
            answer_requests(self._world, self._updates)
            return None
        returned = train()
        self.workers.barrier().wait()
        self._client.ask(Request(RequestKind.READ))
        self.workers.barrier().wait()
        self._client.pause("done")
        return returned

    def zero_grad(self) -> None:
        """Forget the gradients of the last step."""
        for param in self._params.values():
            param.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Push this worker's gradient; return with new weights when the mode says so.

        A parameter without a gradient counts as one with zero.
        """
        flat, part = self._of_worker().flat, 1 / self.workers.size
        flat.take_gradients()
        square = 0.0
        for gradients in flat.flat_gradients:
            gradients.mul_(part)
            square += gradients.dot(gradients).item()
        request = Request(RequestKind.PUSH, step=self._steps, lr=self.lr, part=part, square=square)
        self._client.ask(request, gradients=True)
        self._steps += 1

    @property
    def version(self) -> int:
        """The updates that the model's weights contain."""
        client = self._of_worker()
        return client.replies[0].version if client.replies else 0

    def _of_worker(self) -> ServerClient:
        """A worker's side of the messages; a server has none."""
        if self.serves:
            raise ConfigError(
                f"rank {self._world.rank} of {self._world.size} is a server, which has no steps",
                "Call step and version inside the function that you give to run, or if not server.serves.",
            )
        return self._client
