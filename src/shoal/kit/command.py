"""What a command of another package is made of."""

from shoal.cli import text
from shoal.cli.browser import open_page
from shoal.cli.command import Command, CommandGroup, Given
from shoal.cli.interrupts import exit_code_of
from shoal.cli.main import main
from shoal.cli.text import is_device_or_folder

__all__ = [
    "Command",
    "CommandGroup",
    "Given",
    "exit_code_of",
    "is_device_or_folder",
    "main",
    "open_page",
    "text",
]
