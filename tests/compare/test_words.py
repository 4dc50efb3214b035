"""Comparisons in Chinese: every remark, note and column has its words, and no English sentence is left."""

import re

import numpy as np
import pytest
from made_runs import DDP, with_invariant_steps, write_events, write_run

from shoal.compare.comparison import compare
from shoal.compare.comparison_report import write_report
from shoal.compare.remark import notes
from shoal.compare.run_report import write_run_report
from shoal.compare.verdict import verdict
from shoal.report.words import page_words

ZH, EN = page_words("zh", "shoal.compare"), page_words("en", "shoal.compare")
OTHER = {"w": np.array([1.0, -2.2])}
ENGLISH = re.compile(r"[A-Za-z]{2,}(?:[ ,.:;]+[A-Za-z]{2,}){2,}")
"""Three English words in a row."""
NO_PROSE = re.compile(r"```.*?```|`[^`]*`|--[a-z][\w.-]*(?: [\w,:]+)?", re.DOTALL)
"""Code and flags."""


def untranslated(text):
    return ENGLISH.findall(NO_PROSE.sub("", text))


def groups_of_runs(runs):
    """Runs in several groups, which together cause every remark and every note that there is."""
    slow, uneven, even = ((3, 0.5, 1), (9, 0.5, 1)), ((4, 0.5, 1), (9, 0.5, 1)), ((9, 0.5, 0),) * 2
    moving = ((7, 3, 0), (7, 3, 0))
    flags = f"{DDP} --bottleneck rank=1,slowdown=3"
    wide = write_run(runs / "wide", "--threads 2", weights=OTHER, gradient=[4.0, 2.00001])
    one = write_run(runs / "one", "--threads 1", step_ms=18, gradient=[4.0, 2.0])
    ways = {
        "slow": (flags, {"ranks": slow, "gradient": [4.0, 2.0]}),
        "balanced": (
            f"{flags} --balance",
            {"ranks": even, "step_ms": 6, "weights": {"w": np.array([1.0, -2.3])}},
        ),
        "turns": (DDP, {"ranks": uneven, "turns": True}),
        "gloo": (f"{DDP} --group gloo", {"ranks": moving, "step_ms": 12}),
        "shm": (f"{DDP} --group shm", {"ranks": even, "step_ms": 9.5, "noise": 0.3}),
        "naive": ("--strategy naive --workers 2 --threads 1", {"ranks": moving}),
        "dp": ("--strategy dp --workers 2 --threads 1", {"ranks": slow}),
        "central": ("--strategy dp --workers 2 --threads 1", {"ranks": moving}),
        "ring": (f"{DDP} --exchange by:ring", {"ranks": moving}),
        "pipe": ("--strategy pipeline --workers 2 --threads 1", {"ranks": uneven}),
        "tensor": ("--strategy tensor --workers 2 --threads 1", {"ranks": uneven}),
        "rpc": ("--strategy rpc --workers 2 --threads 1", {"ranks": uneven}),
        "local": ("--strategy local --workers 2 --threads 1 --strategy.every 5", {"ranks": even}),
        "adam": ("--strategy local --workers 2 --threads 1 --strategy.every 1", {"ranks": even}),
        "int8": (f"{DDP} --exchange compressed:int8", {"ranks": even, "gradient": [4.0, 2.1]}),
        "topk": (f"{DDP} --exchange compressed:topk", {"ranks": ((5, 1, 0),) * 2, "encode_ms": 3}),
        "fp16": (f"{DDP} --exchange compressed:fp16", {"ranks": moving, "counts_bytes": False}),
    }
    made = [write_run(runs / name, given, **options) for name, (given, options) in ways.items()]
    for folder, sha256 in ((one, "same"), (made[0], "same"), (made[2], "another"), (made[3], None)):
        with_invariant_steps(folder, sha256)
    yield [wide, one, *made]
    wrong = "--partition random --exchange robust:median --exchange.bad 0 --precision bf16"
    wrong_ways = {
        "wrong": f"{DDP} {wrong}",
        "async": "--strategy pipeline --workers 2 --threads 1 --pipeline.schedule async",
        "bug": DDP,
        "four": "--strategy ddp --workers 4 --threads 2 --lr 0.1",
    }
    far = [
        write_run(runs / name, given, ranks=even, gradient=[1.0, 2.0]) for name, given in wrong_ways.items()
    ]
    asp = write_run(
        runs / "asp", "--strategy server --strategy.mode asp --workers 2", ranks=even, gradient=[1.0, 2.0]
    )
    updates = [
        {"event": "update", "rank": step % 2, "step": step, "staleness": step, "version": step}
        for step in range(20)
    ]
    events = [*updates, {"event": "lost", "rank": 1, "version": 3, "step": 1}]
    write_events(asp, 2, events)
    gpu = write_run(runs / "gpu", "--threads 2", device="cuda:0", not_scheduled=0.4, run_id="")
    (gpu / "model.safetensors").unlink()
    unfinished = write_run(runs / "unfinished", DDP)
    (unfinished / "result.json").unlink()
    yield [one, wide, *far, asp, gpu, unfinished]
    yield [write_run(runs / "a", DDP, ranks=even), write_run(runs / "b", DDP, ranks=even, weights=OTHER)]
    yield [write_run(runs / "narrow", "--threads 1"), write_run(runs / "twice", DDP, ranks=even)]
    yield [write_run(runs / "late", "--threads 2", step_ms=80), write_run(runs / "ddp", DDP, ranks=even)]
    delayed = {"not_scheduled": 0.3, "ranks": even}
    yield [write_run(runs / name, DDP, **delayed) for name in ("c", "d")]
    quiet = ((9.8, 0.2, 0),) * 2
    yield [write_run(runs / "fast", "--threads 2"), write_run(runs / "calm", DDP, step_ms=20, ranks=quiet)]


@pytest.fixture(scope="module")
def groups(tmp_path_factory):
    return [compare(folders) for folders in groups_of_runs(tmp_path_factory.mktemp("groups"))]


def test_every_remark_and_note_is_in_chinese(groups):
    kinds, keys = set(), set()

    class Counting(type(ZH)):
        def __call__(self, key, /, **values):
            keys.add(key)
            return super().__call__(key, **values)

    words = Counting("zh", ZH.sentences)
    for comparison in groups:
        remarks = verdict(comparison, words)
        kinds |= {remark.kind for remark in remarks}
        texts = [
            *(" ".join(list(vars(remark).values())[2:]) for remark in remarks),
            *notes(comparison, words),
        ]
        for text in texts:
            assert untranslated(text) == []
            assert "{" not in text
        english = verdict(comparison, EN)
        assert [(remark.tone, remark.kind) for remark in english] == [(r.tone, r.kind) for r in remarks]
    named = {key.removeprefix("word.") for key in ZH.sentences if key.startswith("word.")}
    of_one_run = {
        "loads",
        "batches",
        "link",
        "buckets",
        "evaluates",
        "saves",
        "synchronises",
        "unused",
        "memory",
    }
    assert kinds == named - of_one_run, "test_why_slow.py has those that one run is enough for"
    sections = (
        "busy",
        "impossible",
        "speed",
        "waits",
        "moves",
        "balance",
        "group",
        "efficient",
        "bubble",
        "tensor",
    )
    sections += (
        "rpc",
        "differs",
        "equal",
        "averages",
        "compressed",
        "accuracy",
        "same_bits",
        "invariant",
        "threads",
    )
    said = {key for key in ZH.sentences if key.partition(".")[0] in (*sections, "notes")} - keys
    # The others need two runs, or none, where these groups have one.
    assert said <= {
        "waits.profile",
        "waits.data",
        "waits.rest",
        "waits.rest_advice",
        "moves.profile",
        "equal.claim",
        "equal.uncompressed",
        "threads.small",
        "same_bits.balanced",
        "waits.balanced",
        "moves.numbers",
    }


@pytest.mark.usefixtures("without_figures")
def test_pages_of_all_strategies_of_parameter_servers_and_of_one_run_are_in_chinese(groups, tmp_path):
    for number, comparison in enumerate(groups[:2]):
        remarks = verdict(comparison, ZH)
        write_report(tmp_path / f"page{number}", comparison, remarks, "shoal compare x", {"cores": "2"}, ZH)
    write_run_report(tmp_path / "run", compare([groups[0].entries[2].run.folder.path]), ZH)
    for page, words in (("page0", "可用核心数"), ("page1", "推送次数"), ("run", "时间花在哪里")):
        text = (tmp_path / page / "report.md").read_text(encoding="utf-8")
        assert untranslated(text) == []
        assert words in text


def test_the_search_for_english_finds_it():
    assert untranslated("时间：the machine was busy")
    assert not untranslated("ddp 比 single 快，可以试试 --strategy ddp，见 `shoal compare runs/a`")
