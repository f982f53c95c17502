"""The full squares of the four state machines, written out as the specification words them.

They are the oracle of every test of a transition. The product's own tables (``migrator.states``) are compared with
them, and never used in place of them: a faulty edge would then be expected by its own test.
"""

ALLOWED = {
    "schedule": "pending>scheduled pending>running pending>cancelled scheduled>running scheduled>paused"
    " scheduled>cancelled scheduled>pending paused>scheduled paused>cancelled paused>pending running>completed"
    " running>failed running>scheduled running>cancelled completed>scheduled failed>pending",
    "run": "planning>queued planning>cancelled planning>error queued>running queued>cancelled queued>error"
    " queued>skipped running>completed running>error running>cancelled running>timeout",
    "graph job": "pending>queued pending>running pending>failed pending>canceled queued>running queued>failed"
    " queued>canceled running>completed running>failed running>canceled",
    "policy job": "pending>dispatching dispatching>submitted submitted>completed queued>running running>succeeded"
    " dispatching>pending replay_pending>queued"
    " pending>failed dispatching>failed submitted>failed queued>failed running>failed replay_pending>failed"
    " pending>canceled dispatching>canceled submitted>canceled queued>canceled running>canceled"
    " replay_pending>canceled",
}
"""Machine to its edges."""

STATES = {
    "schedule": ("pending", "scheduled", "running", "paused", "completed", "failed", "cancelled"),
    "run": ("planning", "queued", "running", "completed", "error", "cancelled", "timeout", "skipped"),
    "graph job": ("pending", "queued", "running", "completed", "failed", "canceled"),
    "policy job": (
        "pending",
        "dispatching",
        "submitted",
        "queued",
        "running",
        "succeeded",
        "completed",
        "failed",
        "canceled",
        "replay_pending",
    ),
}
"""Machine to all of its states."""

TERMINAL = {
    "schedule": {"cancelled"},
    "run": {"completed", "error", "cancelled", "timeout", "skipped"},
    "graph job": {"completed", "failed", "canceled"},
    "policy job": {"succeeded", "completed", "failed", "canceled"},
}
"""Machine to the states that nothing follows."""


def is_allowed(machine: str, state: str, follower: str) -> bool:
    """Whether the specification lets one state follow another."""
    return f"{state}>{follower}" in ALLOWED[machine].split()
