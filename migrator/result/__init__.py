"""What a verification found: the one result model, which every rendering, exit status and signature is made from.

A ``Result`` has two halves. ``evidence`` is deterministic: two runs over the same data give the same bytes, and the
digest is taken over it. ``run`` holds what varies: times, durations, ports, versions of servers, measurements. No
document values stand in either, keys and paths only.

``result.json`` is the result with its keys sorted; the digest is SHA-256 over the evidence as JSON with its keys sorted
and no white space, so that ``jq -cSj .evidence result.json | sha256sum`` gives it too. Evidence holds no floats.
"""

from migrator.result.parts import (
    FAILED,
    PASSED,
    Area,
    Cell,
    Check,
    Decision,
    Edge,
    Evidence,
    Exhibit,
    Finding,
    Loss,
    Machine,
    Measurement,
    Moved,
    Outcome,
    Outside,
    Part,
    Policy,
    Quarantined,
    Requirement,
    Run,
    Severity,
    Side,
    Signature,
    Standing,
    Status,
    Tally,
    Verdict,
    not_applicable,
    not_asked_for,
    unverified,
)
from migrator.result.stored import (
    build,
    decode,
    digest,
    encode,
    signed_text,
)
from migrator.result.whole import (
    BESIDE,
    FORMAT,
    Result,
    is_unverified,
)

__all__ = [
    "BESIDE",
    "FAILED",
    "FORMAT",
    "PASSED",
    "Area",
    "Cell",
    "Check",
    "Decision",
    "Edge",
    "Evidence",
    "Exhibit",
    "Finding",
    "Loss",
    "Machine",
    "Measurement",
    "Moved",
    "Outcome",
    "Outside",
    "Part",
    "Policy",
    "Quarantined",
    "Requirement",
    "Result",
    "Run",
    "Severity",
    "Side",
    "Signature",
    "Standing",
    "Status",
    "Tally",
    "Verdict",
    "build",
    "decode",
    "digest",
    "encode",
    "is_unverified",
    "not_applicable",
    "not_asked_for",
    "signed_text",
    "unverified",
]
