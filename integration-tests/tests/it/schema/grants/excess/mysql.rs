//! The ways on MySQL and MariaDB.
use super::{Way, Ways};
use sqlx::MySql;
use twinbox::ops::DeviationKind as Kind;

const MARIADB: i64 = 1;
const MYSQL: i64 = 2;

impl Ways for MySql {
    const VERSION: &str = "SELECT IF(version() LIKE '%MariaDB%', 1, 2)";
    const QUOTES: [&str; 2] = ["'", "'@'%'"];
    const CREATE_OTHER: &str = "CREATE ROLE {other}";
    const DROP_OTHER: &str = "DROP ROLE {other}";
    const HIDDEN: &[Kind] = &[Kind::NotVisible];
    const WAYS: &[Way] = &[
        Way::new(
            Kind::Right,
            "GRANT UPDATE (`key`, payload), TRIGGER ON twinbox_outbox TO {role}",
            "REVOKE UPDATE (`key`, payload), TRIGGER ON twinbox_outbox FROM {role}",
            &["REVOKE TRIGGER, UPDATE (`key`, `payload`) ON `twinbox_outbox` FROM {role}"],
        ),
        Way::new(
            Kind::Right,
            "GRANT SUPER, FILE, BINLOG ADMIN ON *.* TO {role}",
            "REVOKE SUPER, FILE, BINLOG ADMIN ON *.* FROM {role}",
            &["BINLOG ADMIN, FILE, SUPER ON *.*: REVOKE BINLOG ADMIN, FILE, SUPER ON *.* FROM {role}"],
        )
        .only(MARIADB),
        Way::new(
            Kind::Right,
            "GRANT SUPER, FILE, BINLOG_ADMIN ON *.* TO {role}",
            "REVOKE SUPER, FILE, BINLOG_ADMIN ON *.* FROM {role}",
            &["BINLOG_ADMIN, FILE, SUPER ON *.*: REVOKE BINLOG_ADMIN, FILE, SUPER ON *.* FROM {role}"],
        )
        .only(MYSQL),
        Way::new(
            Kind::Right,
            "GRANT TRIGGER, EVENT ON * TO {role}",
            "REVOKE TRIGGER, EVENT ON * FROM {role}",
            &["REVOKE EVENT, TRIGGER ON `twinbox_test_"],
        ),
        Way::new(
            Kind::Right,
            r"GRANT DELETE ON `twinbox\_test\_%`.* TO {role}",
            r"REVOKE DELETE ON `twinbox\_test\_%`.* FROM {role}",
            &[r"REVOKE DELETE ON `twinbox\_test\_%`.* FROM {role}"],
        ),
        Way::new(
            Kind::Right,
            "CREATE TABLE `twinbox_Spy; DROP ``x` (`User` bigint);
            GRANT SELECT, UPDATE (`User`) ON `twinbox_Spy; DROP ``x` TO {role}",
            "REVOKE SELECT, UPDATE (`User`) ON `twinbox_Spy; DROP ``x` FROM {role};
            DROP TABLE `twinbox_Spy; DROP ``x`",
            &["REVOKE SELECT, UPDATE (`User`) ON `twinbox_Spy; DROP ``x` FROM {role}"],
        ),
        Way::new(
            Kind::Right,
            "GRANT SELECT ON twinbox_inbox TO PUBLIC",
            "REVOKE SELECT ON twinbox_inbox FROM PUBLIC",
            &["SELECT ON twinbox_inbox, as everybody: REVOKE SELECT ON `twinbox_inbox` FROM PUBLIC"],
        )
        .only(MARIADB),
        Way::new(
            Kind::Right,
            "CREATE PROCEDURE twinbox_peek() SQL SECURITY INVOKER SELECT 1;
            GRANT EXECUTE ON PROCEDURE twinbox_peek TO {role}",
            "DROP PROCEDURE twinbox_peek",
            &["REVOKE EXECUTE ON PROCEDURE `twinbox_peek` FROM {role}"],
        ),
        Way::new(
            Kind::OutsideSchema,
            "CREATE PROCEDURE peek() SQL SECURITY DEFINER SELECT 1;
            GRANT EXECUTE ON PROCEDURE peek TO {role}",
            "DROP PROCEDURE peek",
            &["PROCEDURE peek has the rights of ", "REVOKE EXECUTE ON PROCEDURE `peek` FROM {role}"],
        ),
        Way::new(
            Kind::GrantOption,
            "GRANT SELECT ON twinbox_meta TO {role} WITH GRANT OPTION",
            "REVOKE GRANT OPTION ON twinbox_meta FROM {role}",
            &[
                "may grant SELECT ON twinbox_meta to others: ",
                "REVOKE GRANT OPTION ON `twinbox_meta` FROM {role}",
            ],
        ),
        Way::new(
            Kind::GrantOption,
            "GRANT USAGE ON *.* TO {role} WITH GRANT OPTION",
            "REVOKE GRANT OPTION ON *.* FROM {role}",
            &["REVOKE GRANT OPTION ON *.* FROM {role}"],
        ),
        Way::new(
            Kind::Membership,
            "GRANT {other} TO {role}",
            "REVOKE {other} FROM {role}",
            &["is a member of '{other}': REVOKE '{other}' FROM {role}"],
        )
        .only(MARIADB),
        Way::new(
            Kind::Membership,
            "GRANT {other} TO {role}",
            "REVOKE {other} FROM {role}",
            &["is a member of '{other}'@'%': REVOKE '{other}'@'%' FROM {role}"],
        )
        .only(MYSQL),
        Way::new(
            Kind::Membership,
            r#"SET @sql = CONCAT("GRANT PROXY ON '", REPLACE(CURRENT_USER(), "@", "'@'"), "' TO {role}");
            PREPARE act FROM @sql; EXECUTE act; DEALLOCATE PREPARE act"#,
            r#"SET @sql = CONCAT("REVOKE PROXY ON '", REPLACE(CURRENT_USER(), "@", "'@'"), "' FROM {role}");
            PREPARE act FROM @sql; EXECUTE act; DEALLOCATE PREPARE act"#,
            &["may act as ", "REVOKE PROXY ON ", " FROM {role}"],
        ),
    ];
}
