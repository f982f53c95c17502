"""Contested keys, settled outside the tail, and the references to the rows that changed hands."""

from migrator.connections.mongo import committed_time
from migrator.pipeline.closing import settle_duplicates
from migrator.pipeline.model import Plan
from migrator.pipeline.plan import plan_context
from migrator.pipeline.sessions import Sessions
from migrator.pipeline.tail.apply import Applier


def settle(sessions: Sessions, plan: Plan) -> None:
    """Give every contested key to the first document, then read again whatever refers to a row that changed hands."""
    changed = settle_duplicates(sessions, plan, plan_context(plan))
    if not changed:
        return
    applier = Applier(sessions, plan)
    try:
        with sessions.target.transaction():
            applier.reader.not_before(committed_time(sessions.source))
            named = applier.referring(changed)
            if named:
                applier.apply(named)
    finally:
        applier.reader.close()
