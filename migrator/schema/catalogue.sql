-- Everything in one schema that a declaration can say, one line per fact: relation, kind, name, definition.
-- The schema must be first in the search path, so that definitions name its objects without it.
-- Functions of a temporary schema are never found by the search path: its name is cut from the triggers that call them.
-- Left out: compression (it depends on the server's build) and NOT NULL constraints (a property of the column here).

WITH relation AS (
    SELECT oid, relname, relkind, relpersistence, relowner, relacl, relrowsecurity, relforcerowsecurity, relreplident
    FROM pg_class
    WHERE relnamespace = %(namespace)s::oid AND relname <> ALL (%(exempt)s)
), ordinary AS (
    SELECT * FROM relation WHERE relkind IN ('r', 'p')
)

SELECT relname AS relation, 'relation' AS kind, '' AS name,
    CASE relkind
        WHEN 'r' THEN CASE relpersistence WHEN 'u' THEN 'unlogged table' ELSE 'table' END
        WHEN 'p' THEN 'partitioned table' WHEN 'v' THEN 'view' WHEN 'm' THEN 'materialized view'
        WHEN 'f' THEN 'foreign table' WHEN 'S' THEN 'sequence' ELSE relkind::text
    END AS definition
FROM relation
WHERE relkind NOT IN ('i', 'I', 't', 'c')

UNION ALL
SELECT relname, 'owner', '', pg_get_userbyid(relowner)::text FROM relation WHERE relkind IN ('r', 'p', 'S')

UNION ALL
SELECT relname, 'comment', '', obj_description(oid, 'pg_class') FROM ordinary WHERE obj_description(oid, 'pg_class') IS NOT NULL

UNION ALL
SELECT relname, 'row security', '',
    CASE WHEN relforcerowsecurity THEN 'forced' WHEN relrowsecurity THEN 'enabled' ELSE 'disabled' END
FROM ordinary

UNION ALL
-- Without one, a published table refuses updates and deletions.
SELECT relname, 'replica identity', '', CASE relreplident WHEN 'n' THEN 'nothing' ELSE 'stated' END FROM ordinary

UNION ALL
-- Rows of a child are rows of the table, without its constraints and its row-level security.
SELECT relname, 'child', inhrelid::regclass::text, 'inherits' FROM ordinary JOIN pg_inherits ON inhparent = oid

UNION ALL
SELECT relname, 'parent', inhparent::regclass::text, 'inherited from' FROM ordinary JOIN pg_inherits ON inhrelid = oid

UNION ALL
SELECT relname, 'order of columns', '', string_agg(attname, ', ' ORDER BY attnum)
FROM ordinary JOIN pg_attribute ON attrelid = oid AND attnum > 0 AND NOT attisdropped
GROUP BY relname

UNION ALL
SELECT relname, 'column', attname,
    format_type(atttypid, atttypmod)
    || coalesce(' collate ' || (
        SELECT quote_ident(collname) FROM pg_collation JOIN pg_type ON pg_type.oid = atttypid
        WHERE pg_collation.oid = attcollation AND attcollation <> typcollation
    ), '')
    || CASE WHEN attnotnull THEN ' not null' ELSE '' END
    || CASE attidentity WHEN 'a' THEN ' identity always' WHEN 'd' THEN ' identity' ELSE '' END
    || CASE WHEN attgenerated <> '' THEN ' generated' ELSE '' END
    || coalesce(' default ' || pg_get_expr(adbin, adrelid, true), '')
FROM ordinary
JOIN pg_attribute ON attrelid = ordinary.oid AND attnum > 0 AND NOT attisdropped
LEFT JOIN pg_attrdef ON adrelid = ordinary.oid AND adnum = attnum

UNION ALL
SELECT relname, 'comment of column', attname, col_description(oid, attnum)
FROM ordinary JOIN pg_attribute ON attrelid = oid AND attnum > 0 AND NOT attisdropped
WHERE col_description(oid, attnum) IS NOT NULL

UNION ALL
SELECT relname, 'constraint', conname, pg_get_constraintdef(con.oid, true)
FROM ordinary JOIN pg_constraint AS con ON conrelid = ordinary.oid
WHERE contype IN ('c', 'f', 'p', 'u', 'x')

UNION ALL
SELECT ordinary.relname, 'index', idx.relname,
    pg_get_indexdef(indexrelid, 0, true) || CASE WHEN indisvalid THEN '' ELSE ' (invalid)' END
FROM ordinary JOIN pg_index ON indrelid = ordinary.oid JOIN pg_class AS idx ON idx.oid = indexrelid

UNION ALL
SELECT relname, 'policy', polname,
    CASE WHEN polpermissive THEN '' ELSE 'restrictive ' END
    || CASE polcmd WHEN 'r' THEN 'select' WHEN 'a' THEN 'insert' WHEN 'w' THEN 'update' WHEN 'd' THEN 'delete' ELSE 'all' END
    || ' to ' || (
        SELECT string_agg(CASE WHEN member = 0 THEN 'public' ELSE pg_get_userbyid(member)::text END, ', ' ORDER BY 1)
        FROM unnest(polroles) AS member
    )
    || coalesce(' using (' || pg_get_expr(polqual, polrelid, true) || ')', '')
    || coalesce(' with check (' || pg_get_expr(polwithcheck, polrelid, true) || ')', '')
FROM ordinary JOIN pg_policy ON polrelid = ordinary.oid

UNION ALL
SELECT relname, 'grant', CASE WHEN grantee = 0 THEN 'public' ELSE pg_get_userbyid(grantee)::text END,
    string_agg(lower(privilege_type) || CASE WHEN is_grantable THEN ' with grant option' ELSE '' END || columns, ', '
        ORDER BY privilege_type, is_grantable, columns)
FROM (
    SELECT relname, grantee, privilege_type, is_grantable, '' AS columns
    FROM relation CROSS JOIN aclexplode(relacl)
    WHERE grantee <> relowner
    UNION ALL
    SELECT relname, grantee, privilege_type, is_grantable, ' (' || string_agg(attname, ', ' ORDER BY attnum) || ')'
    FROM ordinary
    JOIN pg_attribute ON attrelid = oid AND NOT attisdropped
    CROSS JOIN aclexplode(attacl)
    WHERE grantee <> relowner
    GROUP BY relname, grantee, privilege_type, is_grantable
) AS granted
GROUP BY relname, grantee

UNION ALL
SELECT relname, 'trigger', tgname, regexp_replace(pg_get_triggerdef(trg.oid, true), '\mpg_temp(_[0-9]+)?\.', '', 'g')
FROM ordinary JOIN pg_trigger AS trg ON tgrelid = ordinary.oid
WHERE NOT tgisinternal

UNION ALL
SELECT relname, 'rule', rulename, pg_get_ruledef(rul.oid, true)
FROM ordinary JOIN pg_rewrite AS rul ON ev_class = ordinary.oid

UNION ALL
SELECT relname, 'sequence', '', format_type(seqtypid, NULL)
    || format(' start %%s increment %%s minvalue %%s maxvalue %%s', seqstart, seqincrement, seqmin, seqmax)
    || CASE WHEN seqcycle THEN ' cycle' ELSE '' END || coalesce(' owned by ' || owner.attname, '')
FROM relation
JOIN pg_sequence ON seqrelid = oid
LEFT JOIN pg_depend ON classid = 'pg_class'::regclass AND objid = oid AND deptype IN ('a', 'i')
LEFT JOIN pg_attribute AS owner ON owner.attrelid = refobjid AND owner.attnum = refobjsubid

UNION ALL
SELECT proname, 'function', '', concat_ws(' ',
    pg_get_function_identity_arguments(oid), 'returns', pg_get_function_result(oid), 'volatility', provolatile,
    CASE WHEN prosecdef THEN 'security definer' END, CASE WHEN proleakproof THEN 'leakproof' END,
    CASE WHEN proisstrict THEN 'strict' END, 'set', proconfig::text, 'owner', pg_get_userbyid(proowner), 'executed by',
    (
        SELECT string_agg(CASE WHEN grantee = 0 THEN 'public' ELSE pg_get_userbyid(grantee)::text END
            || CASE WHEN is_grantable THEN ' with grant option' ELSE '' END, ', ' ORDER BY 1)
        FROM aclexplode(coalesce(proacl, acldefault('f', proowner))) WHERE grantee <> proowner
    ),
    'as', prosrc
) FROM pg_proc WHERE pronamespace = %(namespace)s::oid

UNION ALL
SELECT typname, 'type', '', typtype::text FROM pg_type WHERE typnamespace = %(namespace)s::oid AND typtype IN ('d', 'e', 'r')

ORDER BY 1, 2, 3
