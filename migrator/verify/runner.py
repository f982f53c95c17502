"""Runs the checks one after the other, collects their results into one, and records the verification."""

import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import msgspec
from psycopg.types.json import Jsonb

from migrator import __version__, files
from migrator.config import Settings
from migrator.connections.mongo import translate_errors as translate_source_errors
from migrator.connections.postgres import not_migrated, target_connection, translate_errors
from migrator.errors import DeniedError, MigratorError, RefusedError, UnreachableError, UsageError
from migrator.log import logger
from migrator.parity.shown_values import values_of
from migrator.report import integrity, renderer, run_folder, wording
from migrator.report.areas import AREAS, AreaSpec, require_known
from migrator.result import (
    Area,
    AreaStatus,
    Check,
    Decision,
    Evidence,
    Requirement,
    Result,
    Run,
    build,
    not_applicable,
    unverified,
)
from migrator.schema import decisions
from migrator.telemetry import logging_into
from migrator.verify import environment, fresh_start
from migrator.verify.check import CheckContext, CheckResult, CheckSpec
from migrator.verify.registry import EVERY_CHECK
from migrator.verify.request import Request
from migrator.verify.requirements import OUT_OF_SCOPE, requirements

COMMAND = "verify"
LOG = "checks.log"
"""File beside the report: what the schedulers log that checks drive, and the rehearsals of cutover and rollback."""


def record_run(settings: Settings, result: Result, folder: Path) -> bool:
    """Record a result in ``migration.tool_runs``; tell whether that went well.

    A target that cannot be written is no reason to lose the result: the files hold all of it.
    """
    detail = {
        "policy": msgspec.to_builtins(result.evidence.policy),
        "decisions": msgspec.to_builtins(result.evidence.decisions),
        "verdict": result.verdict(),
        "digest": result.digest,
        "report": str(folder.absolute()),
    }
    try:
        with target_connection(settings) as target:
            target.execute(
                "INSERT INTO migration.tool_runs (id, command, started_at, finished_at, exit_status, tool_version,"
                " host, settings) VALUES (%s, %s, %s, clock_timestamp(), %s, %s, %s, %s)",
                (
                    uuid4(),
                    COMMAND,
                    datetime.fromisoformat(result.run.started_at),
                    result.exit_status(),
                    __version__,
                    socket.gethostname(),
                    Jsonb(detail),
                ),
            )
    except MigratorError as error:
        logger().warning("verify.not_recorded", why=str(error))
        return False
    return True


CHECKS = tuple(spec.id for spec in EVERY_CHECK)
"""Ids of all checks, in their order."""
NOT_ASKED_FOR = "made only with --sensitivity"
NOT_IN_THIS_VERSION = "not checked by this version of the tool"


def planned_checks(request: Request, checks: Sequence[CheckSpec] = EVERY_CHECK) -> list[CheckSpec]:
    """Return the checks that a request makes, in their order; asks no server.

    Raises ``UsageError`` for a check that does not exist.
    """
    require_known(request.only, "--only", CHECKS)
    return [spec for spec in checks if request.wants(spec.id)]


def verify(
    settings: Settings,
    request: Request,
    *,
    checks: Sequence[CheckSpec] | None = None,
    say: Callable[[str], None] = lambda _line: None,
) -> Result:
    """Run every check that was asked for; ``say`` gets one line per check, and more of one that takes long.

    A check that ends in an error of a server or of the tool is *unverified*, and the others go on. Raises
    ``UsageError`` for an unknown area, and ``ConfigurationError`` for settings that are missing.
    """
    began = datetime.now(UTC)
    context = CheckContext(settings, request, say=say)
    specs = EVERY_CHECK if checks is None else checks
    wanted = planned_checks(request, specs)
    done: list[tuple[CheckSpec, CheckResult, bool]] = []
    durations: dict[str, int] = {}
    for number, spec in enumerate(wanted, 1):
        result, errored, took = _run_check(spec, context)
        done.append((spec, result, errored))
        durations[spec.id] = took
        say(f"verify: {number}/{len(wanted)} {spec.id}: {_progress(result, took, began)}")
    evidence = Evidence(
        basis=environment.basis(context),
        policy=request.policy(CHECKS),
        decisions=_decisions(context),
        areas=_areas(specs, context),
        tables=context.tables,
        checks=tuple(_check(spec, found, settings, errored=errored) for spec, found, errored in done),
        requirements=_requirements(specs, context),
        out_of_scope=() if settings.target.is_native else OUT_OF_SCOPE,
        collections=tuple(one for _, found, _ in done for one in found.collections),
        quarantine=tuple(one for _, found, _ in done for one in found.quarantine),
        losses=tuple(one for _, found, _ in done for one in found.losses),
        state_machines=tuple(one for _, found, _ in done for one in found.state_machines),
        left_out=tuple(one for _, found, _ in done for one in found.left_out),
    )
    sides = environment.sides(context)
    run = Run(
        name=request.run_name or began.strftime("%Y%m%d-%H%M%S"),
        started_at=began.isoformat(timespec="seconds"),
        finished_at=datetime.now(UTC).isoformat(timespec="seconds"),
        durations_ms={**context.steps, **durations},
        sides=sides,
        installation=environment.installation(context),
        cutover=environment.cutover_state(context) or msgspec.UNSET,
        environment=environment.surroundings(*sides),
        measurements=tuple(one for _, found, _ in done for one in found.measurements),
        panels={spec.id: found.varying for spec, found, _ in done if found.varying},
    )
    return build(evidence, run)


def _requirements(specs: Sequence[CheckSpec], context: CheckContext) -> tuple[Requirement, ...]:
    """Return the requirements; of a native target those that a check of it shows: the others are of the scheduler."""
    if not context.settings.target.is_native:
        return requirements(specs)
    own = [spec for spec in specs if not spec.needs_scheduler]
    return tuple(one for one in requirements(own) if one.checks)


def _decisions(context: CheckContext) -> tuple[Decision, ...]:
    """Return the decisions of people that are recorded in the target: that of a fresh start, and all others."""
    start = context.request.fresh_start
    decided = () if start is None else (start.decision,)
    with suppress(MigratorError), context.target() as target:
        listed = [
            Decision(
                kind=one.kind,
                who=one.who,
                at=one.at.astimezone(UTC).isoformat(timespec="seconds"),
                why=one.reason,
                tool=f"migrator {one.tool_version}",
            )
            for one in decisions.recorded(target)
        ]
        return (*decided, *(one for one in listed if one not in decided))
    return decided


def _progress(found: CheckResult, took: int, began: datetime) -> str:
    """Return how a check ended, its own time, and the time since the first one began."""
    so_far = round((datetime.now(UTC) - began).total_seconds() * 1000)
    status = wording.STATUS_WORDS[found.outcome.status]
    return f"{status} ({wording.milliseconds(took)}; {wording.milliseconds(so_far)} in total)"


def _require_schema(context: CheckContext) -> None:
    with suppress(UnreachableError):  # then every check says so by itself
        if not any(one.revision for one in context.positions):
            raise not_migrated("it has neither schema")


def _run_check(spec: CheckSpec, context: CheckContext) -> tuple[CheckResult, bool, int]:
    """Run one check; return what it found, whether it errored, and its own milliseconds, without the shared steps."""
    began = time.monotonic_ns()
    shared = sum(context.steps.values())
    errored = False
    try:
        if reason := _inapplicable(
            context, AREAS[spec.area], needs_source=spec.needs_source, needs_scheduler=spec.needs_scheduler
        ):
            result = CheckResult(outcome=not_applicable(reason))
        else:
            with translate_errors("the target"), translate_source_errors("the source"):
                result = spec.run(context)
    except (RefusedError, DeniedError) as error:
        result = CheckResult(outcome=unverified(error.sentence, error.grant))
    except UsageError:
        raise
    except MigratorError as error:
        result, errored = CheckResult(outcome=unverified(str(error))), True
    except Exception as error:  # noqa: BLE001 - one faulty check must not hide what the others find
        logger().exception("verify.check_broke", check=spec.id)
        reason = f"the check itself is faulty: {type(error).__name__}"
        result, errored = CheckResult(outcome=unverified(reason)), True
    took = (time.monotonic_ns() - began) // 1_000_000 - (sum(context.steps.values()) - shared)
    return result, errored, max(took, 0)


def _check(spec: CheckSpec, result: CheckResult, settings: Settings, *, errored: bool) -> Check:
    return Check(
        id=spec.id,
        area=spec.area,
        title=spec.title,
        requirements=spec.requirements,
        can_fail=spec.can_fail,
        limits=spec.limits + (() if settings.target.is_native else spec.scheduler_limits),
        outcome=result.outcome,
        errored=errored,
        counts=result.counts,
        cells=result.cells,
        tallies=result.tallies,
        findings=result.findings,
        findings_total=result.findings_total,
        panels=result.panels,
    )


def _inapplicable(context: CheckContext, area: AreaSpec, *, needs_source: bool, needs_scheduler: bool) -> str:
    """Return why checks are not applicable; empty: they are."""
    if context.request.fresh_start is not None and needs_source:
        return context.request.fresh_start.reason
    if context.settings.target.is_native and needs_scheduler:
        return f"the target {context.settings.target.name} is tables of a library, and has no scheduler of the tool's"
    if not context.settings.target.is_native and area.of == "library":
        return "the target is the schema scheduler, which no library reads"
    return ""


def _areas(specs: Sequence[CheckSpec], context: CheckContext) -> tuple[Area, ...]:
    request, existing = context.request, {spec.area for spec in specs}
    areas = []
    status: AreaStatus
    for name, area in AREAS.items():
        if name not in existing:
            status, reason = "absent", NOT_IN_THIS_VERSION
        elif why := _inapplicable(
            context, area, needs_source=area.needs_source, needs_scheduler=area.of == "scheduler"
        ):
            status, reason = "not-applicable", why
        elif request.wants(name):
            status, reason = "checked", ""
        elif area.on_request and name not in request.skip and not request.with_sensitivity:
            status, reason = "not-asked-for", NOT_ASKED_FOR
        else:
            option = "--skip" if name in request.skip else "--only"
            option = "--no-behaviour" if request.no_behaviour and area.writes else option
            made = [spec.id for spec in specs if spec.area == name and request.wants(spec.id)]
            beside = f", but for {', '.join(made)}" if made else ""
            status, reason = "skipped", f"left out by {option}{beside}"
        areas.append(Area(name=name, title=area.title, status=status, reason=reason))
    return tuple(areas)


SHOWN_DOCUMENTS = 50
"""Documents whose values are shown: those of the first differences."""


def _write_values(settings: Settings, result: Result, folder: Path) -> None:
    """Write the values of the first differences into a file that only this user can read; log why if they cannot be."""
    values = dict.fromkeys(
        (one.collection, one.key)
        for check in result.evidence.checks
        if check.area == "parity"
        for one in check.findings
        if one.severity == "difference" and one.collection and one.key
    )
    try:
        shown = values_of(settings, list(values)[:SHOWN_DOCUMENTS])
    except MigratorError as error:
        logger().warning("verify.values_not_shown", why=str(error))
        return
    files.write_private(folder / renderer.VALUES, renderer.values(folder.name, shown))


def verify_into(
    settings: Settings,
    request: Request,
    *,
    directory: str | None = None,
    say: Callable[[str], None] = lambda _line: None,
    sign_key: Path | None = None,
) -> tuple[Result, Path]:
    """Verify, and write the result and its renderings; return the result and the folder.

    The folder is ``<directory>/<run>``; ``directory`` is that of the settings if omitted. It is made first, so that
    a folder that cannot be written, or a key that cannot be read, stops the verification before it begins. A
    fresh start is recorded first. Raises ``RefusedError`` for a target that was never migrated, and as
    ``fresh_start.record`` does.
    """
    key = None if sign_key is None else integrity.read_private_key(sign_key)
    if request.fresh_start is not None:
        request = msgspec.structs.replace(request, fresh_start=fresh_start.record(settings, request.fresh_start))
    _require_schema(CheckContext(settings))
    name = request.run_name or datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    folder = run_folder.make(Path(directory or settings.report.directory), name)
    with logging_into(folder / LOG):
        result = verify(settings, msgspec.structs.replace(request, run_name=folder.name, on_record=True), say=say)
    if key is not None:
        result = integrity.sign(result, key)
    renderer.write(result, folder)
    run_folder.write_index(folder.parent)
    if request.show_values:
        _write_values(settings, result, folder)
    record_run(settings, result, folder)
    return result, folder
