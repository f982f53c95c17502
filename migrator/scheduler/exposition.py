"""Figures as Prometheus reads them, and thresholds on them."""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal

import msgspec

from migrator.errors import UsageError
from migrator.telemetry import visible

PREFIX: Final = "migrator_"


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """A figure, with what tells it from others of its name."""

    name: str
    """Without ``PREFIX``; units at the end, as Prometheus has them."""
    help: str
    value: float
    kind: Literal["gauge", "counter"] = "gauge"
    labels: Mapping[str, str] = msgspec.field(default_factory=dict)


class Threshold(msgspec.Struct, frozen=True, kw_only=True):
    """A bound on every sample of a name."""

    name: str
    bound: Literal["max", "min"]
    value: float

    def crossed_by(self, sample: Sample) -> bool:
        """Tell whether a sample lies beyond the bound; the bound itself does not."""
        if sample.name != self.name:
            return False
        return sample.value > self.value if self.bound == "max" else sample.value < self.value


def text(samples: Iterable[Sample]) -> str:
    """Return samples in the text format, version 0.0.4: by name, then by labels."""
    lines: list[str] = []
    told = ""
    for sample in sorted(samples, key=lambda one: (one.name, sorted(one.labels.items()))):
        name = PREFIX + sample.name
        if name != told:
            told = name
            lines += [f"# HELP {name} {sample.help}", f"# TYPE {name} {sample.kind}"]
        labels = ",".join(f'{label}="{_escaped(value)}"' for label, value in sorted(sample.labels.items()))
        lines.append(f"{name}{{{labels}}} {_number(sample.value)}" if labels else f"{name} {_number(sample.value)}")
    return "\n".join(lines) + "\n"


def parse(bound: Literal["max", "min"], given: str) -> Threshold:
    """Return the threshold of ``NAME=VALUE``; raises ``UsageError``."""
    name, _, value = given.partition("=")
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if math.isnan(number):  # nothing is beyond it
        raise UsageError(f"--{bound}: expected NAME=NUMBER")
    return Threshold(name=name.removeprefix(PREFIX), bound=bound, value=number)


def crossed(samples: Sequence[Sample], thresholds: Sequence[Threshold], known: Collection[str] = ()) -> Iterator[str]:
    """Yield a sentence per sample beyond a threshold.

    Raises ``UsageError`` for a name that there is not. ``known`` are names of figures that may be absent now (a rate
    of nothing): they cross no threshold then.
    """
    names = {sample.name for sample in samples}.union(known)
    for threshold in thresholds:
        if threshold.name not in names:
            raise UsageError(f"no figure {threshold.name}; there are: {', '.join(sorted(names))}")
        for sample in samples:
            if threshold.crossed_by(sample):
                labels = ", ".join(f"{label} {value}" for label, value in sorted(sample.labels.items()))
                where = f" ({labels})" if labels else ""
                yield (f"{sample.name}{where} is {_number(sample.value)}, {threshold.bound} {_number(threshold.value)}")


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)


def _escaped(value: str) -> str:
    # line ends have a spelling of their own; "\\u001b" is none that readers of this format know
    lines = (visible(line).replace("\\", "\\\\").replace('"', '\\"') for line in value.split("\n"))
    return "\\n".join(lines)
