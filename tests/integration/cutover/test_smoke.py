"""What the smoke test of a cutover leaves behind: nothing, on either side."""

import json
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from migrator import fault_points
from migrator.cutover import outbox
from migrator.cutover.smoke import SmokeError, smoke
from migrator.store.queue import SCRATCH
from tests.copying import contents
from tests.cutting_over import Scene


def test_rows_of_scratch_tenants_are_not_noted_for_the_reverse_sync(
    ready: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MongoDB would get run summaries of no tenant; the reverse sync of a source without such rows would stop."""
    notes: dict[str, list[tuple[str, str]]] = {}
    rows = []

    def look(point: str) -> None:
        if point.startswith(f"{fault_points.CUTOVER_PREFIX}smoke."):
            with psycopg.connect(ready.dsn) as connection:
                found = connection.execute("SELECT table_name, row_id FROM migration.outbox ORDER BY id").fetchall()
            notes[point.rpartition(".")[2]] = found
            rows.append(contents(ready.dsn))

    monkeypatch.setattr(fault_points, "_listen", look)
    ready.switch()
    assert notes["begun"] == notes["done"]
    assert rows[0] == rows[1]
    for name in ready.database.list_collection_names():
        assert ready.database[name].count_documents({"tenantId": {"$regex": f"^{SCRATCH}"}}) == 0, name


@pytest.mark.proves("0-T2.12.3")
def test_the_command_ends_with_0_on_a_store_that_works_and_with_1_on_one_that_does_not(
    scheduler_dsn: str, tmp_path: Path
) -> None:
    config = tmp_path / "config.toml"
    config.write_text(f'[persistence]\nscheduler = "postgres"\n[postgres]\ndsn = "{scheduler_dsn}"\n')
    config.chmod(0o600)
    command = [sys.executable, "-m", "migrator.cutover.smoke", str(config)]
    before = contents(scheduler_dsn)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == smoke(config)
    assert contents(scheduler_dsn) == before
    with psycopg.connect(scheduler_dsn) as connection:
        connection.execute("ALTER TABLE scheduler.runs ADD CONSTRAINT nothing CHECK (false) NOT VALID")
    assert subprocess.run(command, capture_output=True, check=False).returncode == 1
    with pytest.raises(SmokeError, match=r"the store that .* names does not work"):
        smoke(config)


def test_every_table_whose_rows_are_noted_names_the_tenant() -> None:
    assert [one.table for one in outbox.TRACKED_RECORDS if "tenant_id" not in one.__struct_fields__] == []
