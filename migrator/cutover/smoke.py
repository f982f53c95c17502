"""The smoke after the switch: a new process opens the store as the configuration file says by now, and works once.

In a scratch tenant, which no scheduler serves and which is removed afterwards (after a kill by the next one): a
schedule is written and read, fires, is claimed and finished. MongoDB's driver must not even be loaded.
"""

import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec

from migrator import signals
from migrator.config import load_settings
from migrator.errors import MigratorError
from migrator.records.schedule import Schedule
from migrator.records.trigger import Trigger
from migrator.scheduler.firing import plan
from migrator.store import open_scheduler_store
from migrator.store.ports import SchedulerStore
from migrator.store.scratch import PARTS, fresh, lent
from migrator.store.work import Finish

LIMIT_S = 120
DRIVER = "pymongo"


class SmokeError(MigratorError):
    """The store that the configuration names does not work."""


def smoke(config: Path) -> dict[str, Any]:
    """Run the smoke in a process of its own; return what it did. Raises ``SmokeError``."""
    command = [sys.executable, "-m", "migrator.cutover.smoke", str(config)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)  # noqa: S603 - this very program
    except subprocess.TimeoutExpired:
        raise SmokeError(f"the store does not answer within {LIMIT_S} s") from None
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip() or "it said nothing").splitlines()[-1]
        raise SmokeError(f"the store that {config} names does not work: {said}")
    found: dict[str, Any] = msgspec.json.decode(done.stdout)
    return found


def work(config: str) -> dict[str, Any]:
    """Write, read, fire, claim and finish once; return the backend and the counts."""
    store = open_scheduler_store(load_settings(config))
    base = fresh()
    try:
        with lent(store, base, "migrator cutover"):
            done = _tried(store, base + PARTS[0])
    finally:
        store.close()
    if done != {"backend": "postgres", "read": 1, "fired": 1, "claimed": 1, "finished": 1, "other_driver": 0}:
        raise SmokeError(f"something was left out: {done}")
    return done


def _tried(store: SchedulerStore, tenant: str) -> dict[str, Any]:
    now = store.now()
    schedule = Schedule(id=uuid4(), tenant_id=tenant, name="smoke", status="scheduled", enabled=True)
    trigger = Trigger(
        id=uuid4(),
        tenant_id=tenant,
        schedule_id=schedule.id,
        kind="one_time",
        run_at=now,
        enabled=True,
        next_fire_at=now,
    )
    with store.session(tenant) as session:
        session.schedules.upsert(schedule)
        session.triggers.upsert(trigger)
    signals.passed(f"{signals.CUTOVER}smoke.written")
    with store.session(tenant) as session:
        written = session.schedules.get(schedule.id)
    fired = store.queue.fire_due(plan, 10, tenants=[tenant])
    claims = store.queue.claim(str(uuid4()), 10, timedelta(minutes=1), tenants=[tenant])
    ends = [
        Finish(
            run_id=one.run.id,
            tenant_id=tenant,
            worker_id=one.run.worker_id or "",
            fence=one.fence,
            state="completed",
        )
        for one in claims
    ]
    finished = store.queue.finish(ends) if ends else ()
    return {
        "backend": store.backend,
        "read": int(written is not None),
        "fired": len(fired),
        "claimed": len(claims),
        "finished": len(finished),
        "other_driver": int(DRIVER in sys.modules),
    }


if __name__ == "__main__":
    try:
        sys.stdout.write(msgspec.json.encode(work(sys.argv[1])).decode())
    except MigratorError as error:
        sys.exit(str(error))
