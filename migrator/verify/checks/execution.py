"""Area execution: from due to done."""

from migrator.verify.behaviour import execution
from migrator.verify.behaviour.behave import Script, behave
from migrator.verify.check import CheckSpec

_TABLES = ("schedules", "runs")

CHECKS = (
    CheckSpec(
        id="execution.whole",
        title="What is due is run by its handler, and run, log, summary and audit trail tell of it",
        requirements=("0-T2.11.2", "0-T2.11.5"),
        run=behave(
            Script("from due to done", execution.whole),
            tables=("schedules", "runs", "execution_logs", "run_summaries", "audit"),
        ),
    ),
    CheckSpec(
        id="execution.endings",
        title="Failure, timeout and cancelling end a run as they must, and what fails is repeated",
        requirements=("0-T2.11.2", "0-T2.11.5"),
        run=behave(
            Script("failure and repetition", execution.retries),
            Script("timeout", execution.timeouts),
            Script("cancelling", execution.cancelled),
            tables=_TABLES,
        ),
    ),
    CheckSpec(
        id="execution.single",
        title="Every slot has one run, one worker, one effective end and a number of its own",
        requirements=("0-T2.11.5",),
        run=behave(
            Script("limits", execution.limits),
            Script("at the same time", execution.doubled),
            Script("numbers", execution.numbers),
            tables=_TABLES,
        ),
    ),
    CheckSpec(
        id="execution.seven",
        title="The seven things to look at after a switch are as they must be",
        requirements=("4-V1", "4-V2", "4-V3", "4-V4", "4-V5", "4-V6", "4-V7"),
        limits=("They are tried on schedules of a scratch tenant; meaning.* looks at the real ones.",),
        run=behave(Script("after a switch", execution.seven), tables=_TABLES),
    ),
)
