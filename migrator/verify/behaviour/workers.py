"""Scripts of area workers: who beats lives, who is silent is dead once, and its runs go to another one once."""

from migrator.records import WorkerRecord
from migrator.verify.behaviour.harness import DONE, MINUTE, SECOND, START, Harness
from migrator.verify.behaviour.scenarios import Observations


def heartbeats(ground: Harness, notes: Observations) -> None:
    """Register, beat, fall silent, be declared dead, come back too late."""
    workers = ground.store.workers
    alive, silent, stopped = ground.new_id(), ground.new_id(), ground.new_id()
    for identity in (alive, silent, stopped):
        workers.register(
            WorkerRecord(id=identity, tenant_id="*", kind="worker", status="active", capacity=3), ground.now
        )
    notes.holds("registered", {alive, silent, stopped} == {one.id for one in workers.list()})
    hands = {identity: ground.desk_of(ground.hand, worker=identity) for identity in (alive, silent)}
    ground.hand.outcome = lambda _claim: None
    kept = ground.every(MINUTE, name="kept", max_retries=2)
    hands[alive].fire()
    ground.later(MINUTE)
    hands[alive].fire()
    hands[alive].claim()
    lost = ground.every(MINUTE, name="lost", max_retries=2, retry_delay_ms=0)
    ground.later(30 * SECOND)
    ground.facade.trigger_now(lost.id, now=ground.now)
    hands[silent].claim()
    notes.holds("stopped", workers.stop(stopped, ground.now))
    for _ in range(3):
        ground.later(30 * SECOND)
        notes.holds("a live one's heartbeat is heard", workers.heartbeat(alive, ground.now))
    notes.expect("the silent one is dead", [silent], [*workers.declare_dead(MINUTE, ground.now)])
    notes.expect("it is declared dead once", [], [*workers.declare_dead(MINUTE, ground.now)])
    notes.fails("it is told at its next heartbeat", workers.heartbeat(silent, ground.now))
    notes.fails("so is the stopped one", workers.heartbeat(stopped, ground.now))
    broom = ground.broom()
    notes.expect("its run is reclaimed, and runs again", (1, 1), broom.reclaim())
    notes.expect("once", (0, 0), broom.reclaim())
    states = [run.state for run in ground.runs(kept, "queued", "running")]
    notes.expect("a live worker's run is not touched", ["running"], states)
    notes.expect(
        "the lost run failed, its repetition waits", ["error", "queued"], [run.state for run in ground.runs(lost)]
    )
    claims = {claim.run.schedule_id: claim for claim in ground.hand.taken}
    hands[silent].ended(claims[lost.id], DONE)
    hands[silent].collect()
    notes.expect(
        "what the dead one says changes nothing", ["error", "queued"], [run.state for run in ground.runs(lost)]
    )
    ground.hand.outcome = lambda _claim: DONE
    hands[alive].claim()
    hands[alive].collect()
    notes.expect("another one does the repetition", ["error", "completed"], [run.state for run in ground.runs(lost)])
    hands[alive].ended(claims[kept.id], DONE)
    hands[alive].collect()
    notes.expect("the live one ends its own", "completed", ground.runs(kept)[0].state)
    notes.expect(
        "the dead are forgotten", [True, True, False], [workers.remove(one) for one in (silent, stopped, alive)]
    )


def leases(ground: Harness, notes: Observations) -> None:
    """Keep a run by renewing its lease; lose it by not renewing."""
    job = ground.every(MINUTE, max_retries=0, timeout_ms=10 * 3_600_000)
    ground.hand.outcome = lambda _claim: None
    ground.later(MINUTE)
    ground.turn()
    for _ in range(3):
        ground.later(90 * MINUTE)
        ground.desk.renew()
        notes.expect("renewed: it is not reclaimed", (0, 0), ground.broom().reclaim())
    ground.later(121 * MINUTE)
    notes.expect("not renewed: it is reclaimed", (1, 0), ground.broom().reclaim())
    ground.hand.end(ground.hand.taken[0], DONE)
    notes.expect("its late end counts no more", (0, "error"), (ground.desk.collect(), ground.runs(job)[0].state))
    notes.same("the run", ground.runs(job)[0].scheduled_at == START + MINUTE)
