"""The words of a lab: what every lab says (headings, progress, checks), and after it the lab's own."""

from shoal.report.words import page_words
from shoal.words import LANGUAGES, Words

__all__ = ["LANGUAGES", "Words", "load_words"]


def load_words(package: str, lang: str, *more: str) -> Words:
    """The words of a lab's package in a language; those of further packages replace them."""
    return page_words(lang, "shoal_labs", package, *more)
