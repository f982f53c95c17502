"""The smoke test after the cutover: a new process opens the store that the configuration file names, and uses it once.

It works in a scratch tenant, which no scheduler serves. The tenant is removed afterwards, or by the next smoke test
after a kill. A schedule is written and read, fires, is claimed and finished. The driver of MongoDB must not even be
loaded.
"""

import subprocess
import sys
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec

from migrator import fault_points
from migrator.config import load_settings
from migrator.errors import MigratorError, RefusedError, UnreachableError
from migrator.records import Schedule, Trigger
from migrator.scheduler.firing import plan
from migrator.scratch import PARTS, new_scratch_tenant, scratch_tenant
from migrator.store import open_readable_store, open_scheduler_store
from migrator.store.protocols import Store
from migrator.store.queue import Finish

LIMIT_S = 120
DRIVER = "pymongo"
_ON_COPY = "on-copy"


class SmokeError(MigratorError):
    """The store that the configuration names does not work."""


def smoke_on_copy(config: Path) -> dict[str, Any]:
    """Run the smoke test as ``smoke`` does, before a cutover: on a copy, which no other process may write to."""
    return smoke(config, on_copy=True)


def smoke(config: Path, *, on_copy: bool = False) -> dict[str, Any]:
    """Run the smoke test in a process of its own; return what it did.

    Raises ``SmokeError`` if the store does not work, ``RefusedError`` if the user lacks a right, and
    ``UnreachableError`` if the server does not answer.
    """
    command = [sys.executable, "-m", "migrator.cutover.smoke", str(config), *[_ON_COPY] * on_copy]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)  # noqa: S603 - this very program
    except subprocess.TimeoutExpired:
        raise SmokeError(f"the store does not answer within {LIMIT_S} s") from None
    if done.returncode != 0:
        raise _error(config, (done.stderr.strip() or done.stdout.strip() or "it said nothing").splitlines()[-1])
    found: dict[str, Any] = msgspec.json.decode(done.stdout)
    return found


def _error(config: Path, output: str) -> MigratorError:
    """Return the error for the last line of the process: its own error (``_Refusal``), or a fault."""
    try:
        refusal = msgspec.json.decode(output, type=_Refusal)
    except msgspec.MsgspecError:
        return SmokeError(f"the store that {config} names does not work: {output}")
    if refusal.grant:
        return RefusedError(refusal.words, grant=refusal.grant)
    if refusal.unreachable:
        return UnreachableError(refusal.words)
    return SmokeError(f"the store that {config} names does not work: {refusal.words}")


class _Refusal(msgspec.Struct):
    """An error of the process: a missing right, or an unreachable server, which say nothing about the store."""

    words: str
    grant: str = ""
    unreachable: bool = False


def use_store(config: str, mode: str = "") -> dict[str, Any]:
    """Write, read, fire, claim and finish once; return the backend and the counts."""
    base, settings = new_scratch_tenant(), load_settings(config)
    with (
        closing(open_readable_store(settings) if mode == _ON_COPY else open_scheduler_store(settings)) as store,
        scratch_tenant(store, base, "migrator cutover"),
    ):
        done = _use_tenant(store, base + PARTS[0])
    if done != {"backend": "postgres", "read": 1, "fired": 1, "claimed": 1, "finished": 1, "other_driver": 0}:
        raise SmokeError(f"something was left out: {done}")
    return done


def _use_tenant(store: Store, tenant: str) -> dict[str, Any]:
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
    fault_points.reach(f"{fault_points.CUTOVER_PREFIX}smoke.written")
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
        sys.stdout.write(msgspec.json.encode(use_store(*sys.argv[1:])).decode())
    except MigratorError as refused:
        gone = isinstance(refused, UnreachableError)
        told = _Refusal(words=refused.sentence, grant=refused.grant, unreachable=gone)
        sys.exit(msgspec.json.encode(told).decode())
