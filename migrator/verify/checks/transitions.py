"""Area transitions: the state machines, every pair tried on the backend."""

from migrator.verify.behaviour import machines
from migrator.verify.behaviour.behave import Script, behave
from migrator.verify.check import CheckSpec

_ONCE = ("Every pair is tried once, on a row of its own, by one writer; contention is area locking.",)

CHECKS = (
    CheckSpec(
        id="transitions.schedule",
        title="A schedule takes the steps that its machine allows, and no other",
        requirements=("0-R3",),
        limits=_ONCE,
        run=behave(Script("schedules, pair by pair", machines.schedule), tables=("schedules",)),
    ),
    CheckSpec(
        id="transitions.run",
        title="A run takes the steps that its machine allows, and no other",
        requirements=("0-T2.4.2", "0-T2.11.2", "0-R3"),
        limits=_ONCE,
        run=behave(Script("runs, pair by pair", machines.run), tables=("runs",)),
    ),
    CheckSpec(
        id="transitions.jobs",
        title="Graph and policy jobs take the steps that their machines allow, and no other",
        requirements=("1-G3", "0-R3"),
        limits=_ONCE,
        run=behave(
            Script("graph jobs, pair by pair", machines.graph),
            Script("policy jobs, pair by pair", machines.policy),
            tables=("graph_jobs", "graph_job_events", "policy_jobs"),
        ),
    ),
)
