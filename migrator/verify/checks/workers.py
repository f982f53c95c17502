"""Area workers: heartbeats, death, reclaiming."""

from migrator.verify.behaviour import workers
from migrator.verify.behaviour.behave import Script, behave
from migrator.verify.check import CheckSpec

CHECKS = (
    CheckSpec(
        id="workers.lives",
        title="A silent worker's runs go to another one, once; a live one's are not touched",
        requirements=("0-T2.9.3",),
        limits=("Silence is shown by a given clock; processes that are killed are shown in locking.",),
        run=behave(
            Script("heartbeats", workers.lives),
            Script("leases", workers.leases),
            tables=("workers", "runs"),
        ),
    ),
)
