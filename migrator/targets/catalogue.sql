-- The tables of a library in one schema, one line per fact: table, kind, name, and members as JSON.
-- The schema must be first in the search path, so that definitions name its objects without it.
-- Left out: indexes that are not unique, comments, owners, rights and storage, which change no row; NOT NULL constraints
-- (a property of the column here).

WITH relation AS (
    SELECT oid, relname::text AS relname
    FROM pg_class
    WHERE relnamespace = %(namespace)s::oid AND relkind IN ('r', 'p') AND relname = ANY (%(tables)s)
), attribute AS (
    SELECT relation.relname, attrelid, attnum, attname::text AS attname, attnotnull, attidentity, attgenerated, typtype,
        typname::text AS typname, pg_type.oid AS type, typnamespace,
        CASE typtype WHEN 'e' THEN typname::text ELSE format_type(atttypid, atttypmod) END AS formatted,
        pg_get_expr(adbin, adrelid) AS expression
    FROM relation
    JOIN pg_attribute ON attrelid = relation.oid AND attnum > 0 AND NOT attisdropped
    JOIN pg_type ON pg_type.oid = atttypid
    LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
), named AS (
    SELECT con.oid, conrelid, contype, conname::text AS conname, relname, confrelid,
        ARRAY(
            SELECT attname::text FROM unnest(conkey) WITH ORDINALITY AS key (number, place)
            JOIN pg_attribute ON attrelid = conrelid AND attnum = number ORDER BY place
        ) AS columns
    FROM relation JOIN pg_constraint AS con ON conrelid = relation.oid
)

SELECT relname, 'table' AS kind, '' AS name, '{}'::jsonb AS members, 0 AS place FROM relation

UNION ALL
SELECT relname, 'column', attname, jsonb_build_object(
    'type', formatted,
    'required', attnotnull,
    'default', CASE WHEN attgenerated = '' THEN coalesce(expression, '') ELSE '' END,
    'generated', CASE WHEN attgenerated = '' THEN '' ELSE coalesce(expression, '') END,
    'identity', CASE attidentity WHEN 'a' THEN 'always' WHEN 'd' THEN 'by default' ELSE '' END
), attnum
FROM attribute

UNION ALL
SELECT relname, 'primary key', conname, jsonb_build_object('columns', columns), 0 FROM named WHERE contype = 'p'

UNION ALL
SELECT relname, 'check', pg_get_constraintdef(oid), '{}', 0 FROM named WHERE contype = 'c'

UNION ALL
SELECT relname, 'foreign key', pg_get_constraintdef(oid), '{}', 0 FROM named WHERE contype = 'f'

UNION ALL
-- Constraints and indexes alike: both refuse rows.
SELECT relname, 'unique', regexp_replace(pg_get_indexdef(indexrelid), '^.* USING ', ''), '{}', 0
FROM relation JOIN pg_index ON indrelid = relation.oid AND indisunique AND NOT indisprimary

UNION ALL
SELECT relname, 'trigger', tgname::text, jsonb_build_object('definition', pg_get_triggerdef(trg.oid, true)), 0
FROM relation JOIN pg_trigger AS trg ON tgrelid = relation.oid AND NOT tgisinternal
-- those of a cutover by the tool (cutover.library_tables) are none of the library's
WHERE tgname NOT IN ('migrator_note', 'migrator_fence')

UNION ALL
-- Those that belong to a column, and those that the caller names because the library alone asks them for values.
SELECT '', 'sequence', relname::text, jsonb_build_object('owner', coalesce((
    SELECT owning.relname || '.' || attname
    FROM pg_depend JOIN relation AS owning ON owning.oid = refobjid
    JOIN pg_attribute ON attrelid = refobjid AND attnum = refobjsubid
    WHERE classid = 'pg_class'::regclass AND objid = pg_class.oid AND deptype IN ('a', 'i')
), '')), 0
FROM pg_class
WHERE relnamespace = %(namespace)s::oid AND relkind = 'S' AND (
    relname = ANY (%(sequences)s)
    OR EXISTS (
        SELECT FROM pg_depend JOIN relation AS owning ON owning.oid = refobjid
        WHERE classid = 'pg_class'::regclass AND objid = pg_class.oid AND deptype IN ('a', 'i')
    )
)

UNION ALL
SELECT DISTINCT '', 'enum', typname, jsonb_build_object(
    'words', ARRAY(SELECT enumlabel::text FROM pg_enum WHERE enumtypid = type ORDER BY enumsortorder),
    'schema', typnamespace::regnamespace::text
), 0
FROM attribute WHERE typtype = 'e'

ORDER BY 1, 2, 5, 3
