"""Settings of gradient compression: which codec encodes each parameter's gradient, and how."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from shoal.config.choices import Checked, kinds_of
from shoal.config.kinds import Among, AtLeast, AtMost, MoreThan, Several, check, parse
from shoal.config.sections.values import AmongOrOwn, Count, Fraction, NonNegative, is_own
from shoal.errors import ConfigError, unknown
from shoal.printable import shortened

Ratio = Annotated[float, MoreThan(0.0), AtMost(1.0)]


@dataclass(frozen=True)
class CodecRow:
    """What settings need to know of a codec. `codecs/build.py` builds it."""

    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The settings that it takes, with their defaults; the first is its main one."""
    needs_feedback: bool = False
    """Whether it is biased: without feedback, training need not converge to what uncompressed training does."""
    is_candidate: bool = False
    """Whether auto tries it by default."""


CODEC_ROWS: dict[str, CodecRow] = {
    "none": CodecRow(is_candidate=True),
    "fp16": CodecRow(is_candidate=True),
    "bf16": CodecRow(),
    "int8": CodecRow({"block": 256}, is_candidate=True),
    "int4": CodecRow({"block": 64}),
    "qsgd": CodecRow({"bits": 4, "block": 128}),
    "terngrad": CodecRow({"clip": 2.5}),
    "sign": CodecRow({"vote": False}),
    "onebit": CodecRow({"vote": False}, needs_feedback=True),
    "topk": CodecRow({"ratio": 0.1}, needs_feedback=True, is_candidate=True),
    "randomk": CodecRow({"ratio": 0.5}, needs_feedback=True),
    "threshold": CodecRow({"threshold": 1e-3, "ratio": 0.05}, needs_feedback=True),
    "average": CodecRow({"ratio": 0.1, "decay": 0.9}, needs_feedback=True),
    "dgc": CodecRow({"ratio": 0.1, "momentum": 0.5, "clip": 0.0}, needs_feedback=True),
    "powersgd": CodecRow({"rank": 2}, needs_feedback=True, is_candidate=True),
}
"""By name, the more precise first."""
CANDIDATES = tuple(name for name, row in CODEC_ROWS.items() if row.is_candidate)

AUTO = "auto"
"""Chooses one of its candidates by measurement."""


class Encoding(NamedTuple):
    """How one parameter's gradient is encoded."""

    codec: str
    settings: dict[str, Any]
    feedback: bool


@dataclass(frozen=True)
class CompressedConfig(Checked):
    """Compressed gradients: each worker sends a short code of its gradients; `compressed:topk` for short."""

    SHORT: ClassVar[str] = "codec"

    name: Literal["compressed"] = "compressed"
    codec: Annotated[str, AmongOrOwn((*CODEC_ROWS, AUTO))] = "topk"
    """The codec; docs/en/compression.md lists them with bytes per element, bias and references. auto: by measurement.
    Or package.module:Class."""
    candidates: tuple[str, ...] = ()
    """What auto chooses from: CODEC or CODEC:VALUE, the preferred ones first (none, fp16, int8, topk, powersgd)."""
    feedback: bool | None = None
    """Add what was not sent to the next step's gradient; none: yes for biased codecs (topk, powersgd, …)."""
    warmup: Annotated[int, AtLeast(0)] = 0
    """Steps in which the ratio falls exponentially from 1; codecs without a ratio send all in these steps."""
    layers: Annotated[tuple[str, ...], Several()] = ()
    """PATTERN=CODEC, PATTERN=CODEC:VALUE or PATTERN=VALUE of the main setting (ratio, …); the first match counts."""
    # Settings of single codecs. None stands for the default in `CODEC_ROWS`, which is in parentheses.
    ratio: Ratio | None = None
    """Fraction of the elements to send: topk, dgc (0.1), randomk (0.5); at most: threshold (0.05), average (0.1)."""
    rank: Count | None = None
    """Rank of powersgd's approximation of each matrix (2)."""
    bits: Annotated[int, Among((2, 4, 8, 16, 32))] | None = None
    """Bits per element of qsgd (4)."""
    block: Annotated[int, AtLeast(8), AtMost(100_000)] | None = None
    """Elements that share one scale: int8 (256), int4 (64), qsgd (128)."""
    threshold: NonNegative | None = None
    """Magnitude from which threshold sends an element (0.001)."""
    decay: Fraction | None = None
    """Weight of the past in average's moving average of the threshold (0.9)."""
    momentum: Fraction | None = None
    """Momentum that dgc applies before it selects (0.5); use it instead of the optimizer's."""
    clip: NonNegative | None = None
    """dgc: largest norm of a parameter's gradient (0); terngrad: in standard deviations (2.5). 0: no clipping."""
    vote: bool | None = None
    """sign, onebit: the majority of the workers decides each sign (false: decoded gradients are summed)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        takes = ("candidates",) if self.codec == AUTO else tuple(_row(self.codec).settings)
        for setting in self._given():
            if setting not in takes:
                taken = ", ".join(f"--exchange.{each}" for each in takes)
                raise ConfigError(
                    f"codec {self.codec} has no setting '{setting}'",
                    f"It takes {taken}." if taken else f"Remove --exchange.{setting}.",
                )
        for encoding in self.encodings():
            self._check_feedback(encoding)

    def encodings(self) -> list[Encoding]:
        """All that parameters may get."""
        if self.codec == AUTO:
            return [each for config in self.alternatives().values() for each in config.encodings()]
        return [self._complete(self.codec, {}), *(self._rule(item)[1] for item in self.layers)]

    @property
    def codecs(self) -> set[str]:
        """The codecs that it names: its own, the layers' and the candidates'."""
        return {self.codec, *(encoding.codec for encoding in self.encodings())}

    def alternatives(self) -> "dict[str, CompressedConfig]":
        """What auto chooses from: each candidate as an exchange of its own, in order."""
        found: dict[str, CompressedConfig] = {}
        for item in self.candidates or CANDIDATES:
            codec, colon, value = item.partition(":")
            if item in found or codec not in CODEC_ROWS:
                why = f"candidate '{item}' is listed twice" if item in found else _unknown_codec(codec)
                raise ConfigError(why, "Write for example --exchange.candidates none,int8,topk:0.01.")
            given = _main_setting(codec, value, item) if colon else {}
            found[item] = replace(self, codec=codec, candidates=(), **given)
        return found

    def encoding_of(self, param: str) -> Encoding:
        """How the gradient of a parameter is encoded: by the first pattern that matches its name, or as all others."""
        for item in self.layers:
            pattern, encoding = self._rule(item)
            if fnmatchcase(param, pattern):
                return encoding
        return self._complete(self.codec, {})

    def check_layers(self, params: Collection[str]) -> None:
        """Refuse a rule for layers that matches no parameter."""
        for item in self.layers:
            pattern, _ = self._rule(item)
            if not any(fnmatchcase(param, pattern) for param in params):
                raise ConfigError(
                    f"no parameter matches '{pattern}' of --exchange.layers '{item}'",
                    f"Parameters: {shortened(', '.join(params))}.",
                )

    @property
    def is_neutral(self) -> bool:
        """Whether everything is sent, as it is: all ratios are 1, and nothing else changes a gradient."""
        return all(
            codec == "none"
            or (
                settings.get("ratio") == 1.0 and not any(map(settings.get, ("threshold", "clip", "momentum")))
            )
            for codec, settings, _ in self.encodings()
        )

    def _given(self) -> dict[str, Any]:
        settings = {name: getattr(self, name) for name in _ALL if getattr(self, name) is not None}
        return settings | ({"candidates": self.candidates} if self.candidates else {})

    def _complete(self, codec: str, given: dict[str, Any]) -> Encoding:
        """An encoding with all its settings: a rule's, the run's if it is the run's codec, defaults."""
        settings = {**_row(codec).settings, **(self._given() if codec == self.codec else {}), **given}
        is_biased = _row(codec).needs_feedback or "vote" in settings
        default = is_biased and not settings.get("vote")
        chosen = default if self.feedback is None else self.feedback
        return Encoding(codec, settings, chosen and codec != "none")

    def _check_feedback(self, encoding: Encoding) -> None:
        if self.feedback and encoding.settings.get("vote"):
            raise ConfigError(
                f"codec {encoding.codec} cannot use feedback with a majority vote: a vote is not the sum of the codes",
                "Use --exchange.vote false, or --exchange.feedback false.",
            )
        if self.feedback is False and encoding.codec == "dgc":
            raise ConfigError(
                "codec dgc accumulates what it does not send: it cannot run without feedback",
                "Use --exchange compressed:topk, or remove --exchange.feedback.",
            )

    def _rule(self, item: str) -> tuple[str, Encoding]:
        """The pattern of a rule for layers, and the encoding of what matches it."""
        pattern, equals, choice = (part.strip() for part in item.partition("="))
        if not equals or not pattern or not choice:
            raise ConfigError(
                f"expected a rule PATTERN=CODEC, PATTERN=CODEC:VALUE or PATTERN=VALUE, got '{item}'",
                "Write for example --exchange.layers 'fc1.*=0.001;*.bias=none'.",
            )
        codec, colon, value = choice.partition(":")
        if not colon and codec not in CODEC_ROWS:
            codec, value = self.codec, choice
            if isinstance(parse(float | bool, value), str):
                raise ConfigError(_unknown_codec(choice))
        if codec not in CODEC_ROWS:
            raise ConfigError(_unknown_codec(codec))
        given = _main_setting(codec, value, item) if value else {}
        return pattern, self._complete(codec, given)


def _row(codec: str) -> CodecRow:
    """A codec of the user's own takes no settings here, and gets feedback: it need not be unbiased."""
    return CodecRow(needs_feedback=True) if is_own(codec) else CODEC_ROWS[codec]


def _main_setting(codec: str, value: str, item: str) -> dict[str, Any]:
    """The main setting of a codec, from the text of a rule or a candidate."""
    main = next(iter(_row(codec).settings), None)
    if main is None:
        raise ConfigError(f"codec {codec} takes no value, but '{item}' gives it {value}")
    kind = kinds_of(CompressedConfig)[main]
    return {main: check(kind, parse(kind, value), f"{main} of '{item}'")}


def _unknown_codec(name: str) -> str:
    return unknown("codec", name, tuple(CODEC_ROWS))


_ALL = tuple(dict.fromkeys(setting for row in CODEC_ROWS.values() for setting in row.settings))
