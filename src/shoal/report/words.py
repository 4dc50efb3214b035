"""The words of a page: what all pages say (verdicts, the machine), and after it the page's own."""

from shoal.words import Words, read_words


def page_words(lang: str, *packages: str) -> Words:
    """The words of a page in a language; those of a later package replace what an earlier one says."""
    return read_words(lang, "shoal.report", *packages)
