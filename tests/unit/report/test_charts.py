"""Drawings: true to their numbers, never too thin to be seen, and with everything in words next to them."""

from migrator.report.charts import CHART_WIDTH, LISTED_ROWS, chart, gauge, grid
from migrator.result import FAILED, PASSED, Measurement, Panel, StateMachine, Transition, not_applicable
from tests.fabricated_behaviour import STATES, machine


def panel(kind: str, columns: tuple[str, ...], *rows: tuple[str | int | None, ...], total: int = 0) -> Panel:
    return Panel(kind=kind, title="t", columns=columns, rows=rows, rows_total=total or len(rows))  # type: ignore[arg-type]


def test_spans_lie_in_their_lane_and_in_order() -> None:
    drawn = chart(panel("spans", ("who", "from", "to", "fence"), ("a", 0, 10, 1), ("b", 10, 20, 2), ("a", 20, 40, 3)))
    assert [row.label for row in drawn.bars] == ["a", "b"]
    assert [row.text for row in drawn.bars] == ["2 spans", "10 to 20"]
    first, last = drawn.bars[0].bars
    assert first.start == 0
    assert last.start + last.width <= CHART_WIDTH
    assert last.label == "20 to 40 3"


def test_what_cannot_be_drawn_is_a_table() -> None:
    for one in (
        panel("spans", ("a", "b"), ("x", 1)),
        panel("spans", ("a", "b", "c"), ("x", 1, "y")),
        panel("spans", ("a", "from", "to")),
        panel("table", ("a", "b", "c"), ("x", 1, 2)),
    ):
        assert chart(one).kind == "table"


def test_a_span_of_no_length_is_seen() -> None:
    assert chart(panel("spans", ("a", "from", "to"), ("x", 5, 5))).bars[0].bars[0].width >= 6


def test_long_exhibits_are_cut_and_say_so() -> None:
    rows = tuple((str(number), number, number + 1) for number in range(5_000))
    for kind in ("table", "spans"):
        drawn = chart(panel(kind, ("a", "from", "to"), *rows, total=9_000))
        assert max(len(drawn.rows), len(drawn.bars)) == LISTED_ROWS
        assert drawn.more == 9_000 - LISTED_ROWS


def test_a_measurement_stands_beside_its_ceiling() -> None:
    over = gauge(Measurement(check="p.a", name="p95", unit="ms", value=50.0, ceiling=25.0))
    assert over.over
    assert over.mark is not None
    assert over.width > over.mark
    assert (over.value, over.ceiling) == ("50.0 ms", "25.0 ms")
    free = gauge(Measurement(check="p.a", name="n", unit="per second", value=1_840.2, points=(("a", 1.0), ("b", 2.0))))
    assert (free.mark, free.ceiling, free.over, free.value) == (None, "", False, "1,840 per second")
    assert len(free.points.split()) == 2
    assert gauge(Measurement(check="p.a", name="n", unit="s", value=0.0)).width >= 0


def test_every_pair_of_states_has_its_square() -> None:
    found = grid(machine())
    steps = {(before, after): step for before, row in found.rows for after, step in zip(found.states, row, strict=True)}
    assert len(steps) == len(STATES) ** 2
    assert steps["queued", "running"].status == "passed"
    assert steps["running", "queued"].status == "refused"
    assert steps["completed", "queued"].status == "failed"
    assert "was not refused" in steps["completed", "queued"].text
    assert steps["error", "planning"].status == "absent"
    assert steps["queued", "queued"].status == "itself"
    assert (found.allowed, found.forbidden, found.untried, len(found.failed)) == (8, 21, 1, 1)


def test_a_pair_that_was_not_exercised_is_not_green() -> None:
    edges = (
        Transition(before="a", after="b", allowed=True, exercised=0, outcome=PASSED),
        Transition(before="b", after="a", allowed=True, exercised=0, outcome=not_applicable("no such call")),
        Transition(before="a", after="c", allowed=True, exercised=1, outcome=FAILED),
    )
    found = grid(StateMachine(name="m", states=("a", "b"), transitions=edges))
    assert found.states == ("a", "b", "c")
    assert found.rows[0][1][1].status == "absent"
    assert found.rows[1][1][0].text == "b to a: allowed, not tried; no such call"
    assert found.rows[0][1][2].text == "a to c: allowed, and was refused; tried 1 time"
