"""The bits of every command's exit status: the one place that says what they mean (docs/exit-status.md)."""

from typing import Final, Literal, TypeAlias

DONE: Final = 0
"""Done, and everything the command checks is equal."""
DIFFERENT: Final = 1
"""A difference, or a failed check."""
USAGE: Final = 2
"""The call or the configuration; never the result of a check."""
UNVERIFIED: Final = 4
"""Something was left unverified, unfinished or interrupted."""
QUARANTINE: Final = 8
"""Documents are in quarantine, or would be."""
TOOL_FAILED: Final = 16
"""A server could not be reached, or the tool failed."""

MEANINGS: Final = {
    DIFFERENT: "a difference or a failed check",
    USAGE: "usage or configuration",
    UNVERIFIED: "something was left unverified",
    QUARANTINE: "documents are in quarantine",
    TOOL_FAILED: "a server could not be reached or the tool failed",
}


Allowance: TypeAlias = int | Literal["all"]
"""How many documents may be in quarantine without the bit: at most so many, or any number."""


def beyond(count: int, allowed: Allowance) -> bool:
    """Whether so many documents in quarantine are more than are allowed."""
    return allowed != "all" and count > allowed


def mask(
    *,
    different: object = False,
    unverified: object = False,
    quarantine: object = False,
    tool_failed: object = False,
) -> int:
    """Return the bit mask of what is true; any value counts by its truth."""
    return (
        (DIFFERENT if different else 0)
        | (UNVERIFIED if unverified else 0)
        | (QUARANTINE if quarantine else 0)
        | (TOOL_FAILED if tool_failed else 0)
    )


def meaning(status: int) -> str:
    """Return a bit mask in words; of 0, that everything checked is equal."""
    said = [words for bit, words in MEANINGS.items() if status & bit]
    return "; ".join(said) or "everything that was checked is equal"
