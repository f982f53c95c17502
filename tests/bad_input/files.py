"""Bad input in files that a command reads, and at places where it writes."""

from tests.bad_input.case import QUARANTINE, USAGE, case

FILES = [
    case(
        "--raw onto a file",
        "quarantine show runs odd --raw kept",
        USAGE,
        "--raw: kept exists and is not overwritten",
        files={"kept": b"mine"},
    ),
    case("--raw into a missing folder", "quarantine show runs odd --raw no/such", USAGE, "--raw: cannot write no/such"),
    case(
        "--raw onto a folder",
        "quarantine show runs odd --raw d",
        USAGE,
        "--raw: d exists and is not overwritten",
        files={"d/x": b""},
    ),
    case("--raw with a long name", f"quarantine show runs odd --raw {'a' * 300}", USAGE, "--raw: cannot write"),
    case(
        "--raw, as it should be",
        "quarantine show runs odd --raw new",
        QUARANTINE,
        "reason: unknown-value",
        writes=("new",),
    ),
    case("reports into a file", "verify --only schema --report-dir f", USAGE, "f", files={"f": b""}),
    case("no such result", "report render absent.json", USAGE, "absent.json"),
    case("a result that is no JSON", "report render r.json", USAGE, "r.json", files={"r.json": b"{"}),
    case("a result that is empty", "report check r.json", USAGE, "r.json", files={"r.json": b""}),
    case("a result that is not UTF-8", "report check r.json", USAGE, "r.json", files={"r.json": b"\xff\xfe"}),
    case("a result of another kind", "report check r.json", USAGE, "r.json", files={"r.json": b'{"a": 1}'}),
    case("a list for a result", "report render r.json", USAGE, "r.json", files={"r.json": b"[]"}),
    case("deep JSON", "report render r.json", USAGE, "r.json", files={"r.json": b"[" * 100_000}),
    case("a folder for a result", "report render d", USAGE, "d", files={"d/x": b""}),
    case("a result with NUL", "report check r.json", USAGE, "r.json", files={"r.json": b"\x00" * 100}),
    case("no such key", "report sign r.json --key absent", USAGE, "absent", files={"r.json": b"{}"}),
    case(
        "a metrics file in a missing folder", "tail --until-caught-up --metrics-file no/such/m.prom", USAGE, "no/such"
    ),
    case(
        "an address of no Dask scheduler",
        "backfill --executor dask",
        USAGE,
        "copy.dask_scheduler: nonsense://127.0.0.1:9 is no address",
        config={"copy.dask_scheduler": '"nonsense://127.0.0.1:9"'},
    ),
    case("a difference is not hidden by a filter", "parity --only schedules", 4, "not compared"),
    case(
        "handlers that cannot be loaded",
        "scheduler run --once",
        USAGE,
        "the module broken of the handlers",
        "SyntaxError",
        files={"broken.py": b"def ("},
        config={"scheduler.handlers": '"broken:all"'},
    ),
]
