//! Statements that read the rights of an account, and the triggers of the store, from tables of the server.

/// The account of `binds.role`, as `USER@HOST`. A name without a host is an account of every host, or else a
/// role of MariaDB, which has an empty host.
macro_rules! account_of_role {
    () => {
        "CASE
                    WHEN binds.role = '' THEN CURRENT_USER()
                    WHEN binds.role LIKE '%@%' THEN binds.role
                    WHEN of_every_host.grantee IS NOT NULL THEN CONCAT(binds.role, '@%')
                    ELSE CONCAT(binds.role, '@') END AS account"
    };
}
/// The accounts with which `binds` is joined for that. Not asked in a sub-select: MariaDB 10.11.18 forgets
/// columns with binds there, at the second execution of a prepared statement.
macro_rules! accounts {
    () => {
        "LEFT JOIN (SELECT DISTINCT grantee FROM information_schema.user_privileges) of_every_host
                    ON of_every_host.grantee = CONCAT(QUOTE(binds.role), '@''%''')"
    };
}

pub(super) use {account_of_role, accounts};

/// The account that is asked about, with the namespace. Binds: role, namespace.
macro_rules! account {
    () => {
        concat!(
            "(
            SELECT namespace,
                CONCAT(QUOTE(SUBSTRING_INDEX(account, '@', 1)), '@', QUOTE(SUBSTRING_INDEX(account, '@', -1)))
                    AS grantee
            FROM (
                SELECT namespace, ",
            account_of_role!(),
            "
                FROM (SELECT ? AS role, ? AS namespace) binds
                ",
            accounts!(),
            "
            ) named
        ) b"
        )
    };
}

/// The grantee of `p`, as a `REVOKE` names it: everybody and roles of MariaDB have no host.
macro_rules! named_grantee {
    () => {
        "CASE
                WHEN p.grantee = '''PUBLIC''@''''' THEN 'PUBLIC'
                WHEN RIGHT(p.grantee, 3) = '@''''' THEN LEFT(p.grantee, CHAR_LENGTH(p.grantee) - 3)
                ELSE p.grantee END AS grantee"
    };
}

/// The name of a database in a grant is a pattern. What is granted to nobody by name counts for everybody:
/// to `PUBLIC` on MariaDB, and on a database to the account without a name.
pub(super) const RIGHTS_HELD: &str = concat!(
    "
        SELECT p.kind, p.object_type, p.object, p.of_column, p.privilege, p.is_grantable,
            ",
    named_grantee!(),
    ", '' AS through
        FROM ",
    account!(),
    "
        JOIN (
            SELECT grantee, 'everything' AS kind, '' AS object_type, '' AS object, '' AS of_column,
                '' AS privilege, 'NO' AS is_grantable
            FROM information_schema.user_privileges
            WHERE privilege_type = 'GRANT OPTION' OR is_grantable = 'YES' AND privilege_type <> 'USAGE'
            UNION
            SELECT grantee, 'right', 'SERVER', '*.*', '', privilege_type, is_grantable
            FROM information_schema.user_privileges
            WHERE privilege_type <> 'USAGE' OR is_grantable = 'YES'
            UNION ALL
            SELECT grantee, 'right', 'DATABASE', CONCAT('`', REPLACE(table_schema, '`', '``'), '`.*'), '',
                privilege_type, is_grantable
            FROM information_schema.schema_privileges
            WHERE DATABASE() LIKE table_schema
            UNION ALL
            SELECT grantee, 'right', 'TABLE', table_name, '', privilege_type, is_grantable
            FROM information_schema.table_privileges
            WHERE table_schema = DATABASE()
            UNION ALL
            SELECT grantee, 'right', 'TABLE', table_name, column_name, privilege_type, is_grantable
            FROM information_schema.column_privileges
            WHERE table_schema = DATABASE()
        ) p ON p.grantee IN (b.grantee, '''PUBLIC''@''''', '''''@''%''')
        WHERE p.object_type <> 'TABLE'
            OR LEFT(p.object, CHAR_LENGTH(b.namespace) + 1) = CONCAT(b.namespace, '_')
        ORDER BY 2, 3, 7, 5, 4"
);

/// A role counts whether it is a default one or not: an account may take each one that it has. The comments
/// with an M are for MariaDB alone, those with 80000 for MySQL alone.
pub(super) const MORE_RIGHTS_HELD: &str = concat!(
    "
        SELECT p.kind, p.object_type, p.object, '' AS of_column, p.privilege, p.is_grantable,
            ",
    named_grantee!(),
    ", '' AS through
        FROM ",
    account!(),
    "
        JOIN (
            /*M!100600
            SELECT CAST(CONCAT(QUOTE(User), '@', QUOTE(Host)) AS CHAR) AS grantee, 'membership' AS kind,
                'ROLE' AS object_type, CAST(QUOTE(Role) AS CHAR) AS object, '' AS privilege,
                'NO' AS is_grantable
            FROM mysql.roles_mapping
            */
            /*!80000
            SELECT CAST(CONCAT(QUOTE(TO_USER), '@', QUOTE(TO_HOST)) AS CHAR) AS grantee, 'membership' AS kind,
                'ROLE' AS object_type,
                CAST(CONCAT(QUOTE(FROM_USER), '@', QUOTE(FROM_HOST)) AS CHAR) AS object, '' AS privilege,
                'NO' AS is_grantable
            FROM mysql.role_edges
            */
            UNION ALL
            SELECT CAST(CONCAT(QUOTE(User), '@', QUOTE(Host)) AS CHAR), 'membership', 'PROXY',
                CAST(CONCAT(QUOTE(Proxied_user), '@', QUOTE(Proxied_host)) AS CHAR), '', 'NO'
            FROM mysql.proxies_priv
            UNION ALL
            SELECT CAST(CONCAT(QUOTE(q.User), '@', QUOTE(q.Host)) AS CHAR), 'right',
                CAST(q.Routine_type AS CHAR), CAST(q.Routine_name AS CHAR), UPPER(w.privilege),
                CASE WHEN FIND_IN_SET('Grant', q.Proc_priv) > 0 THEN 'YES' ELSE 'NO' END
            FROM mysql.procs_priv q
            JOIN (SELECT 'Execute' AS privilege UNION ALL SELECT 'Alter Routine') w
                ON FIND_IN_SET(w.privilege, q.Proc_priv) > 0
            WHERE q.Db = DATABASE()
            UNION ALL
            SELECT CAST(CONCAT(QUOTE(q.User), '@', QUOTE(q.Host)) AS CHAR), 'outside',
                CAST(q.Routine_type AS CHAR), CAST(q.Routine_name AS CHAR), CAST(r.definer AS CHAR), 'NO'
            FROM mysql.procs_priv q
            JOIN information_schema.routines r ON r.routine_schema = DATABASE()
                AND r.routine_name = q.Routine_name
            WHERE q.Db = DATABASE() AND FIND_IN_SET('Execute', q.Proc_priv) > 0
                AND r.security_type = 'DEFINER'
        ) p ON p.grantee IN (b.grantee, '''PUBLIC''@''''')
        WHERE p.kind <> 'right' OR LEFT(p.object, CHAR_LENGTH(b.namespace) + 1) = CONCAT(b.namespace, '_')
        ORDER BY 2, 3, 7, 5"
);

/// The server shows triggers to an account with the right TRIGGER alone: `sees` says that it sees all.
pub(super) const GUARDS: &str = "
        SELECT 'trigger' AS kind, t.event_object_table AS object, t.trigger_name AS name, '' AS state
        FROM information_schema.triggers t
        CROSS JOIN (SELECT ? AS namespace) b
        WHERE t.event_object_schema = DATABASE()
            AND LEFT(t.event_object_table, CHAR_LENGTH(b.namespace) + 1) = CONCAT(b.namespace, '_')
        UNION ALL
        SELECT 'sees', '', '', ''
        FROM (
            SELECT CONCAT(QUOTE(SUBSTRING_INDEX(CURRENT_USER(), '@', 1)), '@',
                    QUOTE(SUBSTRING_INDEX(CURRENT_USER(), '@', -1))) AS grantee
        ) own
        WHERE EXISTS (
                SELECT 1
                FROM information_schema.user_privileges u
                WHERE u.grantee = own.grantee AND u.privilege_type = 'TRIGGER')
            OR EXISTS (
                SELECT 1
                FROM information_schema.schema_privileges s
                WHERE s.grantee = own.grantee AND s.privilege_type = 'TRIGGER'
                    AND DATABASE() LIKE s.table_schema)
        ORDER BY 2, 3, 1";
