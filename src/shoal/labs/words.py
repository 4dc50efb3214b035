"""The words of a lab: what every lab says (headings, verdicts, the machine), and after it the lab's own."""

from shoal.words import LANGUAGES, Words, read_words

__all__ = ["LANGUAGES", "Words", "load_words"]

SHARED = "shoal.labs"
"""The package whose words all labs share."""


def load_words(package: str, lang: str, *more: str) -> Words:
    """The words of a lab's package in a language; those of further packages replace them."""
    return read_words(lang, SHARED, package, *more)
