"""The action ``create_job``: a handler that makes a schedule of its own, which fires at once.

Its schedule's payload is ``{"action_type": "create_job", "action_config": {…}}``, as ``on_event`` writes it. The config
names the job's ``handler_name``, and may say ``name``, ``description``, ``payload``, ``priority``, ``max_retries``,
``timeout_ms`` and ``queue``. The job's metadata carry what came with the event.
"""

from collections.abc import Callable, Mapping
from typing import Any
from uuid import uuid5

from migrator.errors import UsageError
from migrator.scheduler.handlers import Context, Function
from migrator.scheduler.requests import OnceRequest
from migrator.scheduler.service import SchedulerService

_MAY_NAME = frozenset({"name", "payload", "priority", "max_retries", "timeout_ms", "queue", "description"})


def job_creator(service_of: Callable[[str], SchedulerService]) -> Function:
    """Return the function to register under the names of such handlers; ``service_of`` gives a tenant's facade.

    The id of the job is that of its run: a run that is delivered twice makes one job. It raises ``UsageError`` for a
    config that is none, which makes the run fail.
    """

    def create_job(*, action_config: Mapping[str, Any], context: Context, action_type: str = "create_job") -> str:
        if action_type != "create_job":
            raise UsageError("the action is not create_job")
        handler = action_config.get("handler_name")
        if not isinstance(handler, str):
            raise UsageError("the config of create_job names no handler_name")
        service = service_of(context.tenant_id)
        identity = uuid5(context.run_id, "job")
        if service.get(identity) is None:
            named = {name: value for name, value in action_config.items() if name in _MAY_NAME}
            named.setdefault("name", f"{handler}:{context.run_id}")
            service.schedule_once(
                OnceRequest(
                    id=identity,
                    handler_name=handler,
                    created_by="create_job",
                    metadata=dict(context.asked) or None,
                    **named,
                )
            )
        return str(identity)

    return create_job
