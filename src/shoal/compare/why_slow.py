"""Remarks on the causes of slow steps: one rule for each cause, for one run and for each run of a comparison.

`causes.py` measures them. Here each gets its claim, its numbers and what to try.
"""

from collections.abc import Iterator
from statistics import fmean

from shoal.compare import causes
from shoal.compare.causes import MATTERS, Slow, Stall
from shoal.compare.comparison import ComparedRun, Comparison, differ_only_in, settings_apart
from shoal.compare.remark import Remark, percent, remark, size_in_words
from shoal.config.schema import RunConfig
from shoal.config.sections.data import FilesConfig
from shoal.config.sections.exchange import compressions
from shoal.config.sections.values import Custom
from shoal.words import Words

MOST_NAMES = 3
"""Names of parameters in a sentence."""


def waiting(comparison: Comparison, words: Words) -> Iterator[Remark]:
    """Runs whose workers wait for another one. Those that divide the model have remarks of their own."""
    # For a balanced run and its counterpart `balance` says more: it waits until its shares have settled.
    balanced = [after for after in comparison.several() if _counterpart(after, comparison)]
    in_turns: list[ComparedRun] = []
    for entry in comparison.several():
        if divides_model(entry.config):
            continue
        if slow := causes.slow_worker(entry):
            yield _waiting_for(slow, entry, words)
        elif entry.shares["wait"] >= MATTERS:
            in_turns += [entry] * (entry not in balanced)
    if in_turns:
        shares = [percent(entry.shares["wait"]) for entry in in_turns]
        claim = words("waits.in_turns", names=[entry.name for entry in in_turns])
        numbers = words("waits.in_turns_numbers", shares=shares)
        yield remark(words, "fails", "waits", claim, numbers, words("waits.in_turns_advice"))


def _counterpart(after: ComparedRun, comparison: Comparison) -> bool:
    return any(
        settings_apart(before.config, after.config).get("train.balance") == (False, True)
        and differ_only_in(before, after, "train.balance")
        for before in comparison.several()
    )


def _waiting_for(slow: Slow, entry: ComparedRun, words: Words) -> Remark:
    kind = {"data": "loads", "batches": "batches"}.get(slow.why, "waits")
    most = max(entry.ranks, key=lambda rank: rank.wait)
    work = {"slow": slow.rank, "quick": slow.quick}
    if slow.why == "batches":
        work_numbers = words("batches.numbers", more=slow.slow_s, fewer=slow.quick_s, **work)
    else:
        ratio = (
            words("waits.ratio", ratio=slow.slow_s / slow.quick_s) if slow.slow_s < 100 * slow.quick_s else ""
        )
        times = {"slow_ms": 1e3 * slow.slow_s, "quick_ms": 1e3 * slow.quick_s, "ratio": ratio}
        work_numbers = words(f"waits.{slow.why}", **work, **times)
    numbers = words(
        "waits.numbers",
        percent=percent(entry.shares["wait"]),
        most=percent(most.wait),
        rank=most.rank,
        work=work_numbers,
    )
    claim = words(f"{kind}.of_one" if kind != "waits" else "waits.claim", name=entry.name, slow=slow.rank)
    return remark(words, "fails", kind, claim, numbers, _for_slow(slow, entry, words))


def _for_slow(slow: Slow, entry: ComparedRun, words: Words) -> str:
    if slow.why == "data":
        return _for_loading(entry, words)
    if entry.is_profile:
        return words(
            {"batches": "batches.advice", "rest": "waits.rest_advice"}.get(slow.why, "waits.profile")
        )
    if entry.config.strategy == "dp":
        return words("waits.dp")
    return words("waits.balanced" if entry.config.train.balance else "waits.balance")


def divides_model(config: RunConfig) -> bool:
    """Whether the workers of a run divide the model among them."""
    return config.strategy == "rpc" or any(axis != "data" for axis in config.axes)


def moving(comparison: Comparison, words: Words) -> Iterator[Remark]:
    """Runs whose workers wait for bytes to move."""
    for entry in comparison.several():
        if entry.shares["move"] < MATTERS or divides_model(entry.config):
            continue
        traffic, share = causes.traffic(entry), percent(entry.shares["move"])
        rate = traffic.sent_bytes / traffic.move_s if traffic.move_s else 0.0
        numbers = words("moves.numbers", percent=share)
        if calls := round(traffic.calls):
            size = size_in_words(traffic.sent_bytes)
            numbers = words("moves.calls", percent=share, calls=words.counted("call", calls), size=size)
        why = why_moving(entry)
        if why == "link" and rate:
            numbers = words(
                "join.sentences", first=numbers, last=words("link.numbers", rate=size_in_words(rate))
            )
        claim = words(f"{why}.claim", name=entry.name)
        yield remark(words, "fails", why, claim, numbers, _for_moving(entry, why, words))


_KIND_OF_LINK = {True: "link", False: "moves"}
"""Only a simulated link of a run is known to be slow; a user's program shows its rate."""


def why_moving(entry: ComparedRun) -> str:
    """`buckets`, `link` or `moves`."""
    why = causes.traffic(entry).why
    if entry.is_profile:
        return why
    has_buckets = entry.config.strategy in ("ddp", "onecopy") and not entry.config.launch.link
    return "buckets" if why == "buckets" and has_buckets else _KIND_OF_LINK[bool(entry.config.launch.link)]


def for_encoding(entry: ComparedRun, words: Words) -> str:
    """On a fast link no codec pays: there encoding takes longer than moving what is left."""
    if entry.shares["encode"] >= entry.shares["move"]:
        return words("encodes.fast")
    return larger_batch(entry, words) if entry.config.launch.link else words("encodes.auto")


def _for_moving(entry: ComparedRun, why: str, words: Words) -> str:
    if entry.is_profile:
        return words(f"{why}.profile")
    if any(each.codec != "none" for each in compressions(entry.config.exchange)):
        return for_encoding(entry, words)
    if why != "moves":
        return words(f"{why}.advice")
    if entry.config.launch.group == "gloo":
        return words("moves.gloo")
    if entry.config.exchange.name != "all_reduce":
        return words("moves.exchange")
    if entry.config.strategy in ("naive", "dp"):
        return words(f"moves.{entry.config.strategy}")
    return larger_batch(entry, words)


def larger_batch(entry: ComparedRun, words: Words) -> str:
    """The flag of a batch that is four times as large."""
    size = entry.config.train.batch_size
    return words("speed.larger_batch", size=4 * size) if isinstance(size, int) else ""


def loading(comparison: Comparison, words: Words) -> Iterator[Remark]:
    """Runs that wait for their data."""
    for entry in comparison.entries:
        # Data sets of ours are in memory, where no loader helps.
        has_loader = entry.is_profile or isinstance(entry.config.data, Custom | FilesConfig)
        if has_loader and causes.loading_cost(entry):
            most = max(entry.ranks, key=lambda rank: rank.data)
            mean = percent(fmean(rank.data for rank in entry.ranks))
            numbers = words("loads.numbers", percent=mean, most=percent(most.data), rank=most.rank)
            claim = words("loads.claim", name=entry.name)
            yield remark(words, "fails", "loads", claim, numbers, _for_loading(entry, words))


def _for_loading(entry: ComparedRun, words: Words) -> str:
    return words("loads.advice" if entry.is_profile else "loads.train")


def stalling(comparison: Comparison, words: Words) -> Iterator[Remark]:
    """Evaluation on one worker alone, and checkpoints that take long."""
    for entry in comparison.entries:
        if found := causes.evaluating_alone(entry):
            yield _stall("evaluates", "claim", found, entry, words)
        if found := causes.saving(entry):
            yield _stall(
                "saves", "alone" if found.is_alone and entry.workers > 1 else "claim", found, entry, words
            )


def _stall(kind: str, claim: str, stall: Stall, entry: ComparedRun, words: Words) -> Remark:
    said = words(f"{kind}.{claim}", name=entry.name, rank=stall.rank)
    numbers = words("stall.numbers", times=stall.times, seconds=stall.seconds, percent=percent(stall.cost))
    return remark(
        words, "fails", kind, said, numbers, words(f"{kind}.{'profile' if entry.is_profile else 'advice'}")
    )


def synchronising(comparison: Comparison, words: Words) -> Iterator[Remark]:
    """Programs whose host often waits for its GPU."""
    for entry in comparison.entries:
        calls, cost = causes.synchronising(entry)
        if cost:
            claim = words("synchronises.claim", name=entry.name)
            numbers = words("synchronises.numbers", calls=calls, percent=percent(cost))
            yield remark(words, "fails", "synchronises", claim, numbers, words("synchronises.advice"))


def unused(comparison: Comparison, words: Words) -> Iterator[Remark]:
    """Parameters without gradients, and a search for such parameters that finds none."""
    for entry in comparison.entries:
        names, searches = causes.unused_parameters(entry)
        count = entry.ranks[0].facts.parameters.get("count", 0)
        if names:
            some = ", ".join(names[:MOST_NAMES]) + " …" * (len(names) > MOST_NAMES)
            numbers = words("unused.numbers", unused=len(names), count=count, names=some)
            yield remark(
                words,
                "fails",
                "unused",
                words("unused.claim", name=entry.name),
                numbers,
                words("unused.advice"),
            )
        elif searches:
            claim, numbers = words("unused.searches", name=entry.name), words("unused.none", count=count)
            yield remark(words, "fails", "unused", claim, numbers, words("unused.no_search"))


def memory(comparison: Comparison, words: Words) -> Iterator[Remark]:
    """Workers that are near a limit of memory."""
    for entry in comparison.entries:
        if found := causes.nearest_memory(entry):
            rank, limit = found
            used, most = limit["used"], limit["limit"]
            claim = words("memory.claim", name=entry.name, rank=rank)
            sizes = {
                "used": size_in_words(used),
                "limit": size_in_words(most),
                "percent": percent(used / most),
            }
            numbers = words("memory.numbers", of=limit["name"], **sizes)
            yield remark(
                words,
                "fails",
                "memory",
                claim,
                numbers,
                words(f"memory.{'profile' if entry.is_profile else 'advice'}"),
            )
