"""Bad input at the servers: what a source or a target may be and must not."""

from tests.bad_input.case import DIFFERENT, DONE, FAILED, UNVERIFIED, USAGE, case

READING = ("inspect", "backfill", "plan")
TARGETS = ("schema current", "schema check", "schema upgrade", "backfill", "parity", "status")


def dsn(name: str) -> dict[str, str]:
    return {"postgres.dsn": f'"{{{name}}}"'}


MONGODB = [
    *[
        case(
            f"{one}: no such database",
            one,
            USAGE,
            "database no_such has no collection of profile stellaops",
            config={"mongo.database": '"no_such"'},
        )
        for one in ("inspect", "plan", "backfill", "backfill --dry-run")
    ],
    *[
        case(
            f"{one}: another application's database",
            one,
            USAGE,
            "it has: executions\\u001b[31m\\u202e",
            config={"mongo.database": '"{others}"'},
            places=("others",),
        )
        for one in ("inspect", "backfill")
    ],
    *[
        case(
            f"{one}: another profile's database",
            one,
            USAGE,
            "no collection of profile agenda",
            config={"source.profile": '"agenda"'},
        )
        for one in ("inspect", "backfill")
    ],
    *[
        case(
            f"{one}: a view",
            one,
            USAGE,
            "runs of the source is a view of all",
            "[source] collections",
            config={"mongo.database": '"{view}"'},
            places=("view",),
        )
        for one in (*READING, "parity", "backfill --dry-run")
    ],
    *[
        case(
            f"{one}: a time series",
            one,
            USAGE,
            "runs of the source is a timeseries collection",
            "$out",
            config={"mongo.database": '"{series}"'},
            places=("series",),
        )
        for one in (*READING, "parity", "backfill --dry-run")
    ],
    *[
        case(
            f"{one}: a wrong password",
            one,
            FAILED,
            "the source refuses the user or the password of mongo.uri",
            config={
                "mongo.uri": '"mongodb://reader:{secret}x@{guarded}/?replicaSet=rs0"',
                "mongo.database": '"guarded"',
            },
            places=("guarded",),
        )
        for one in READING
    ],
    *[
        case(
            f"{one}: no rights",
            one,
            FAILED,
            "the source denies a right",
            "role read",
            config={
                "mongo.uri": '"mongodb://nobody:{secret}@{guarded}/?replicaSet=rs0"',
                "mongo.database": '"guarded"',
            },
            places=("guarded",),
        )
        for one in READING
    ],
    case(
        "no user",
        "inspect",
        FAILED,
        "the source denies a right",
        config={"mongo.uri": '"mongodb://{guarded}/?replicaSet=rs0"', "mongo.database": '"guarded"'},
        places=("guarded",),
    ),
    case(
        "another replica set's name",
        "inspect",
        FAILED,
        "the source cannot be reached",
        config={"mongo.uri": '"mongodb://anna:{secret}@127.0.0.1:{mongo_port}/?replicaSet=rs1&authSource=admin"'},
    ),
    case(
        "a source that is no replica set",
        "backfill",
        USAGE,
        "the source is not a replica set",
        "--no-position",
        config={"mongo.uri": '"{alone}"', "mongo.database": '"alone"'},
        places=("alone",),
    ),
    case(
        "TLS where there is none",
        "inspect",
        FAILED,
        "the source cannot be reached",
        config={
            "mongo.uri": '"mongodb://anna:{secret}@127.0.0.1:{mongo_port}/?replicaSet=rs0&authSource=admin&tls=true"'
        },
    ),
    case(
        "collections without documents",
        "inspect",
        DONE,
        "nothing written",
        config={"mongo.database": '"{hollow}"'},
        places=("hollow",),
    ),
    case(
        "doctor: a source that is not there",
        "doctor",
        FAILED | UNVERIFIED,
        "the source cannot be reached",
        config={"mongo.uri": '"mongodb://u:{secret}@127.0.0.1:9/"'},
    ),
]

POSTGRESQL = [
    *[
        case(
            f"{one}: encoding {name}",
            one,
            USAGE,
            f"has the encoding {encoding}",
            "ENCODING 'UTF8' TEMPLATE template0",
            config=dsn(name),
            places=(name,),
        )
        for name, encoding in (("sql_ascii", "SQL_ASCII"), ("latin1", "LATIN1"), ("euc_jp", "EUC_JP"))
        for one in TARGETS
    ],
    *[
        case(
            f"doctor: encoding {name}",
            "doctor",
            DIFFERENT,
            f"has the encoding {encoding}",
            config=dsn(name),
            places=(name,),
        )
        for name, encoding in (("sql_ascii", "SQL_ASCII"), ("euc_jp", "EUC_JP"))
    ],
    *[
        case(
            f"{one}: never migrated",
            one,
            USAGE,
            "the target is not migrated",
            "call migrator schema upgrade first",
            config=dsn("bare"),
            places=("bare",),
        )
        for one in ("backfill", "parity", "verify", "status", "plan", "quarantine list", "tail")
    ],
    *[
        case(
            f"{one}: a schema of somebody else",
            one,
            USAGE,
            "the target has a schema scheduler that is not this tool's",
            "theirs",
            config=dsn("foreign"),
            places=("foreign",),
        )
        for one in ("schema upgrade", "schema current", "schema check")
    ],
    case(
        "doctor: a schema of somebody else",
        "doctor",
        DIFFERENT,
        "a schema scheduler that is not this tool's",
        config=dsn("foreign"),
        places=("foreign",),
    ),
    *[
        case(
            f"{one}: two revisions",
            one,
            USAGE,
            "scheduler.schema_revision names",
            "f00d",
            config=dsn("two_revisions"),
            places=("two_revisions",),
        )
        for one in ("schema upgrade", "schema current", "schema check", "schema downgrade --discard-rows --yes")
    ],
    *[
        case(
            f"{one}: an unknown revision",
            one,
            USAGE,
            "the schema is at revision f00d",
            config=dsn("unknown_revision"),
            places=("unknown_revision",),
        )
        for one in (
            "schema upgrade",
            "schema current",
            "schema check",
            "plan",
            "backfill",
            "parity",
            "parity --repair apply --yes",
            "tail --until-caught-up",
            "quarantine retry",
        )
    ],
    *[
        case(
            f"{one}: a changed revision",
            one,
            USAGE,
            "revision 0001 was applied from a file with another content",
            config=dsn("changed_file"),
            places=("changed_file",),
        )
        for one in ("schema upgrade", "schema check")
    ],
    *[
        case(
            f"{one}: a superuser serves tenants",
            one,
            USAGE,
            "postgres.service_role: the role postgres is a superuser",
            config={"postgres.service_role": '"postgres"'},
        )
        for one in ("schema upgrade", "schema check")
    ],
    *[
        case(
            f"{one}: a predefined role serves tenants",
            one,
            USAGE,
            "pg_read_all_data belongs to PostgreSQL itself",
            config={"postgres.dispatcher_role": '"pg_read_all_data"'},
        )
        for one in ("schema upgrade", "schema check")
    ],
    *[
        case(
            f"{one}: the service is the dispatcher",
            one,
            status,
            "postgres.service_role and postgres.dispatcher_role are one role, scheduler_dispatcher",
            config={"postgres.service_role": '"scheduler_dispatcher"'},
        )
        for one, status in (("schema upgrade", USAGE), ("schema check", USAGE), ("doctor", DIFFERENT))
    ],
    case(
        "doctor: a superuser serves tenants",
        "doctor",
        DIFFERENT,
        "the role postgres is a superuser",
        config={"postgres.service_role": '"postgres"'},
    ),
    case(
        "a role that does not exist",
        "backfill",
        USAGE,
        "it has no role absent_role",
        config={"postgres.migration_role": '"absent_role"'},
    ),
    *[
        case(
            f"{one}: no membership",
            one,
            USAGE,
            "is not a member of scheduler_migration",
            'GRANT "scheduler_migration" TO',
            config=dsn("outsider"),
            places=("outsider",),
        )
        for one in ("backfill", "parity", "status", "quarantine list")
    ],
    case(
        "a wrong password of the target",
        "backfill",
        FAILED,
        "the target refuses the user or the password of postgres.dsn",
        config={"postgres.dsn": '"postgresql://anna:{secret}x@{pg}/{pg_name}"'},
    ),
    case(
        "no such user",
        "backfill",
        FAILED,
        "the target refuses the user or the password",
        config={"postgres.dsn": '"postgresql://nobody:{secret}@{pg}/{pg_name}"'},
    ),
    *[
        case(
            f"{one}: no such database",
            one,
            FAILED,
            'database "no_such" does not exist; create the database first',
            config={"postgres.dsn": '"postgresql://anna:{secret}@{pg}/no_such"'},
        )
        for one in ("backfill", "schema upgrade")
    ],
    case(
        "a differing catalogue",
        "schema check",
        DIFFERENT,
        "migration.pending_documents",
        config=dsn("no_table"),
        places=("no_table",),
    ),
    case(
        "rows of somebody else",
        "backfill",
        USAGE,
        "table scheduler.handlers holds rows that did not come from profile stellaops",
        config=dsn("strangers_rows"),
        places=("strangers_rows",),
    ),
    case(
        "a database that takes no writes",
        "backfill",
        FAILED,
        "read-only transaction",
        config=dsn("read_only"),
        places=("read_only",),
    ),
    case(
        "a table that stays locked",
        "backfill",
        FAILED,
        "their session",
        "holds scheduler.runs (AccessExclusiveLock)",
        config=dsn("locked"),
        places=("locked",),
    ),
    case(
        "a table that stays locked, downgraded",
        "schema downgrade --discard-rows --yes",
        FAILED,
        "their session",
        "nothing was changed",
        config=dsn("locked"),
        places=("locked",),
    ),
    case(
        "another target than was copied into",
        "parity",
        USAGE,
        "nothing was copied into this target yet",
        config=dsn("no_table"),
        places=("no_table",),
    ),
    case(
        "TLS where the target has none",
        "schema current",
        FAILED,
        "the target cannot be reached",
        config={"postgres.dsn": '"{dsn}?sslmode=require"'},
    ),
    case(
        "another source than was copied",
        "parity",
        DIFFERENT,
        "runs: 2 x extra runs",
        config={"mongo.database": '"{hollow}"'},
        places=("hollow",),
    ),
]
