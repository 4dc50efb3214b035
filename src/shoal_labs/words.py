"""The words of a lab: what every lab says (headings, progress, checks), and after it the lab's own."""

from shoal.kit.base import LANGUAGES, Phrase, Words
from shoal.kit.page import page_words

__all__ = ["LANGUAGES", "Words", "counted", "load_words"]


def load_words(package: str, lang: str, *more: str) -> Words:
    """The words of a lab's package in a language; those of further packages replace them."""
    return page_words(lang, "shoal_labs", package, *more)


def counted(noun: str, count: int) -> Phrase:
    """A number of things, by the sentences `count.<noun>` and `count.one_<noun>`."""
    return Phrase(f"count.{'one_' * (count == 1)}{noun}", {"count": count})
