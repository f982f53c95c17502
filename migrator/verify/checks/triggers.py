"""Area triggers: when schedules fire."""

from migrator.verify.behaviour import firing
from migrator.verify.behaviour.behave import Script, behave
from migrator.verify.check import CheckSpec

_TABLES = ("schedules", "triggers", "runs")

CHECKS = (
    CheckSpec(
        id="triggers.cron",
        title="Cron lines fire when a walk through every minute says, across the coming changes of the clock",
        requirements=("0-T2.11.3", "0-R2", "4-V2"),
        limits=("Lines of Debian's dialect, of which schedules born here are; others are compared by meaning.fires.",),
        run=behave(
            Script("cron across changes of the clock", firing.coming),
            Script("far fires", firing.leap),
            tables=_TABLES,
        ),
    ),
    CheckSpec(
        id="triggers.others",
        title="Intervals, single fires and events fire when they must, as often as they may",
        requirements=("0-T2.11.3", "0-R2"),
        run=behave(
            Script("intervals", firing.intervals),
            Script("bounds", firing.bounds),
            Script("one time", firing.once),
            Script("events", firing.events),
            tables=_TABLES,
        ),
    ),
    CheckSpec(
        id="triggers.steady",
        title="Nothing but its timing moves a next fire, and what is switched off fires no more",
        requirements=("0-T2.11.3", "0-R2", "4-V6"),
        run=behave(
            Script("overdue", firing.overdue),
            Script("pause and resume", firing.resumed),
            Script("other changes", firing.unmoved),
            Script("restarts", firing.starved),
            Script("switched off", firing.switched_off),
            tables=_TABLES,
        ),
    ),
)
