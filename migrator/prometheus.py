"""Samples, and the text format in which Prometheus reads them."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Final, Literal

import msgspec
from prometheus_client import generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector, CollectorRegistry

from migrator.telemetry import visible

PREFIX: Final = "migrator_"
TOTAL: Final = "_total"
"""The end of a counter's name: the library adds it."""


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """A metric, with what tells it from others of its name."""

    name: str
    """Without ``PREFIX``; units at the end, as Prometheus has them."""
    help: str
    value: float
    kind: Literal["gauge", "counter"] = "gauge"
    labels: Mapping[str, str] = msgspec.field(default_factory=dict)


class _Samples(Collector):
    def __init__(self, samples: Iterable[Sample]) -> None:
        self._samples = sorted(samples, key=lambda one: (one.name, sorted(one.labels.items())))

    def collect(self) -> Iterator[Metric]:
        for name, same in groupby(self._samples, lambda one: PREFIX + one.name):
            listed = list(same)
            metric = Metric(name.removesuffix(TOTAL), listed[0].help, listed[0].kind)
            for one in listed:
                metric.add_sample(name, {label: _visible(value) for label, value in one.labels.items()}, one.value)
            yield metric


def prometheus_text(samples: Iterable[Sample]) -> str:
    """Return samples in the text format, version 0.0.4: by name, then by labels."""
    registry = CollectorRegistry()
    registry.register(_Samples(samples))
    return generate_latest(registry).decode()


def _visible(value: str) -> str:
    # line ends have a spelling of their own in this format
    return "\n".join(map(visible, value.split("\n")))
