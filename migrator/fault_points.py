"""Named points in production code at which a test may inject a fault; silent by default.

A fault test names a listener in ``MIGRATOR_FAULT_POINTS`` as ``module:function``. It is called with the name of
each point that is reached, in every process of the run, and may end that process. If the variable is not set, as in
production, a point costs one comparison.
"""

import importlib
import os
from collections.abc import Callable

BEFORE_PLAN = "before_plan"
AFTER_PLAN_STORED = "after_plan_stored"
AFTER_CHUNKS_SUBMITTED = "after_chunks_submitted"
AFTER_CHUNK_BEGUN = "after_chunk_begun"
AFTER_LOAD_BEFORE_COMMIT = "after_load_before_commit"
AFTER_COMMIT = "after_commit"
AFTER_DEFERRED_DROPPED = "after_deferred_dropped"
BEFORE_DEFERRED_RESTORED = "before_deferred_restored"
AFTER_DEFERRED_BUILT = "after_deferred_built"
AFTER_LINKS_FILLED = "after_links_filled"
AFTER_LINKS_CLOSED = "after_links_closed"
AFTER_CONTEST_SETTLED = "after_contest_settled"
AFTER_DUPLICATES_SETTLED = "after_duplicates_settled"
AFTER_DERIVED_WRITTEN = "after_derived_written"
AFTER_STATISTICS_TAKEN = "after_statistics_taken"
AFTER_DEFERRED_RESTORED = "after_deferred_restored"
TAIL_BATCH_TAKEN = "tail_batch_taken"
TAIL_APPLIED = "tail_applied"
TAIL_BEFORE_COMMIT = "tail_before_commit"
TAIL_AFTER_COMMIT = "tail_after_commit"
WORKERS_ANSWERED = "workers_answered"
WORKER_BEFORE_COMMIT = "worker_before_commit"
WORKER_AFTER_COMMIT = "worker_after_commit"
BEFORE_REVERSE_WRITE = "before_reverse_write"
AFTER_REVERSE_WRITE = "after_reverse_write"
AFTER_REVERSE_DROP = "after_reverse_drop"
THROTTLED = "throttled"
CUTOVER_POSTPONED = "cutover_postponed"
PAUSED = "paused"
RETENTION_ARCHIVED = "retention_archived"
CUTOVER_PREFIX = "cutover."
"""Each step of a cutover or rollback passes ``cutover.<step>.begun`` and ``cutover.<step>.done``, its last moment."""


def _listener() -> Callable[[str], None] | None:
    named = os.environ.get("MIGRATOR_FAULT_POINTS")
    if not named:
        return None
    module, _, function = named.partition(":")
    listener: Callable[[str], None] = getattr(importlib.import_module(module), function)
    return listener


_listen = _listener()


def reach(point: str) -> None:
    """Tell the listener, if there is one, that ``point`` was passed."""
    if _listen is not None:
        _listen(point)
