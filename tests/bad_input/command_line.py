"""Bad input on the command line."""

from tests.bad_input.case import DONE, QUARANTINE, USAGE, case

COMMANDS = (
    "backfill",
    "parity",
    "verify",
    "status",
    "plan",
    "inspect",
    "doctor",
    "tail",
    "scheduler metrics",
    "scheduler retention",
    "scheduler run",
    "scheduler status",
    "cutover plan",
    "cutover run",
    "cutover status",
    "cutover finish",
    "cutover release-source",
    "rollback plan",
    "rollback run",
    "quarantine list",
    "quarantine retry",
    "schema upgrade",
    "schema check",
    "demo seed",
)

COMMAND_LINE = [
    case("no such command", "backfil", USAGE, "no command backfil; did you mean backfill?"),
    case("no such command at all", "xyzzy", USAGE, "no command xyzzy; known:"),
    case("a command with control characters", "back\x1b[31mfill", USAGE, "no command"),
    case("no such subcommand", "schema upgrad", USAGE, "upgrad"),
    case("no such subcommand of quarantine", "quarantine dorp", USAGE, "dorp"),
    *[case(f"an unknown option of {one}", f"{one} --nonsense", USAGE, "--nonsense") for one in COMMANDS],
    *[
        case(f"too many arguments of {one}", f"{one} extra", USAGE, "extra")
        for one in ("backfill", "status", "parity", "schema upgrade")
    ],
    case("no value", "backfill --only", USAGE, "--only"),
    case("no argument", "quarantine show", USAGE, "COLLECTION"),
    case("one argument", "quarantine show runs", USAGE, "SOURCE_ID"),
    case("no number", "backfill --workers many", USAGE, "--workers", "many"),
    case("no worker", "backfill --workers 0", USAGE, "--workers"),
    case("too many workers", "parity --workers 257", USAGE, "--workers"),
    case("unknown executor", "backfill --executor ray", USAGE, "--executor"),
    case("unknown repair", "parity --repair all", USAGE, "--repair"),
    *[
        case(
            f"{one}: unknown collection",
            f"{one} --only rnus",
            USAGE,
            "unknown collection rnus; profile stellaops has: schedules, ",
        )
        for one in ("backfill", "backfill --dry-run", "parity", "plan", "inspect")
    ],
    *[
        case(
            f"{one}: a collection of another profile",
            f"{one} --only agendaJobs",
            USAGE,
            "unknown collection agendaJobs",
        )
        for one in ("backfill", "parity")
    ],
    case("an empty collection name", "backfill --only=", USAGE, "unknown collection"),
    case("a collection with control characters", "parity --only ru\u202ens", USAGE, "unknown collection ru\\u202ens"),
    *[
        case(f"{one}: unknown tenant", f"{one} --tenant tenant-defualt", USAGE, "unknown tenant tenant-defualt")
        for one in ("backfill --dry-run", "parity", "scheduler metrics", "scheduler retention --dry-run")
    ],
    case("an empty tenant", "backfill --dry-run --tenant=", USAGE, "unknown tenant"),
    case("a tenant with control characters", "scheduler metrics --tenant a\x1bb", USAGE, "unknown tenant a\\u001bb"),
    *[
        case(
            f"{one}: unknown code",
            f"{one} --code wrong-tpye",
            USAGE,
            "unknown code wrong-tpye; known: bad-date, ",
        )
        for one in ("quarantine list", "quarantine retry")
    ],
    case("unknown collection in quarantine", "quarantine list --collection rnus", USAGE, "unknown collection rnus"),
    case(
        "no such document in quarantine",
        "quarantine show runs nobody",
        USAGE,
        "no document of runs with that source id is in quarantine",
    ),
    case(
        "a document that is not quarantined",
        "quarantine show runs r1",
        USAGE,
        "is in quarantine; see migrator quarantine list",
    ),
    case("a source id with NUL in JSON", 'quarantine show runs {"$', USAGE, "is in quarantine"),
    case("unknown area", "verify --only parityy", USAGE, "parityy"),
    case("unknown area to skip", "verify --skip lokcing", USAGE, "lokcing"),
    case("unknown area to fail on", "verify --fail-on everything", USAGE, "everything"),
    case("unknown backend", "verify --backend mysql", USAGE, "--backend"),
    case("a decision without a fresh start", "verify --who me --reason x", USAGE, "belong to --fresh-start"),
    case("a fresh start without who", "verify --fresh-start", USAGE, "say who and why (--who and --reason missing)"),
    case("no number of steps", "verify --behaviour -1", USAGE, "--behaviour"),
    case("a key that is missing", "verify --sign-key absent.pem", USAGE, "absent.pem"),
    case("a threshold without a value", "scheduler metrics --max runs_ready", USAGE, "--max: expected NAME=NUMBER"),
    case(
        "a threshold that is no number", "scheduler metrics --max runs_ready=lots", USAGE, "--max: expected NAME=NUMBER"
    ),
    case(
        "a threshold that nothing exceeds",
        "scheduler metrics --max runs_ready=nan",
        USAGE,
        "--max: expected NAME=NUMBER",
    ),
    case("a threshold of an unknown name", "scheduler metrics --max runs_redy=1", USAGE, "runs_redy"),
    *[
        case(
            f"a threshold of {number}", f"scheduler metrics --max runs_ready={number}", USAGE, "a number that is finite"
        )
        for number in ("inf", "-inf", "1e999")
    ],
    *[
        case(f"jobs history since {since}", f"jobs history x --since {since}", USAGE, "--since")
        for since in ("0001-01-01", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-12:00")
    ],
    case("jobs from beyond every number", f"jobs list --offset {2**63}", USAGE, "--offset"),
    case("a configuration with a long name", f"verify --config {'a' * 300}", USAGE, "cannot read", "name too long"),
    case("a folder with a long name", f"scheduler retention --archive {'a' * 300}", USAGE, "is not a folder"),
    case("a metrics file with a long name", f"tail --metrics-file {'a' * 300}", USAGE, "cannot write the metrics file"),
    case("an argument that forges a line", "status x\nmigrator:forged", USAGE, "extra"),
    case("a negative age", "scheduler retention --age -1d", USAGE, "--age"),
    case("negative keep", "scheduler retention --keep -1", USAGE, "--keep"),
    case("an age without end", "scheduler retention --age 1000000000d --dry-run", USAGE, "--age"),
    case("unknown revision", "schema downgrade 9999 --yes", USAGE, "no revision 9999; known: base, "),
    case("a beginning without --sql", "schema upgrade --from base", USAGE, "--from belongs to --sql"),
    case("unknown beginning", "schema upgrade --sql --from 9999", USAGE, "no revision 9999; known: base, "),
    case("half a beginning", "schema upgrade --sql --from 0001", USAGE, "--from names no revision of migration"),
    case("unknown branch", "schema downgrade other@base --yes", USAGE, "no revision other@base"),
    case(
        "rows would be lost",
        "schema downgrade --yes",
        USAGE,
        "rows would be lost",
        "scheduler.runs: ",
        "--discard-rows",
    ),
    case(
        "a rollback before a cutover",
        "rollback run --yes",
        USAGE,
        "there was no cutover, so there is nothing to roll back",
    ),
    *[
        case(f"{one} without a terminal", one, USAGE, "there is no terminal to answer on: add --yes")
        for one in ("cutover run", "rollback run", "schema downgrade", "parity --repair apply")
    ],
    case(
        "consent to nothing",
        "parity --yes",
        USAGE,
        "--who, --reason, --overwrite-changed-rows and --yes belong to --repair apply",
    ),
    case("fewer than none in quarantine", "parity --allow-quarantined -1", USAGE, "-1 is neither a number"),
    case("an allowance in words", "backfill --allow-quarantined some", USAGE, "some is neither a number of documents"),
    case("a parallel run of nobody", "cutover parallel --reason x", USAGE, "say who and why (--who missing)"),
    *[
        case(f"{command}: an empty name", f"{command} --who=", USAGE, "--who is empty: name who decided it")
        for command in (
            "cutover run --yes",
            "rollback run --yes",
            "jobs pause x",
            "control pause",
            "schema downgrade --yes",
        )
    ],
    case("a name of blanks", "cutover run --yes --who=\t", USAGE, "--who is empty"),
    case("an early end of nobody", "cutover finish --now --who me", USAGE, "(--reason missing)"),
    case("a finish before a cutover", "cutover finish", USAGE, "cutover"),
    case("a release before a cutover", "cutover release-source --yes", USAGE, "no finished cutover"),
    case("a release without a terminal", "cutover release-source", USAGE, "add --yes"),
    case("a finish with writes that are no number", "cutover finish --allow-writes some", USAGE, "--allow-writes"),
    case("an abort before a cutover", "cutover abort", USAGE, "cutover"),
    case("unknown level", "rollback plan --level 4", USAGE, "--level"),
    case("no such size", "demo seed --size tiny", USAGE, "--size"),
    case("no such seed", "demo seed --seed x", USAGE, "--seed"),
    case(
        "a drop without a name",
        "demo seed --drop",
        USAGE,
        "--drop drops only a database that is named: add --database NAME",
    ),
    case("a seed over somebody's data", "demo seed", 2, "is not empty", "--database"),
    case(
        "a seed into the server's own database",
        "demo seed --database admin",
        USAGE,
        "database admin belongs to the server",
    ),
    case("a drop of the server's own database", "demo seed --database local --drop", USAGE, "belongs to the server"),
    case("an illegal name to seed into", "demo seed --database a$b", USAGE, "mongo.database is no legal name"),
    case("the old option of seed", "demo seed --mongo-uri mongodb://u:{secret}@h/", USAGE, "--mongo-uri"),
    case("a copy over another's terms", "backfill --no-position --only graph_jobs --tenant nobody", USAGE, "nobody"),
    case(
        "a module that is missing",
        "scheduler run --once",
        USAGE,
        "scheduler.handlers",
        config={"scheduler.handlers": '"absent_module:all"'},
    ),
    case("no module", "scheduler run --once", USAGE, "scheduler.handlers", config={"scheduler.handlers": '"no colon"'}),
    # Errors as JSON
    case(
        "JSON: usage",
        "backfill --json --only rnus",
        USAGE,
        '"kind": "UsageError"',
        '"exit_status": 2',
        "unknown collection rnus",
    ),
    case("JSON: unknown option", "status --json --nonsense", USAGE, '"kind": "NoSuchOption', "--nonsense"),
    case(
        "JSON: a setting",
        "status --json",
        USAGE,
        '"kind": "ConfigurationError"',
        "copy.workers",
        config={"copy.workers": "-1"},
    ),
    case(
        "JSON: no server",
        "inspect --json",
        16,
        '"kind": "UnreachableError"',
        '"exit_status": 16',
        config={"mongo.uri": '"mongodb://u:{secret}@127.0.0.1:9/"'},
    ),
    case("JSON: control characters", "parity --json --only a\x9bb", USAGE, "unknown collection a\\u009bb"),
    # What is there is shown, and nothing of it is obeyed, or told
    case("a value in quarantine", "quarantine list", QUARANTINE, "runs  odd  unknown-value at state"),
    case("a value in quarantine, shown without it", "quarantine show runs odd", QUARANTINE, "reason: unknown-value"),
    case("help", "--help", DONE, "Commands:"),
]
