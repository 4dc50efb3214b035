"""The pages of help of commands that take all settings: a short first one, and one for each name."""

import re

import pytest

from shoal.cli.main import main
from shoal.cli.topics import sections, topics
from shoal.cli.train import COMMAND
from shoal.config.combinations import refused_with
from shoal.config.sections.sync import STRATEGIES


@pytest.fixture
def page(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")

    def shown(words):
        assert main(words.split()) == 0
        return capsys.readouterr().out

    return shown


def test_the_first_page_is_short_and_has_the_flags_used_most_and_every_section(page):
    first = page("train --help")
    assert len(first.splitlines()) <= 60
    assert len(re.findall(r"^    shoal train ", first, re.MULTILINE)) == 4
    for flag in COMMAND.used_most:
        assert re.search(rf"^  {flag}\b", first, re.MULTILINE)
    for section in ("data", "optimizer", "strategy", "memory", "output", "general", "flags"):
        assert re.search(rf"^  {section} +\S", first, re.MULTILINE)
    assert not re.search(r"sync|mesh", first)


@pytest.mark.parametrize(
    ("topic", "there", "elsewhere"),
    [
        ("optimizer", "--optimizer.nesterov", "--model.hidden"),
        ("model", "--model.hidden", "--optimizer.momentum"),
        ("adamw", "--optimizer.beta1", "--optimizer.nesterov"),
        ("strategy", "onecopy", "--strategy.stage"),
        ("zero", "--strategy.stage", "--strategy.bucket_mib"),
        ("DDP", "--strategy.bucket_mib", "--strategy.stage"),
        ("tensor+zero", "--tensor.plan", "--pipeline.schedule"),
        ("sync", "--sync.stage", "--model.hidden"),
        ("mesh", "data=2,pipeline=2", "--model.hidden"),
        ("batch-size", "--train.batch_size", "--epochs"),
        ("batch_size", "--train.batch_size", "--epochs"),
        ("lr", "(default 0.5)", "--momentum"),
        ("topk", "--exchange compressed:NAME", "--exchange by"),
        ("general", "--engine", "--lr"),
        ("flags", "--join-timeout", "--momentum"),
    ],
)
def test_a_page_on_a_name_has_what_belongs_to_it_and_no_more(topic, there, elsewhere, page):
    shown = page(f"train --help {topic}")
    assert there in shown
    assert elsewhere not in shown
    assert page(f"help train {topic}") == shown
    if topic != "flags":
        assert page(f"compare --help {topic}") == shown


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_page_on_a_strategy_has_a_command_that_works_and_what_it_refuses(strategy, page, capsys):
    shown = page(f"train --help {strategy}")
    command = re.search(r"^    shoal (train quickstart .*)$", shown, re.MULTILINE)[1]
    assert f" --strategy {strategy}" in command
    assert page(f"{command} --print-config")
    for other in refused_with(f"strategy {strategy}"):
        assert other in " ".join(shown.split())


def test_words_before_help_are_no_topic(page):
    assert page("train quickstart --help") == page("train --help")
    assert page("compare quickstart --epochs 1 -h zero") == page("compare --help zero")


def test_every_topic_has_a_page_and_all_has_every_flag(page):
    for topic in topics():
        assert page(f"train --help {topic}").strip()
    everything = page("train --help all")
    for flag in ["--join-timeout", *(flag.name for section in sections() for flag in section.flags)]:
        assert re.search(rf"{flag}\b", everything), flag
    assert "not with strategy dp" in everything


@pytest.mark.parametrize(("name", "meant"), [("optimiser", "optimizer"), ("zerro", "zero"), ("fsdp", "zero")])
def test_an_unknown_name_leads_to_a_known_one(name, meant, capsys):
    assert main(["train", "--help", name]) == 2
    answer = capsys.readouterr()
    assert meant in answer.err.splitlines()[0]
    assert answer.out == ""


def test_a_command_that_takes_other_settings_has_one_page(page):
    assert page("help evaluate") == page("evaluate --help data")
    assert page("help data fetch") == page("data fetch --help")
