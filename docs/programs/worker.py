"""A worker process: it executes the runs of every schedule whose handler is ``greet``, until SIGTERM or Ctrl-C."""

import signal

from migrator import Context, Registry, Worker, load_settings

registry = Registry()


@registry.handler("greet")
def greet(*, name: str, context: Context) -> dict[str, str]:
    """Take the members of the schedule's payload as keywords; what is returned is the run's result, as JSON."""
    context.log(f"attempt {context.attempt} for tenant {context.tenant_id}")
    return {"greeting": f"Hello, {name}!"}


worker = Worker(load_settings(), registry, reload=load_settings)  # reload: it goes on in the other database
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, lambda *_: worker.stop())
counts = worker.run()
print(f"completed {counts.completed}, failed {counts.failed}")
