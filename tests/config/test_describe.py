"""The help is the schema: no setting without its sentence."""

from shoal.cli.train_help import train_help
from shoal.config.describe import sections
from shoal.config.schema import SHORT_FLAGS


def test_every_setting_has_a_sentence():
    for section in sections():
        for setting in section.settings:
            assert setting.sentence.endswith((".", "`.")), f"{setting.flag} has no sentence"


def test_every_short_flag_and_choice_is_in_the_help():
    page = train_help()
    for flag in SHORT_FLAGS:
        assert f"--{flag}" in page
    for section in sections():
        assert section.name in page
