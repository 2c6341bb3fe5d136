//! What the catalog of the server says about the rights of a role, and about the tables.

/// The role that is asked about, and `grantees`: everybody, the role itself, and each role whose rights it
/// has or can get, with the membership that leads there. Nobody for a role that owns the tables or the
/// server. Binds: role, namespace.
///
/// A membership leads on if it inherits, allows SET ROLE, or has the ADMIN OPTION, with which a role gives
/// itself the rest. `pg_database_owner` is not one: who owns the database is found by that.
macro_rules! grantees {
    () => {
        "
        WITH role AS MATERIALIZED (
            SELECT r.oid, quote_ident(r.rolname::text) AS name, n.oid AS schema, n.nspowner AS owner,
                r.rolsuper OR pg_has_role(r.oid, n.nspowner, 'MEMBER'::text) AS is_owner,
                CASE
                    WHEN current_setting('server_version_num'::text)::int4 < 160000 THEN 'MEMBER'
                    ELSE 'SET' END AS become
            FROM pg_roles r
            JOIN pg_namespace n ON n.nspname = $2::text
            WHERE r.rolname = COALESCE(NULLIF($1::text, ''), current_user::text)::name
        ), grantees AS MATERIALIZED (
            SELECT 0::oid AS oid, 'PUBLIC' AS name, '' AS through, false AS may_become
            FROM role
            WHERE NOT role.is_owner
            UNION ALL
            SELECT role.oid, role.name, '', true
            FROM role
            WHERE NOT role.is_owner
            UNION ALL
            SELECT y.oid, quote_ident(y.rolname::text),
                COALESCE((
                    SELECT quote_ident(d.rolname::text)
                    FROM pg_auth_members m
                    JOIN pg_roles d ON d.oid = m.roleid
                    WHERE m.member = role.oid AND pg_has_role(d.oid, y.oid, 'MEMBER'::text)
                    ORDER BY d.oid = y.oid DESC, d.rolname
                    LIMIT 1
                ), ''),
                y.may_become
            FROM role
            CROSS JOIN LATERAL (
                SELECT r.oid, r.rolname, pg_has_role(role.oid, r.oid, role.become) OR EXISTS (
                        SELECT
                        FROM pg_roles a
                        WHERE a.oid <> role.oid AND pg_has_role(a.oid, r.oid, 'MEMBER'::text)
                            AND pg_has_role(role.oid, a.oid, 'MEMBER WITH ADMIN OPTION'::text)
                    ) AS may_become
                FROM pg_roles r
                WHERE r.oid <> role.oid AND r.rolname <> 'pg_database_owner'
                    AND pg_has_role(role.oid, r.oid, 'MEMBER'::text)
            ) y
            WHERE NOT role.is_owner AND (y.may_become OR pg_has_role(role.oid, y.oid, 'USAGE'::text))
        )"
    };
}

/// Rights are read from the access lists, which name the grantee, and so what to revoke from whom. What comes
/// without one is a row of its own: attributes, predefined roles, and what a role owns.
pub(super) const RIGHTS_HELD: &str = concat!(
    grantees!(),
    ", acls AS (
            SELECT CASE WHEN c.relkind = 'S' THEN 'SEQUENCE' ELSE 'TABLE' END AS object_type,
                c.relname::text AS object, '' AS of_column, c.relacl AS acl
            FROM pg_class c
            JOIN role ON role.schema = c.relnamespace
            WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f', 'S')
            UNION ALL
            SELECT 'TABLE', c.relname::text, a.attname::text, a.attacl
            FROM pg_attribute a
            JOIN pg_class c ON c.oid = a.attrelid
            JOIN role ON role.schema = c.relnamespace
            WHERE NOT a.attisdropped
            UNION ALL
            SELECT 'SCHEMA', quote_ident(n.nspname::text), '', n.nspacl
            FROM pg_namespace n
            JOIN role ON n.oid = role.schema OR n.nspname = 'public'
            UNION ALL
            SELECT 'DATABASE', quote_ident(d.datname::text), '', d.datacl
            FROM pg_database d
            WHERE d.datname = current_database()
            UNION ALL
            SELECT 'TYPE', t.typname::text, '', COALESCE(t.typacl, acldefault('T'::\"char\", t.typowner))
            FROM pg_type t
            JOIN role ON role.schema = t.typnamespace
            WHERE t.typtype = 'd'
            UNION ALL
            SELECT 'ROUTINE', p.oid::regprocedure::text, '', p.proacl
            FROM pg_proc p
            JOIN role ON role.schema = p.pronamespace
        ), held AS MATERIALIZED (
            SELECT a.object_type, a.object, a.of_column, e.privilege_type AS privilege,
                CASE WHEN e.is_grantable THEN 'YES' ELSE 'NO' END AS is_grantable,
                g.oid AS grantee_oid, g.name AS grantee, g.through
            FROM acls a
            CROSS JOIN aclexplode(a.acl) e
            JOIN grantees g ON g.oid = e.grantee
        )
        SELECT kind, object_type, object, of_column, privilege, is_grantable, grantee, through
        FROM (
            SELECT 'server' AS kind, '' AS object_type, current_setting('server_version_num'::text) AS object,
                '' AS of_column, '' AS privilege, 'NO' AS is_grantable, '' AS grantee, '' AS through
            UNION ALL
            SELECT 'everything', '', '', '', '', 'NO', '', ''
            FROM role
            WHERE role.is_owner
            UNION ALL
            SELECT 'right', h.object_type, h.object, h.of_column, h.privilege, h.is_grantable, h.grantee,
                h.through
            FROM held h
            UNION ALL
            SELECT 'default', CASE WHEN d.defaclobjtype = 'S' THEN 'SEQUENCES' ELSE 'TABLES' END,
                'FOR ROLE ' || quote_ident(pg_get_userbyid(d.defaclrole)::text)
                    || CASE WHEN d.defaclnamespace = 0::oid THEN ''
                        ELSE ' IN SCHEMA ' || quote_ident($2::text) END,
                '', e.privilege_type, 'NO', g.name, g.through
            FROM pg_default_acl d
            JOIN role ON d.defaclrole = role.owner AND d.defaclnamespace IN (0::oid, role.schema)
            CROSS JOIN aclexplode(d.defaclacl) e
            JOIN grantees g ON g.oid = e.grantee
            WHERE d.defaclobjtype IN ('r', 'S')
            UNION ALL
            SELECT 'attribute', '', a.name, '', '', 'NO', g.name, g.through
            FROM grantees g
            JOIN pg_roles r ON r.oid = g.oid
            CROSS JOIN LATERAL (
                VALUES ('SUPERUSER', r.rolsuper), ('CREATEROLE', r.rolcreaterole),
                    ('CREATEDB', r.rolcreatedb), ('REPLICATION', r.rolreplication),
                    ('BYPASSRLS', r.rolbypassrls)
            ) a (name, is_set)
            WHERE g.may_become AND a.is_set
            UNION ALL
            SELECT 'membership', 'ROLE', g.name, '', '', 'NO', role.name, g.through
            FROM grantees g
            CROSS JOIN role
            WHERE g.through <> '' AND left(g.name, 3) = 'pg_'
            UNION ALL
            SELECT 'admin', 'ROLE', g.name, '', '', 'NO', role.name, g.through
            FROM grantees g
            CROSS JOIN role
            WHERE g.through <> '' AND pg_has_role(role.oid, g.oid, 'MEMBER WITH ADMIN OPTION'::text)
                AND (left(g.name, 3) = 'pg_' OR EXISTS (SELECT FROM held h WHERE h.grantee_oid = g.oid))
            UNION ALL
            SELECT 'ownership', o.object_type, o.object, '',
                quote_ident(pg_get_userbyid(role.owner)::text), 'NO', g.name, g.through
            FROM (
                SELECT 'TABLE' AS object_type, c.relname::text AS object, c.relowner AS owner
                FROM pg_class c
                JOIN role ON role.schema = c.relnamespace
                WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f')
                UNION ALL
                SELECT 'ROUTINE', p.oid::regprocedure::text, p.proowner
                FROM pg_proc p
                JOIN role ON role.schema = p.pronamespace
                UNION ALL
                SELECT 'TYPE', t.typname::text, t.typowner
                FROM pg_type t
                JOIN role ON role.schema = t.typnamespace
                WHERE t.typtype = 'd'
                UNION ALL
                SELECT 'DATABASE', quote_ident(d.datname::text), d.datdba
                FROM pg_database d
                WHERE d.datname = current_database()
            ) o
            JOIN grantees g ON g.oid = o.owner
            CROSS JOIN role
            UNION ALL
            SELECT CASE WHEN p.pronamespace = role.schema THEN 'function' ELSE 'outside' END, 'ROUTINE',
                p.oid::regprocedure::text, '', quote_ident(o.rolname::text), 'NO',
                COALESCE((
                    SELECT string_agg(DISTINCT g.name, ', '::text)
                    FROM aclexplode(COALESCE(p.proacl, acldefault('f'::\"char\", p.proowner))) e
                    JOIN grantees g ON g.oid = e.grantee
                ), ''),
                ''
            FROM pg_proc p
            JOIN pg_namespace n ON n.oid = p.pronamespace
            JOIN pg_roles o ON o.oid = p.proowner
            JOIN role ON p.pronamespace = role.schema OR o.rolsuper
                OR pg_has_role(o.oid, role.owner, 'MEMBER'::text)
                OR has_schema_privilege(o.oid, role.schema, 'USAGE'::text)
            WHERE p.prosecdef AND n.nspname NOT IN ('pg_catalog', 'information_schema')
                AND NOT EXISTS (SELECT FROM grantees g WHERE g.oid = p.proowner)
                AND NOT EXISTS (
                    SELECT
                    FROM pg_depend d
                    WHERE d.classid = 'pg_catalog.pg_proc'::regclass::oid AND d.objid = p.oid
                        AND d.deptype = 'e')
                AND EXISTS (
                    SELECT
                    FROM grantees g
                    WHERE g.oid <> 0::oid AND has_schema_privilege(g.oid, n.oid, 'USAGE'::text)
                        AND has_function_privilege(g.oid, p.oid, 'EXECUTE'::text))
            UNION ALL
            SELECT 'outside', 'VIEW', v.oid::regclass::text, '',
                quote_ident(pg_get_userbyid(v.relowner)::text), 'NO',
                COALESCE((
                    SELECT string_agg(DISTINCT g.name, ', '::text)
                    FROM (
                        SELECT v.relacl AS acl
                        UNION ALL
                        SELECT a.attacl
                        FROM pg_attribute a
                        WHERE a.attrelid = v.oid
                    ) given
                    CROSS JOIN aclexplode(given.acl) e
                    JOIN grantees g ON g.oid = e.grantee
                ), ''),
                ''
            FROM pg_class v
            JOIN role ON v.relnamespace <> role.schema
            WHERE v.relkind IN ('v', 'm')
                AND NOT EXISTS (SELECT FROM grantees g WHERE g.oid = v.relowner)
                AND NOT EXISTS (
                    SELECT
                    FROM unnest(v.reloptions) o
                    WHERE o IN ('security_invoker=true', 'security_invoker=on', 'security_invoker=yes',
                        'security_invoker=1'))
                AND EXISTS (
                    SELECT
                    FROM pg_rewrite w
                    JOIN pg_depend d ON d.classid = 'pg_catalog.pg_rewrite'::regclass::oid
                        AND d.objid = w.oid AND d.refclassid = 'pg_catalog.pg_class'::regclass::oid
                    JOIN pg_class c ON c.oid = d.refobjid
                    WHERE w.ev_class = v.oid AND c.relnamespace = role.schema)
                AND EXISTS (
                    SELECT
                    FROM grantees g
                    WHERE g.oid <> 0::oid AND (
                        has_any_column_privilege(g.oid, v.oid, 'SELECT, INSERT, UPDATE'::text)
                        OR has_table_privilege(g.oid, v.oid, 'DELETE'::text)))
            UNION ALL
            SELECT 'setting', '', c, '',
                CASE
                    WHEN s.setrole = 0::oid AND s.setdatabase = 0::oid THEN 'ROLE ALL'
                    WHEN s.setrole = 0::oid THEN 'DATABASE ' || quote_ident(b.datname::text)
                    WHEN s.setdatabase = 0::oid THEN 'ROLE ' || role.name
                    ELSE 'ROLE ' || role.name || ' IN DATABASE ' || quote_ident(b.datname::text) END,
                'NO', role.name, ''
            FROM pg_db_role_setting s
            JOIN role ON s.setrole IN (0::oid, role.oid) AND NOT role.is_owner
            JOIN pg_database b ON b.datname = current_database() AND s.setdatabase IN (0::oid, b.oid)
            CROSS JOIN unnest(s.setconfig) c
            WHERE left(c, 25) = 'session_replication_role='
                AND c NOT IN ('session_replication_role=origin', 'session_replication_role=local')
        ) rights
        ORDER BY object_type COLLATE \"C\", object COLLATE \"C\", grantee COLLATE \"C\",
            privilege COLLATE \"C\", of_column COLLATE \"C\""
);

/// From Postgres 15 on.
pub(super) const MORE_RIGHTS_HELD: &str = concat!(
    grantees!(),
    "
        SELECT 'parameter' AS kind, 'PARAMETER' AS object_type, p.parname AS object, '' AS of_column,
            e.privilege_type AS privilege, 'NO' AS is_grantable, g.name AS grantee, g.through AS through
        FROM pg_parameter_acl p
        CROSS JOIN aclexplode(p.paracl) e
        JOIN grantees g ON g.oid = e.grantee
        ORDER BY p.parname COLLATE \"C\", g.name COLLATE \"C\", e.privilege_type COLLATE \"C\""
);

/// A trigger of ours calls a function of the schema. Who may make triggers may also replace one, so that it
/// calls another.
pub(super) const GUARDS: &str = "
        SELECT 'trigger' AS kind, c.relname::text AS object, t.tgname::text AS name,
            CASE WHEN p.pronamespace = c.relnamespace THEN t.tgenabled::text ELSE 'foreign' END AS state
        FROM pg_trigger t
        JOIN pg_class c ON c.oid = t.tgrelid
        JOIN pg_namespace n ON n.oid = c.relnamespace
        JOIN pg_proc p ON p.oid = t.tgfoid
        WHERE n.nspname = $1::text AND NOT t.tgisinternal
        UNION ALL
        SELECT 'rule', c.relname::text, r.rulename::text, ''
        FROM pg_rewrite r
        JOIN pg_class c ON c.oid = r.ev_class
        JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname = $1::text AND r.rulename <> '_RETURN'
        UNION ALL
        SELECT 'row security', c.relname::text, '', ''
        FROM pg_class c
        JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname = $1::text AND (c.relrowsecurity OR c.relforcerowsecurity)
        UNION ALL
        SELECT 'policy', c.relname::text, p.polname::text, ''
        FROM pg_policy p
        JOIN pg_class c ON c.oid = p.polrelid
        JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname = $1::text
        ORDER BY 2, 3, 1";
