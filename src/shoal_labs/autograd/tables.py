"""Every number of the report, as tables for other programs."""

from shoal.report.plain_tables import Records
from shoal_labs.autograd.experiment import AutogradMeasurements
from shoal_labs.timing.contest import Contest


def tables(measured: AutogradMeasurements) -> dict[str, Records]:
    """The tables by name."""
    networks = measured.networks.values()
    return {
        "times": [
            {"experiment": experiment, "rival": rival, "round": number, "seconds (s)": f"{second:.6g}"}
            for experiment, contest in _contests(measured).items()
            for rival, seconds in contest.seconds.items()
            for number, second in enumerate(seconds)
        ],
        "passes": [
            {
                "network": network.name,
                "after": stage.name,
                "operations": stage.num_operations,
                "bytes written": stage.num_bytes,
                "multiplications in matrix products": stage.num_multiplications,
            }
            for network in networks
            for stage in network.stages
        ],
        "memory": [
            {"network": network.name, "engine": engine, "most bytes held at once": peak}
            for network in networks
            for engine, peak in network.peak.items()
        ],
    }


def _contests(measured: AutogradMeasurements) -> dict[str, Contest]:
    """Everything that was timed, by name."""
    networks, distinct = measured.networks.values(), measured.caching.distinct
    return {
        **{f"{network.name} step": network.step for network in networks},
        **{f"{network.name} forward {n}": one for network in networks for n, one in network.forward.items()},
        **{f"recurring {tapes.count}": tapes.time for tapes in measured.caching.recurring},
        f"distinct {distinct.count}": distinct.time,
        **{f"chain {chain.size}": chain.time for chain in measured.chains},
    }
