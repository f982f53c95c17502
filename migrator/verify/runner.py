"""Runs the checks one after the other, collects their results into one, and records the verification."""

import secrets
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal
from uuid import uuid4

import msgspec
from psycopg.types.json import Jsonb

from migrator import __version__, files
from migrator.config import Settings
from migrator.connections.mongo import translate_errors as translate_source_errors
from migrator.connections.postgres import not_migrated, target_connection, translate_errors
from migrator.errors import DeniedError, MigratorError, RefusedError, UnreachableError, UsageError
from migrator.exit_status import Allowance
from migrator.log import logger
from migrator.parity.check import check_parity
from migrator.parity.model import ParityOutcome
from migrator.parity.recorded_check import check_and_record
from migrator.parity.shown_values import values_of
from migrator.pipeline.plan import Scope
from migrator.records import ALL
from migrator.report import integrity, renderer, run_folder, wording
from migrator.result import Area, Check, Decision, Evidence, Policy, Result, Run, build, not_applicable, unverified
from migrator.schema import decisions
from migrator.telemetry import logging_into
from migrator.verify import environment, fresh_start
from migrator.verify.areas import AREAS, WRITING_AREAS, require_known, split_fail_on
from migrator.verify.check import CheckResult, CheckSpec, Context
from migrator.verify.checks.load import CHECK as LOAD
from migrator.verify.checks.load import LoadSize, ceilings_of
from migrator.verify.registry import EVERY_CHECK
from migrator.verify.requirements import OUT_OF_SCOPE, requirements

COMMAND = "verify"
LOG = "checks.log"
"""File beside the report: what the schedulers log that checks drive, and the rehearsals of cutover and rollback."""


class _ComparingContext(Context):
    """A context of both databases."""

    def compare(self) -> ParityOutcome:
        if self.on_record:
            return check_and_record(self.settings, must=False, lock_source=self.lock_source)
        return check_parity(self.settings, Scope(), lock_source=self.lock_source)


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


ON_REQUEST = "sensitivity"
"""The area that is checked only when asked for. Without it the verdict on the data is the same."""
CHECKS = tuple(spec.id for spec in EVERY_CHECK)
"""Ids of all checks, in their order."""
NOT_ASKED_FOR = "made only with --sensitivity"
NOT_IN_THIS_VERSION = "not checked by this version of the tool"


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What the caller asked for."""

    only: tuple[str, ...] = ()
    """Areas, and ids of single checks."""
    skip: tuple[str, ...] = ()
    fail_on: tuple[str, ...] = ()
    """``AREA``: its warnings fail too; ``no-AREA``: its failures are accepted (``areas.split_fail_on``)."""
    backend: Literal["postgres", "mongo", "both"] = "postgres"
    """Backend on which scenarios drive the scheduler, in scratch tenants. On MongoDB documents are written."""
    no_behaviour: bool = False
    """Leave out all areas that write; only the record of the verification is written."""
    behaviour: int = 0
    """Number of random calls on both backends in lockstep."""
    seed: int | None = None
    """Seed of the random calls. If omitted, each run takes another one, which the report names."""
    load: bool = False
    """Make the load test; a value above its ceiling fails."""
    load_jobs: int = LoadSize().jobs
    load_processes: int = LoadSize().processes
    load_ceiling: tuple[str, ...] = ()
    """``NAME=NUMBER``: another ceiling than that of ``checks.load.CEILINGS``."""
    sensitivity: bool = False
    """Apply mutations in a scratch copy and count those detected. It needs the right to create databases."""
    scratch_on_source: bool = False
    """Allow scratch databases and tenants on the source's server, which are removed. Else nothing is written there."""
    show_values: bool = False
    """Write the values of the first differences into a local file next to the report."""
    lock_source: bool = False
    """Hold SHARE locks on the tables of a source in PostgreSQL during the parity check."""
    config: Path | None = None
    """The file that the settings come from: the cutover is rehearsed on a copy of it."""
    fresh: Decision | None = None
    """The decision that there is no source (``fresh_start.decide``): checks that need a source are not applicable."""
    on_record: bool = False
    """Record the parity check, as ``parity`` does, so that the cutover may use it."""
    allow_quarantined: Allowance = 0
    """How many documents may be in quarantine before the exit status says so."""
    run_name: str = ""
    """Name of the run. If empty, the time at which it starts."""


def planned_checks(request: Request, checks: Sequence[CheckSpec] = EVERY_CHECK) -> list[CheckSpec]:
    """Return the checks that a request makes, in their order; asks no server. Raises ``UsageError`` as ``verify``."""
    _require_known(request)
    request = _resolved(request)
    return [spec for spec in checks if _is_wanted(spec.id, request)]


def verify(
    settings: Settings,
    request: Request,
    *,
    checks: Sequence[CheckSpec] | None = None,
    say: Callable[[str], None] = lambda _line: None,
) -> Result:
    """Run every check that was asked for; ``say`` gets one line per check.

    A check that ends in an error of a server or of the tool is *unverified*, and the others go on. Raises
    ``UsageError`` for an unknown area, and ``ConfigurationError`` for settings that are missing.
    """
    began = datetime.now(UTC)
    context = _ComparingContext(settings, fresh=request.fresh)
    context.config, context.on_record = request.config, request.on_record
    context.scratch_on_source, context.lock_source = request.scratch_on_source, request.lock_source
    context.allow_quarantined = request.allow_quarantined
    _require_known(request)
    request = _resolved(request)
    _set_backends(context, request)
    specs = EVERY_CHECK if checks is None else checks
    wanted = planned_checks(request, specs)
    done: list[tuple[CheckSpec, CheckResult, bool]] = []
    durations: dict[str, int] = {}
    for number, spec in enumerate(wanted, 1):
        found, errored, took = _run_check(spec, context)
        done.append((spec, found, errored))
        durations[spec.id] = took
        say(f"verify: {number}/{len(wanted)} {spec.id}: {_progress(found, took, began)}")
    evidence = Evidence(
        basis=environment.basis(context),
        policy=_policy(request),
        decisions=_decisions(context, request),
        areas=_areas(specs, request),
        tables=tuple(record.table for record in ALL),
        checks=tuple(_check(spec, found, errored=errored) for spec, found, errored in done),
        requirements=requirements(specs),
        out_of_scope=OUT_OF_SCOPE,
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
        environment=environment.surroundings(*sides),
        measurements=tuple(one for _, found, _ in done for one in found.measurements),
        panels={spec.id: found.varying for spec, found, _ in done if found.varying},
    )
    return build(evidence, run)


def _decisions(context: Context, request: Request) -> tuple[Decision, ...]:
    """Return the decisions of people that are recorded in the target: that of a fresh start, and all others."""
    fresh = () if request.fresh is None else (request.fresh,)
    with suppress(MigratorError), context.target() as target:
        found = [
            Decision(
                kind=one.kind,
                who=one.who,
                at=one.at.astimezone(UTC).isoformat(timespec="seconds"),
                why=one.reason,
                tool=f"migrator {one.tool_version}",
            )
            for one in decisions.recorded(target)
        ]
        return (*fresh, *(one for one in found if one not in fresh))
    return fresh


def _progress(found: CheckResult, took: int, began: datetime) -> str:
    """Return how a check ended, its own time, and the time since the first one began."""
    so_far = round((datetime.now(UTC) - began).total_seconds() * 1000)
    status = wording.STATUS_WORDS[found.outcome.status]
    return f"{status} ({wording.milliseconds(took)}; {wording.milliseconds(so_far)} in total)"


def _resolved(request: Request) -> Request:
    """Return the request, without the areas of behaviour if it excludes them.

    Raises ``UsageError`` for a request that contradicts itself, or writes to the source's server without asking to.
    """
    if request.behaviour and request.no_behaviour:
        raise UsageError("--behaviour and --no-behaviour contradict each other")
    _require_scratch(request)
    _require_load(request)
    if not request.no_behaviour:
        return request
    return msgspec.structs.replace(request, skip=tuple(dict.fromkeys((*request.skip, *WRITING_AREAS))))


def _require_load(request: Request) -> None:
    """Raise ``UsageError`` for a load test without ``--load``, or with it for one that other options leave out."""
    asked = (request.load_jobs, request.load_processes, request.load_ceiling)
    if not request.load and asked != (LoadSize().jobs, LoadSize().processes, ()):
        raise UsageError("--load-jobs, --load-processes and --load-ceiling belong to --load")
    if request.load and (request.no_behaviour or not _is_wanted(LOAD, request)):
        raise UsageError("--load is a test of the area performance, which the other options leave out")
    ceilings_of(request.load_ceiling)


def _require_scratch(request: Request) -> None:
    if request.scratch_on_source or request.fresh is not None:
        return
    options = {
        "--sensitivity": _with_sensitivity(request),
        f"--backend {request.backend}": request.backend != "postgres",
        "--behaviour N": request.behaviour,
    }
    for option, given in options.items():
        if given:
            raise UsageError(f"{option} writes to the source's server; allow that with --scratch-on-source")


def _set_backends(context: Context, request: Request) -> None:
    """Tell the context where the scheduler is driven, and how often at random; a fresh start has PostgreSQL only."""
    if request.load:
        ceilings = ceilings_of(request.load_ceiling)
        context.load = LoadSize(jobs=request.load_jobs, processes=request.load_processes, ceilings=ceilings)
    context.seed = secrets.randbelow(1_000_000) if request.seed is None else request.seed
    if request.fresh is None:
        context.backends = ("postgres", "mongo") if request.backend == "both" else (request.backend,)
        context.operations = request.behaviour


def _require_known(request: Request) -> None:
    require_known(request.only, "--only", CHECKS)
    require_known(request.skip, "--skip")
    split_fail_on(request.fail_on)


def _policy(request: Request) -> Policy:
    """Return the request as it is recorded: the same however often, and in whichever order, an area was named."""
    widened, narrowed = split_fail_on(request.fail_on)
    only, skip, fail_on, accepted = (
        tuple(name for name in (*AREAS, *CHECKS) if name in names)
        for names in (request.only, request.skip, widened, narrowed)
    )
    return Policy(
        only=only,
        skip=skip,
        fail_on=fail_on,
        accepted=accepted,
        values_shown=request.show_values,
        scratch_on_source=request.scratch_on_source,
        allow_quarantined=request.allow_quarantined or msgspec.UNSET,
    )


def _require_schema(context: Context) -> None:
    with suppress(UnreachableError):  # then every check says so by itself
        if not any(one.revision for one in context.positions):
            raise not_migrated("it has neither schema")


def _is_wanted(name: str, request: Request) -> bool:
    """Tell whether an area, or a check by its id, is asked for as a whole."""
    area = name.partition(".")[0]
    if area == ON_REQUEST and not _with_sensitivity(request):
        return False
    return (not request.only or not {area, name}.isdisjoint(request.only)) and area not in request.skip


def _with_sensitivity(request: Request) -> bool:
    return request.sensitivity or any(name.partition(".")[0] == ON_REQUEST for name in request.only)


def _run_check(spec: CheckSpec, context: Context) -> tuple[CheckResult, bool, int]:
    """Run one check; return what it found, whether it errored, and its own milliseconds, without the shared steps."""
    began = time.monotonic_ns()
    shared = sum(context.steps.values())
    errored = False
    try:
        if context.fresh is not None and fresh_start.needs_source(spec.id):
            found = CheckResult(outcome=not_applicable(fresh_start.reason(context.fresh)))
        else:
            with translate_errors("the target"), translate_source_errors("the source"):
                found = spec.run(context)
    except (RefusedError, DeniedError) as error:
        found = CheckResult(outcome=unverified(error.sentence, error.grant))
    except UsageError:
        raise
    except MigratorError as error:
        found, errored = CheckResult(outcome=unverified(str(error))), True
    except Exception as error:  # noqa: BLE001 - one faulty check must not hide what the others find
        logger().exception("verify.check_broke", check=spec.id)
        reason = f"the check itself is faulty: {type(error).__name__}"
        found, errored = CheckResult(outcome=unverified(reason)), True
    took = (time.monotonic_ns() - began) // 1_000_000 - (sum(context.steps.values()) - shared)
    return found, errored, max(took, 0)


def _check(spec: CheckSpec, found: CheckResult, *, errored: bool) -> Check:
    return Check(
        id=spec.id,
        area=spec.area,
        title=spec.title,
        requirements=spec.requirements,
        can_fail=spec.can_fail,
        limits=spec.limits,
        outcome=found.outcome,
        errored=errored,
        counts=found.counts,
        cells=found.cells,
        tallies=found.tallies,
        findings=found.findings,
        findings_total=found.findings_total,
        panels=found.panels,
    )


def _areas(specs: Sequence[CheckSpec], request: Request) -> tuple[Area, ...]:
    existing = {spec.area for spec in specs}
    areas = []
    for name, title in AREAS.items():
        if name not in existing:
            area = Area(name=name, title=title, status="absent", reason=NOT_IN_THIS_VERSION)
        elif request.fresh is not None and fresh_start.area_needs_source(name):
            area = Area(name=name, title=title, status="not-applicable", reason=fresh_start.reason(request.fresh))
        elif _is_wanted(name, request):
            area = Area(name=name, title=title, status="checked")
        elif name == ON_REQUEST and name not in request.skip and not _with_sensitivity(request):
            area = Area(name=name, title=title, status="not-asked-for", reason=NOT_ASKED_FOR)
        else:
            option = "--skip" if name in request.skip else "--only"
            option = "--no-behaviour" if request.no_behaviour and name in WRITING_AREAS else option
            made = [spec.id for spec in specs if spec.area == name and _is_wanted(spec.id, request)]
            beside = f", but for {', '.join(made)}" if made else ""
            area = Area(name=name, title=title, status="skipped", reason=f"left out by {option}{beside}")
        areas.append(area)
    return tuple(areas)


SHOWN_DOCUMENTS = 50
"""Documents whose values are shown: those of the first differences."""


def _write_values(settings: Settings, result: Result, folder: Path) -> None:
    """Write the values of the first differences into a file that only this user can read; log why if they cannot be."""
    found = dict.fromkeys(
        (one.collection, one.key)
        for check in result.evidence.checks
        if check.area == "parity"
        for one in check.findings
        if one.severity == "difference" and one.collection and one.key
    )
    try:
        shown = values_of(settings, list(found)[:SHOWN_DOCUMENTS])
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
    start: fresh_start.FreshStart | None = None,
) -> tuple[Result, Path]:
    """Verify, and write the result and its renderings; return the result and the folder.

    The folder is ``<directory>/<run>``; ``directory`` is that of the settings if omitted. It is made first, so that
    a folder that cannot be written, or a key that cannot be read, stops the verification before it begins. ``start``: a
    fresh start, which is recorded first. Raises ``RefusedError`` for a target that was never migrated, and as
    ``fresh_start.decide`` does.
    """
    _require_known(request)
    _require_load(request)
    key = None if sign_key is None else integrity.read_private_key(sign_key)
    if start is None:
        _require_scratch(request)
    else:
        if _with_sensitivity(request):
            raise UsageError("--fresh-start has no source to take a sample from: leave --sensitivity out")
        request = msgspec.structs.replace(request, fresh=fresh_start.decide(settings, start))
    _require_schema(Context(settings))
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
