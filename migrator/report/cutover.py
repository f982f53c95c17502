"""The report of a cutover: its sentences, and its figures as bars."""

from datetime import datetime
from typing import Final

import msgspec

from migrator.report import wording
from migrator.report.charts import CHART_HEIGHT, CHART_WIDTH, MIN_WIDTH
from migrator.result import NOT_DUE, CutoverRecord, Measurement, Result

METRICS: Final = "success.metrics"
LAG: Final = "success.lag"
LISTED_SAMPLES: Final = 12
"""Of the lag, in the table below its chart: the largest of each part of the time."""


class ValueBar(msgspec.Struct, frozen=True):
    """A value with its name, as a bar; ``kind`` is its class."""

    label: str
    text: str
    width: int
    kind: str = "plain"


class LagChart(msgspec.Struct, frozen=True, kw_only=True):
    """The lag of the tail over time, as a line; ``mark`` is where the fence closed."""

    text: str
    """All of it in one sentence."""
    points: str
    mark: int | None
    first: str
    last: str
    most: str
    rows: tuple[tuple[str, str], ...]
    """Some of the samples: time, lag."""


class MetricBars(msgspec.Struct, frozen=True):
    """A key metric at each moment."""

    name: str
    bars: tuple[ValueBar, ...]


def rests_on(result: Result, record: CutoverRecord) -> list[str]:
    """Return the reasons for the verdict, each a sentence."""
    made = [one for one in result.evidence.checks if one.can_fail and one.outcome.status not in NOT_DUE]
    passed = sum(one.outcome.status == "passed" for one in made)
    criteria = wording.counted(len(made), "success criterion", "success criteria")
    sentences = [f"{passed} of {criteria} {'is' if passed == 1 else 'are'} met."] if made else []
    if record.who:
        sentences.append(f"The cutover was called by {record.who}{f', because {record.why}' if record.why else ''}.")
    if record.state == "rolled-back":
        sentences += [
            f"The rollback was called by {one.who}{f', because {one.why}' if one.why else ''}."
            for one in result.evidence.decisions
            if one.kind == "rollback" and one.at >= record.began_at
        ]
    if record.pause_ms is not None:
        planned = "" if record.pause_planned_ms is None else f"; about {seconds(record.pause_planned_ms)} were planned"
        allowed = seconds(record.pause_limit_ms)
        sentences.append(
            f"Writers were stopped for {seconds(record.pause_ms)}{planned}, and at most {allowed} were allowed."
        )
    if record.compared is not None:
        documents = wording.counted(record.compared, "changed document")
        verb = "was" if record.compared == 1 else "were"
        sentences.append(f"Under the fence {documents} {verb} compared with the rows, and no difference was found.")
    if record.lag_before_s is not None:
        sentences.append(
            f"Before the fence the tail was {wording.counted(record.lag_before_s, 'second')} behind MongoDB."
        )
    verb = "was" if len(record.waived) == 1 else "were"
    waived = wording.counted(len(record.waived), "thing")
    sentences.append(f"{waived} {verb} waived, listed below." if record.waived else "Nothing was waived.")
    if record.rollback_until:
        until = wording.moment(record.rollback_until)
        sentences.append(f"A rollback is possible until {until}, and then until cutover finish.")
    if record.lost:
        sentences.append(f"{wording.counted(sum(record.lost.values()), 'value')} could not be written to MongoDB.")
    return sentences


def terminal_lines(result: Result, record: CutoverRecord, folder: str) -> list[str]:
    """Return the last lines of the command that writes the report."""
    lines = [wording.verdict_sentence(result), *(f"  {name}: {words}" for name, words in wording.identity(result))]
    lines += [f"  {one}" for one in rests_on(result, record)]
    for check in result.evidence.checks:
        if check.outcome.status in ("failed", "unverified"):
            why = check.outcome.reason or "; ".join(line for one in check.findings for line in one.details)
            lines.append(f"  {wording.STATUS_WORDS[check.outcome.status]}: {check.title} ({why})")
    return [*lines, f"report: {folder}/report.html"]


def seconds(value: int) -> str:
    """Write milliseconds as seconds."""
    return f"{value / 1000:.2f} s"


def pause_bars(record: CutoverRecord) -> list[ValueBar]:
    """Return the write pause beside the plan and the limit; nothing if it is not known."""
    if record.pause_ms is None:
        return []
    values = [("planned", record.pause_planned_ms), ("taken", record.pause_ms), ("allowed", record.pause_limit_ms)]
    most = max(value for _, value in values if value is not None) or 1
    return [
        ValueBar(
            label,
            seconds(value),
            max(MIN_WIDTH, value * CHART_WIDTH // most),
            "apart" if label == "taken" and value > record.pause_limit_ms else "clean" if label == "taken" else "none",
        )
        for label, value in values
        if value is not None
    ]


def lag_chart(result: Result, record: CutoverRecord) -> LagChart | None:
    """Draw the lag of the tail before the cutover; None if none is recorded."""
    lag = next((one for one in result.run.measurements if one.check == LAG and one.points), None)
    if lag is None:
        return None
    samples = [(datetime.fromisoformat(when), value) for when, value in lag.points]
    fence = next((datetime.fromisoformat(one.began_at) for one in record.steps if one.step == "fence"), None)
    first = samples[0][0]
    last = samples[-1][0] if fence is None else max(samples[-1][0], fence)
    length, most = max((last - first).total_seconds(), 1.0), max(lag.value, 1.0)

    def place(moment: datetime) -> int:
        return round((moment - first).total_seconds() / length * CHART_WIDTH)

    drawn = [(place(when), CHART_HEIGHT - round(value / most * CHART_HEIGHT)) for when, value in samples]
    closed = "" if fence is None else f"; the fence closed at {fence:%H:%M:%S}"
    size = -(-len(samples) // LISTED_SAMPLES)
    parts = [samples[at : at + size] for at in range(0, len(samples), size)]
    return LagChart(
        text=f"From {first:%Y-%m-%d %H:%M:%S} to {last:%Y-%m-%d %H:%M:%S} UTC the lag was at most"
        f" {wording.counted(round(lag.value), 'second')}, and {wording.counted(round(samples[-1][1]), 'second')} at"
        f" the last sample{closed}.",
        points=" ".join(f"{x},{y}" for x, y in drawn),
        mark=None if fence is None or fence < first else min(place(fence), CHART_WIDTH - 4),
        first=f"{first:%H:%M:%S}",
        last=f"{last:%H:%M:%S}",
        most=f"{wording.number(round(lag.value))} s",
        rows=tuple(
            (f"{when:%Y-%m-%d %H:%M:%S}", f"{wording.number(round(value))} s")
            for when, value in (max(part, key=lambda one: one[1]) for part in parts)
        ),
    )


def not_measured(result: Result) -> str:
    """Return why no key metrics are recorded; empty: they are."""
    return next((one.outcome.reason for one in result.evidence.checks if one.id == METRICS and one.outcome.reason), "")


def metric_bars(result: Result) -> list[MetricBars]:
    """Return each key metric before the cutover, at it and now, to the same scale."""
    return [_bars(one) for one in result.run.measurements if one.check == METRICS and one.points]


def _bars(measurement: Measurement) -> MetricBars:
    most = max(value for _, value in measurement.points) or 1.0
    return MetricBars(
        measurement.name,
        tuple(
            ValueBar(when, wording.decimal(value), max(MIN_WIDTH, round(value / most * CHART_WIDTH)))
            for when, value in measurement.points
        ),
    )
