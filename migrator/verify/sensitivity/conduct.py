"""Planted faults of behaviour: no stored row shows them, the checks that drive the scheduler do."""

from typing import Final

from migrator.verify.behaviour.craft import Craft
from migrator.verify.sensitivity import faulty
from migrator.verify.sensitivity.model import Corruption, Place, Plant, Undo


def _nothing(place: Place) -> Undo | None:
    del place
    return None


def _altered(*statements: str) -> Plant:
    """Change the scratch database; no row is counted."""

    def plant(place: Place) -> None:
        for statement in statements:
            place.target.execute(statement.encode())

    return plant


def _fault(
    name: str,
    craft: Craft,
    *yes: str,
    fault: str = "",
    plant: Plant = _nothing,
) -> Corruption:
    return Corruption(
        name=name,
        how="behaviour",
        plant=plant,
        craft=craft,
        yes=yes,
        faults=(fault,) if fault else (),
        areas=tuple(dict.fromkeys(check.partition(".")[0] for check in yes)),
    )


_FORGET: Final = """
CREATE FUNCTION scheduler.forget_numbers() RETURNS trigger LANGUAGE plpgsql AS
$$BEGIN
    IF NEW.counters -> 'lastRunNumber' = OLD.counters -> 'lastRunNumber' THEN
        NEW.counters := NEW.counters || jsonb_build_object('lastRunNumber', coalesce(
            (SELECT max(run_number) FROM scheduler.runs WHERE schedule_id = NEW.schedule_id), 0));
    END IF;
    RETURN NEW;
END$$
"""
_FORGETFUL: Final = """
CREATE TRIGGER forget_numbers BEFORE UPDATE ON scheduler.run_summaries
FOR EACH ROW EXECUTE FUNCTION scheduler.forget_numbers()
"""
_LEAK: Final = "CREATE POLICY leak ON scheduler.runs FOR SELECT USING (true)"

CONDUCT: Final[tuple[Corruption, ...]] = (
    _fault("one fire too many", Craft(store=faulty.once_more), "triggers.others", fault="max_executions+1"),
    _fault(
        "a single fire is completed before it ran",
        Craft(store=faulty.completed_at_once),
        "triggers.others",
        fault="one_time marked completed before running",
    ),
    _fault(
        "what is resumed fires at once",
        Craft(service=faulty.FiresOnResume),
        "triggers.steady",
        fault="resume fires immediately / resets phase unasked",
    ),
    _fault(
        "a change of something else moves the next fire",
        Craft(service=faulty.PushesOnUpdate),
        "triggers.steady",
        fault="next fire pushed by unrelated update",
    ),
    _fault(
        "each start of a process puts intervals off",
        Craft(sweeper=faulty.Restarting),
        "triggers.steady",
        fault="job starved by re-scheduling",
    ),
    _fault(
        "what is disabled fires on",
        Craft(service=faulty.NeverOff),
        "triggers.steady",
        "execution.seven",
        fault="disabled job keeps firing",
    ),
    _fault(
        "a late failure overwrites a cancelled run",
        Craft(store=faulty.last_writer_wins),
        "execution.endings",
        fault="cancel overwritten by late failure",
    ),
    _fault(
        "a repetition that nobody begins",
        Craft(store=faulty.retry_never_available),
        "execution.endings",
        fault="retry never re-dispatched",
    ),
    _fault(
        "a single fire that failed is not repeated",
        Craft(store=faulty.no_retry_of_slots),
        "execution.endings",
        fault="one-off retry lost",
    ),
    _fault(
        "a slot runs twice",
        Craft(store=faulty.another_name),
        "execution.single",
        fault="duplicate (trigger, slot) run",
    ),
    _fault(
        "numbers of runs begin anew after retention",
        Craft(),
        "execution.single",
        fault="duplicate execution_number",
        plant=_altered(_FORGET, _FORGETFUL),
    ),
    _fault(
        "a lock is released by who lost it",
        Craft(store=faulty.generous),
        "locking.fences",
        fault="release of another owner's lock",
    ),
    _fault(
        "a live holder's lock is cleared",
        Craft(store=faulty.impatient),
        "locking.fences",
        fault="lock cleared under a live worker",
    ),
    _fault(
        "two lead at once",
        Craft(leadership=faulty.SelfAppointed),
        "locking.fences",
        "locking.processes",
        fault="two leaders",
    ),
    _fault(
        "a leader writes on when its term is over",
        Craft(leadership=faulty.Undeposed),
        "locking.fences",
        fault="reaped leader continues",
    ),
    _fault(
        "success has two definitions",
        Craft(service=faulty.AnotherRate),
        "crud.history",
        fault="success rate by two definitions",
    ),
    _fault("a live worker is declared dead", Craft(store=faulty.hasty), "workers.lives"),
    _fault(
        "a forbidden step is answered as done",
        Craft(store=faulty.yielding),
        "transitions.schedule",
        "transitions.run",
        "transitions.jobs",
    ),
    _fault("a page lacks its last schedule", Craft(service=faulty.OneShort), "crud.schedules"),
    _fault("a cron line fires an hour late", Craft(store=faulty.an_hour_late), "triggers.cron"),
    _fault("the log of a run is lost", Craft(store=faulty.speechless), "execution.whole"),
    _fault("another tenant's schedule is shown", Craft(service=faulty.OpenDoor), "isolation.calls"),
    _fault("a policy shows runs to every tenant", Craft(), "isolation.rows", plant=_altered(_LEAK)),
)
