"""Create a schedule, trigger it, claim and finish its run, and read its history.

The settings come from config.toml in the working directory, or from variables such as MIGRATOR_POSTGRES__DSN.
"""

from migrator import Scheduler, ScheduleRequest, load_settings, open_store, prepare

with open_store(load_settings()) as store:
    prepare(store)  # creates the indexes on MongoDB; nothing on PostgreSQL
    scheduler = Scheduler(store, "acme")

    request = ScheduleRequest(
        name="nightly copy",
        handler_name="copy",
        queue="copies",
        cron="30 2 * * *",
        timezone="Europe/Berlin",
        payload={"table": "orders"},
        created_by="ann",
    )
    job = scheduler.schedule(request)
    print(f"created {job.schedule.name}")

    run = scheduler.trigger_now(job.id, by="ann")
    print(f"run {run.run_number} is {run.state}")

    # A Worker does this for handlers in Python. An application that executes runs by itself claims and finishes them.
    for claim in scheduler.claim("program-1", queues=["copies"]):
        print(f"run {claim.run.run_number} is {claim.run.state}, claimed by {claim.run.worker_id}")
        finished = scheduler.finish(claim, result={"rows": 3})
        print(f"finished {int(finished)} run")

    for execution in scheduler.history(job.id, limit=5).executions:
        print(
            f"history: run {execution.run.run_number} {execution.run.state}, asked for by {execution.run.triggered_by}"
        )
