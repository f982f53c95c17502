"""Drawings: true to their numbers, never too thin to be seen, and with everything in words next to them."""

from migrator.report.charts import CHART_HEIGHT, CHART_WIDTH, LISTED_ROWS, chart, gauge, grid, kinds_of, stacked
from migrator.result import FAILED, PASSED, Measurement, Panel, StateMachine, Transition, not_applicable
from tests.fabricated_behaviour import STATES, machine


def panel(kind: str, columns: tuple[str, ...], *rows: tuple[str | int | None, ...], total: int = 0) -> Panel:
    return Panel(kind=kind, title="t", columns=columns, rows=rows, rows_total=total or len(rows))  # type: ignore[arg-type]


def test_bars_share_one_scale_and_add_up() -> None:
    drawn = chart(panel("bars", ("class", "caught", "missed", "by"), ("a", 90, 10, "rows"), ("b", 50, 0, "extra")))
    first, second = drawn.bars
    assert [one.kind for one in first.bars] == ["clean", "apart"]
    assert sum(one.width for one in first.bars) <= CHART_WIDTH
    assert second.bars[0].width < first.bars[0].width
    assert first.bars[1].start == first.bars[0].width
    assert first.text == "90 caught, 10 missed; rows"
    assert second.text == "50 caught; extra"
    assert drawn.legend == (("clean", "caught"), ("apart", "missed"))


def test_what_is_there_is_seen_and_what_is_not_is_not() -> None:
    cut = stacked([("a", "x", 1_000_000), ("b", "y", 1), ("c", "z", 0)], 1_000_001)
    assert [one.label for one in cut] == ["x", "y"]
    assert cut[1].width >= 6
    assert cut[-1].start + cut[-1].width <= CHART_WIDTH


def test_no_two_columns_look_alike_by_their_name() -> None:
    assert kinds_of(["caught", "missed"]) == ["clean", "apart"]
    assert len(set(kinds_of(["PostgreSQL", "MongoDB", "memory"]))) == 3
    assert len(kinds_of([str(number) for number in range(20)])) == 20


def test_lines_go_from_the_first_to_the_last_point() -> None:
    drawn = chart(panel("series", ("n", "a"), ("1", 0), ("2", 50), ("4", None), ("8", 100)))
    assert drawn.lines[0].points == f"0,{CHART_HEIGHT} 333,{CHART_HEIGHT // 2} 1000,0"
    assert (drawn.first, drawn.last, drawn.top, drawn.lines[0].last) == ("1", "8", "100", 100)


def test_spans_lie_in_their_lane_and_in_order() -> None:
    drawn = chart(panel("spans", ("who", "from", "to", "fence"), ("a", 0, 10, 1), ("b", 10, 20, 2), ("a", 20, 40, 3)))
    assert [row.label for row in drawn.bars] == ["a", "b"]
    assert [row.text for row in drawn.bars] == ["2 spans", "1 span"]
    first, last = drawn.bars[0].bars
    assert first.start == 0
    assert last.start + last.width <= CHART_WIDTH
    assert last.label == "20 to 40 3"


def test_what_cannot_be_drawn_is_a_table() -> None:
    for one in (
        panel("bars", ("a", "b"), ("x", "y")),
        panel("series", ("a", "b"), ("x", 1)),
        panel("spans", ("a", "b"), ("x", 1)),
        panel("bars", ("a", "b")),
        panel("table", ("a", "b"), ("x", 1)),
    ):
        assert chart(one).kind == "table"


def test_zeros_draw_nothing_and_break_nothing() -> None:
    assert chart(panel("bars", ("a", "n"), ("x", 0))).bars[0].bars == ()
    assert (
        chart(panel("series", ("a", "n"), ("x", 0), ("y", 0))).lines[0].points
        == f"0,{CHART_HEIGHT} 1000,{CHART_HEIGHT}"
    )
    assert chart(panel("spans", ("a", "from", "to"), ("x", 5, 5))).bars[0].bars[0].width >= 6


def test_long_exhibits_are_cut_and_say_so() -> None:
    rows = tuple((str(number), number) for number in range(5_000))
    for kind in ("table", "bars", "series"):
        drawn = chart(panel(kind, ("a", "n"), *rows, total=9_000))
        assert max(len(drawn.rows), len(drawn.bars)) == LISTED_ROWS
        assert drawn.more == 9_000 - LISTED_ROWS


def test_a_measurement_stands_beside_its_ceiling() -> None:
    over = gauge(Measurement(check="p.a", name="p95", unit="ms", value=50.0, ceiling=25.0))
    assert over.over
    assert over.mark is not None
    assert over.width > over.mark
    assert (over.value, over.ceiling) == ("50.0 ms", "25.0 ms")
    free = gauge(Measurement(check="p.a", name="n", unit="per second", value=1_840.2, points=(("a", 1.0), ("b", 2.0))))
    assert (free.mark, free.ceiling, free.over, free.value) == (None, "", False, "1\u202f840 per second")
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
