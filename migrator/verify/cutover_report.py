"""The report of a cutover: its evidence, with the databases and the surroundings it was taken in, as signed files."""

from datetime import UTC, datetime
from pathlib import Path

from migrator.config import Settings
from migrator.cutover.evidence import cutover_result
from migrator.report import integrity, renderer, run_folder
from migrator.result import Result, Run
from migrator.verify import environment
from migrator.verify.check import Context


def report_into(
    settings: Settings, *, directory: str | None = None, sign_key: Path | None = None
) -> tuple[Result, Path]:
    """Write the report of the last cutover into a folder of its own; return the result and the folder.

    Raises ``RefusedError`` if there was no cutover, and ``UsageError`` for a key that cannot be read or a folder that
    cannot be written.
    """
    key = None if sign_key is None else integrity.read_private_key(sign_key)
    began = datetime.now(UTC)
    context = Context(settings)
    sides = environment.sides(context)
    run = Run(
        name=began.strftime("cutover-%Y%m%d-%H%M%S"),
        started_at=began.isoformat(timespec="seconds"),
        sides=sides,
        installation=environment.installation(context),
        environment=environment.surroundings(*sides),
    )
    result = cutover_result(settings, run, environment.basis(context))
    folder = run_folder.make(Path(directory or settings.report.directory), run.name)
    if key is not None:
        result = integrity.sign(result, key)
    renderer.write(result, folder)
    run_folder.write_index(folder.parent)
    return result, folder
