"""Errors, sentences in two languages, and files written with care. Without torch."""

from shoal.errors import (
    AutogradError,
    CheckpointError,
    ConfigError,
    DivergedError,
    ShoalError,
    WorkerError,
    unknown,
)
from shoal.files import copy_folder
from shoal.printable import printable
from shoal.words import LANGUAGES, Phrase, Words

__all__ = [
    "LANGUAGES",
    "AutogradError",
    "CheckpointError",
    "ConfigError",
    "DivergedError",
    "Phrase",
    "ShoalError",
    "Words",
    "WorkerError",
    "copy_folder",
    "printable",
    "unknown",
]
