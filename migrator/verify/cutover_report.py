"""The report of a cutover: its evidence, with the databases and the surroundings it was taken in, as signed files."""

from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from migrator.config import Settings, load_settings
from migrator.connections.postgres import target_connection
from migrator.cutover.evidence import cutover_result
from migrator.cutover.journal import Cutover, Step, latest, steps
from migrator.errors import MigratorError
from migrator.report import integrity, renderer, run_folder
from migrator.result import Result, Run
from migrator.telemetry import say
from migrator.verify import environment
from migrator.verify.check import CheckContext
from migrator.verify.requirements import WORDS


def report_into(
    settings: Settings, *, directory: str | None = None, sign_key: Path | None = None, dry_run: bool = False
) -> tuple[Result, Path]:
    """Write the report of the last cutover into a folder of its own; return the result and the folder.

    ``dry_run``: neither the folder nor a file is made.

    Raises ``RefusedError`` if there was no cutover, and ``UsageError`` for a key that cannot be read or a folder that
    cannot be written.
    """
    key = None if sign_key is None else integrity.read_private_key(sign_key)
    began = datetime.now(UTC)
    context = CheckContext(settings)
    sides = environment.sides(context)
    run = Run(
        name=began.strftime("cutover-%Y%m%d-%H%M%S"),
        started_at=began.isoformat(timespec="seconds"),
        sides=sides,
        installation=environment.installation(context),
        environment=environment.surroundings(*sides),
    )
    result = cutover_result(settings, run, environment.basis(context), WORDS)
    if key is not None:
        result = integrity.sign(result, key)
    base = Path(directory or settings.report.directory)
    if dry_run:
        return result, base / run.name
    folder = run_folder.make(base, run.name)
    renderer.write(result, folder)
    run_folder.write_index(folder.parent)
    return result, folder


class EndReport:
    """The report that a command writes at its end if it changed the journal of the cutover.

    The command has its outcome by then. A report that cannot be written is a warning, and changes nothing of it.
    """

    def __init__(self, settings: Settings, config: str | None, *, wanted: bool) -> None:
        """Read the journal; ``config`` is the file that the command may change, ``wanted`` false: write nothing."""
        self._settings, self._config, self._wanted = settings, config, False
        self._before: tuple[Cutover | None, tuple[Step, ...]] = (None, ())
        if wanted:
            with suppress(MigratorError):  # the command meets the same error, and reports it
                self._before = self._journal()
                self._wanted = True

    def write(self) -> Path | None:
        """Return the page of the report; None, and a warning if it could not be written, where there is none."""
        if not self._wanted:
            return None
        try:
            if self._journal() == self._before:
                return None
            _, folder = report_into(load_settings(self._config))
        except Exception as error:  # noqa: BLE001 - whatever it is, the cutover is as it is
            why = str(error) if isinstance(error, MigratorError) else type(error).__name__
            say(f"the report of the cutover was not written: {why}", level="warning")
            return None
        return folder / renderer.HTML

    def _journal(self) -> tuple[Cutover | None, tuple[Step, ...]]:
        with target_connection(self._settings) as target:
            found = latest(target)
            return found, () if found is None else tuple(steps(target, found.id))
