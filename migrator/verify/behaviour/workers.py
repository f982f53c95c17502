"""Scenarios of area workers: heartbeats; a silent worker is declared dead once, and its runs go to another once."""

from migrator.records import WorkerRecord
from migrator.verify.behaviour.harness import DONE, HOUR, LEASE, MINUTE, SECOND, Harness
from migrator.verify.behaviour.scenarios import Observations


def heartbeats(harness: Harness, observed: Observations) -> None:
    """Register, beat, fall silent, be declared dead, come back too late."""
    workers = harness.store.workers
    alive, dead, stopped = harness.new_id(), harness.new_id(), harness.new_id()
    for identity in (alive, dead, stopped):
        workers.register(
            WorkerRecord(id=identity, tenant_id="*", kind="worker", status="active", capacity=3), harness.now
        )
    observed.expect_true("registered", {alive, dead, stopped} == {one.id for one in workers.list()})
    processes = {identity: harness.worker_for(harness.executor, worker_id=identity) for identity in (alive, dead)}
    harness.executor.outcome = lambda _claim: None
    kept = harness.every(MINUTE, name="kept", max_retries=2)
    processes[alive].fire()
    harness.advance(MINUTE)
    processes[alive].fire()
    processes[alive].claim()
    lost = harness.every(MINUTE, name="lost", max_retries=2, retry_delay=0 * SECOND)
    harness.advance(30 * SECOND)
    harness.facade.trigger_now(lost.id, now=harness.now)
    processes[dead].claim()
    observed.expect_true("stopped", workers.stop(stopped, harness.now))
    for _ in range(3):
        harness.advance(30 * SECOND)
        observed.expect_true("a live one's heartbeat is heard", workers.heartbeat(alive, harness.now))
    observed.expect("the silent one is dead", [dead], [*workers.declare_dead(MINUTE, harness.now)])
    observed.expect("it is declared dead once", [], [*workers.declare_dead(MINUTE, harness.now)])
    observed.expect_false("it is told at its next heartbeat", workers.heartbeat(dead, harness.now))
    observed.expect_false("so is the stopped one", workers.heartbeat(stopped, harness.now))
    sweeper = harness.sweeper()
    observed.expect("its run is reclaimed, and runs again", (1, 1), sweeper.reclaim())
    observed.expect("once", (0, 0), sweeper.reclaim())
    states = harness.run_states(kept, "queued", "running")
    observed.expect("a live worker's run is not touched", ["running"], states)
    observed.expect("the lost run failed, its repetition waits", ["error", "queued"], harness.run_states(lost))
    claims = {claim.run.schedule_id: claim for claim in harness.executor.taken}
    processes[dead].ended(claims[lost.id], DONE)
    processes[dead].collect()
    observed.expect("what the dead one says changes nothing", ["error", "queued"], harness.run_states(lost))
    harness.executor.outcome = lambda _claim: DONE
    processes[alive].claim()
    processes[alive].collect()
    observed.expect("another one does the repetition", ["error", "completed"], harness.run_states(lost))
    processes[alive].ended(claims[kept.id], DONE)
    processes[alive].collect()
    observed.expect("the live one ends its own", "completed", harness.runs(kept)[0].state)
    observed.expect(
        "the dead are forgotten", [True, True, False], [workers.remove(one) for one in (dead, stopped, alive)]
    )


def leases(harness: Harness, observed: Observations) -> None:
    """Keep a run by renewing its lease; lose it by not renewing: it is repeated where its schedule allows it."""
    harness.executor.outcome = lambda _claim: None
    for retries in (0, 1):
        job = harness.every(MINUTE, name=f"retries {retries}", max_retries=retries, timeout=10 * HOUR)
        slot = harness.advance(MINUTE)
        harness.run_once()
        for _ in range(3):
            harness.advance(LEASE * 3 / 4)
            harness.worker.renew()
            observed.expect("renewed: it is not reclaimed", (0, 0), harness.sweeper().reclaim())
        observed.expect("renewed: it is running", ["running"], harness.run_states(job))
        harness.advance(LEASE - SECOND)
        observed.expect("its lease is not over: it is not reclaimed", (0, 0), harness.sweeper().reclaim())
        harness.advance(SECOND)
        observed.expect("not renewed: it is reclaimed", (1, retries), harness.sweeper().reclaim())
        observed.expect("once", (0, 0), harness.sweeper().reclaim())
        lost = harness.runs(job)[0]
        why = "lost: its worker did not renew the lease"
        observed.expect("it says why", (slot, "error", why), (lost.scheduled_at, lost.state, lost.error))
        execution = harness.facade.get_execution(lost.id, now=harness.now)
        lines = [] if execution is None else [line.message for line in execution.logs]
        observed.expect_true("so does its log", f"error: {why}" in lines)
        harness.executor.end(DONE)
        observed.expect("its late end counts no more", (0, lost), (harness.worker.collect(), harness.runs(job)[0]))
        harness.facade.unschedule(job.id, now=harness.now)
