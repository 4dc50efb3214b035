"""The help is the schema: no setting without its sentence."""

from shoal.cli.topics import sections, settings_page
from shoal.config.schema import SHORT_FLAGS


def test_every_setting_has_a_sentence():
    for section in sections():
        for flag in section.flags:
            assert flag.sentence.endswith("."), f"{flag.name} has no sentence"


def test_every_short_flag_and_choice_is_in_the_help():
    page = "\n".join(settings_page())
    for flag in SHORT_FLAGS:
        assert f"--{flag}" in page
    for section in sections():
        assert section.name in page
