"""A whole result: its two halves together, the verdict, and the exit status."""

from typing import Final

from migrator.exit_status import DIFFERENT, QUARANTINE, TOOL_FAILED, UNVERIFIED, mask
from migrator.result.parts import Check, Evidence, Part, Requirement, Run, Signature, Status, Verdict

FORMAT: Final = 3
"""Version of ``result.json``; it rises when a reader of the old one would misread the new one."""


STATUSES: Final[tuple[Status, ...]] = ("passed", "failed", "unverified", "not-asked-for", "not-applicable")
BESIDE: Final[tuple[Status, ...]] = ("not-asked-for", "not-applicable")
"""Of checks that this run was not to make."""


class Result(Part, frozen=True, kw_only=True):
    """A verification: what was found, and under which circumstances."""

    format: int = FORMAT
    evidence: Evidence
    run: Run
    digest: str
    """``sha256:`` and 64 hexadecimal digits, over ``evidence``."""
    signature: Signature | None = None

    def statuses(self) -> dict[Status, int]:
        """Count the checks by how they ended."""
        counts: dict[Status, int] = dict.fromkeys(STATUSES, 0)
        for check in self.evidence.checks:
            counts[check.outcome.status] += 1
        return counts

    def judged(self) -> tuple[int, int]:
        """Return how many checks that can fail have passed, and how many of them this run was to make."""
        wanted = [one for one in self.evidence.checks if one.judges and one.outcome.status not in BESIDE]
        return sum(one.outcome.status == "passed" for one in wanted), len(wanted)

    def recorded(self) -> int:
        """Return how many checks cannot fail, and recorded what they saw."""
        return sum(not one.judges and one.outcome.status == "passed" for one in self.evidence.checks)

    def exit_status(self) -> int:
        """Return the bit mask: 1 failed, 4 unverified, 8 quarantine, 16 the tool failed; 0 when none holds.

        Settled findings, warnings outside ``fail_on``, failures in ``accepted`` areas, and what is not applicable set
        no bit.
        """
        checks = self.evidence.checks
        skipped = any(area.standing == "skipped" for area in self.evidence.areas)
        return mask(
            different=any(map(self.counts_as_failed, checks)),
            unverified=skipped or not checks or any(map(is_unverified, checks)),
            quarantine=self.evidence.quarantined,
            tool_failed=any(check.broke for check in checks),
        )

    def verdict(self) -> Verdict:
        """Return the worst thing that can be said, in one word: what is wrong before what is not known."""
        status = self.exit_status()
        if status & DIFFERENT:
            return "different"
        if status & TOOL_FAILED:
            return "tool-failed"
        if status & UNVERIFIED:
            return "unverified"
        if self.accepted_failures():
            return "accepted"
        return "equal-but-quarantine" if status & QUARANTINE else "equal"

    def requirement_status(self, requirement: Requirement) -> Status:
        """Return what this run shows of a requirement: passed only where a check that can fail has passed.

        What was not asked for, or does not apply, does not count beside a check that was made; a check that this run
        left out leaves the requirement not verified.
        """
        made = {check.id: check for check in self.evidence.checks}
        own = [made[name] for name in requirement.checks if name in made]
        statuses = [one.outcome.status for one in own if one.judges]
        asked = {area.name for area in self.evidence.areas if area.standing in BESIDE}
        left = any(name not in made and name.partition(".")[0] not in asked for name in requirement.checks)
        if "failed" in statuses:
            return "failed"
        if left or "unverified" in statuses or any(map(is_unverified, own)):
            return "unverified"
        if "passed" in statuses:
            return "passed"
        return "not-applicable" if "not-applicable" in statuses else "not-asked-for"

    def counts_as_failed(self, check: Check) -> bool:
        """Tell whether a check sets bit 1: it failed and that is not accepted, or it warned where that fails."""
        policy = self.evidence.policy
        if check.outcome.status == "failed":
            return check.area not in policy.accepted
        return check.area in policy.fail_on and self.warns(check)

    def warns(self, check: Check) -> bool:
        """Tell whether a check has a warning, or a measurement above its ceiling."""
        slow = any(one.check == check.id and one.is_over for one in self.run.measurements)
        return slow or any(one.severity == "warning" for one in check.tallies)

    def accepted_failures(self) -> list[Check]:
        """Return the checks that failed in an area whose failures were declared acceptable."""
        accepted = self.evidence.policy.accepted
        return [one for one in self.evidence.checks if one.outcome.status == "failed" and one.area in accepted]


def is_unverified(check: Check) -> bool:
    """Tell whether a check, or what it says of one table, could not be made."""
    return "unverified" in (check.outcome.status, *(cell.outcome.status for cell in check.cells))
