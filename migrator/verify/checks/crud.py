"""Area crud: schedules and runs through the facade, judged by what was asked for."""

from migrator.verify.behaviour import crud
from migrator.verify.behaviour.behave import Script, behave
from migrator.verify.check import CheckSpec

CHECKS = (
    CheckSpec(
        id="crud.schedules",
        title="A schedule that is made, changed, listed or removed is so",
        requirements=("0-T2.11.1", "4-V1"),
        limits=("Filters and orders are tried one at a time, on 18 schedules.",),
        run=behave(
            Script("a life of each kind", crud.life),
            Script("lists", crud.lists),
            tables=("schedules", "triggers"),
        ),
    ),
    CheckSpec(
        id="crud.history",
        title="A history holds every run once, and figures count them by one definition",
        requirements=("0-T2.11.1", "4-V4"),
        run=behave(Script("history and figures", crud.history), tables=("runs", "execution_logs")),
    ),
)
