"""Averages move while workers train, also over groups in which nothing moves outside of calls."""

from local_cases import trained
from strategy_cases import OPTIMIZERS, made, on_threads, replica

from shoal.strategies.exchange.exchange import AllReduce, Exchange
from shoal.strategies.local.local import LocalSync
from shoal.strategies.local.settings import LocalConfig


class LateExchange(Exchange):
    """Starts when it is asked for the first time after the call, as a group over gloo whose members come late."""

    def __init__(self):
        self.late_starts = 0

    def __call__(self, group, bucket):
        exchange = self

        class Work:
            inner = None

            def done(self):
                self.inner = self.inner or AllReduce()(group, bucket)
                return self.inner.done()

            def wait(self):
                exchange.late_starts += self.inner is None
                self.done()
                self.inner.wait()

        return Work()


def test_an_average_that_started_late_moves_before_it_is_applied():
    def work(group):
        exchange = LateExchange()
        config = LocalConfig(every=4, fragments=2, overlap=2)
        trained(made(LocalSync, config, replica(OPTIMIZERS["sgd"]), group, exchange), (6, 6))
        return exchange.late_starts

    assert on_threads(2, work) == [0, 0], "else the worker waits for the whole transfer when it applies it"
