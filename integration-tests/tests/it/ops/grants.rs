//! The rights of roles, as the tool prints them.
use crate::support::{
    cases::cases, database::SERVICE, shared_broker::documented_users, stores::World, tool::Tool,
};
use sqlx::{AssertSqlSafe, MySql, Postgres};
use twinbox::{
    ErrorKind, Store, StoreOptions,
    ops::{Ops, Role, grants_sql_mysql},
};
use uuid::Uuid;

async fn the_printed_grants_are_enough_for_roles_and_a_schema_of_any_name() {
    let world = World::<Postgres>::new().await;
    let options = StoreOptions::new().namespace("user");
    let store = Store::with_options(world.pool().clone(), SERVICE, options).unwrap();
    store.migrate().await.unwrap();
    let id = Uuid::now_v7().simple();
    let roles = [
        (Role::Producer, format!("Web shop {id}")),
        (Role::Producer, format!("web_{id}")),
        (Role::Runtime, format!("run\"time {id}")),
        (Role::Operator, format!("operator_{id}")),
    ];
    let quoted = |name: &str| format!("\"{}\"", name.replace('"', "\"\""));
    let named = Vec::from_iter(roles.iter().map(|(role, name)| format!("--role={name}={}", role.as_str())));
    let mut arguments = vec!["grants", "print", "--namespace", "user"];
    arguments.extend(named.iter().map(String::as_str));
    // It connects to nothing.
    let mut command = Tool::of(&world).command(&arguments);
    let printed = command.env_remove("DATABASE_URL").output().await.unwrap();
    assert!(printed.status.success(), "{printed:?}");
    let printed = String::from_utf8(printed.stdout).unwrap();
    assert!(!printed.contains("shop_"), "{printed}");
    let create = roles.iter().map(|(_, name)| format!("CREATE ROLE {};", quoted(name)));
    let create = String::from_iter(create);
    sqlx::raw_sql(AssertSqlSafe(format!("{create} {printed}"))).execute(world.pool()).await.unwrap();
    for (role, name) in &roles {
        assert_eq!(
            Ops::new(&store).missing_rights(Some(name), *role).await.unwrap(),
            Some(Vec::new()),
            "{name}"
        );
        assert_ne!(
            Ops::new(&world).missing_rights(Some(name), *role).await.unwrap(),
            Some(Vec::new()),
            "{name}"
        );
    }
    let names = Vec::from_iter(roles.iter().map(|(_, name)| quoted(name))).join(", ");
    let drop = format!("DROP OWNED BY {names}; DROP ROLE {names}");
    sqlx::raw_sql(AssertSqlSafe(drop)).execute(world.pool()).await.unwrap();
}

async fn without_roles_the_documented_ones_are_printed() {
    let tool = Tool::at::<Postgres>("");
    let printed = tool.ok(&["grants", "print"]).await;
    for role in ["producer", "web", "runtime", "keeper", "operator", "viewer", "redactor"] {
        assert!(printed.contains(&format!("\"shop_{role}\"")), "{role}: {printed}");
    }
    assert!(printed.contains("-- `Store::check` reads these."), "the page says why: {printed}");
    let refused = tool.ends(2, &["grants", "print", "--role", "web=boss"]).await;
    assert!(refused.contains("write `producer`, `web`, `runtime`"), "{refused}");
    let refused = tool.ends(2, &["grants", "print", "--role", "web"]).await;
    assert!(refused.contains("NAME=PURPOSE"), "{refused}");
}

async fn the_users_of_nats_are_printed_as_the_page_has_them() {
    let tool = Tool::at::<Postgres>("");
    assert_eq!(tool.ok(&["grants", "print", "--nats"]).await, documented_users());
    let users = ["--user=web-shop=relay", "--user=mail=ordered-consumer:mail.sender"];
    let stream = ["--nats-stream=SHOP", "--nats-streams=2", "--nats-prefix=shop", "--create-stream"];
    let printed = tool.ok(&[&["grants", "print", "--nats"], &users[..], &stream].concat()).await;
    for line in [
        "user: web-shop, password: $WEB_SHOP_PASSWORD",
        "\"shop.>\"",
        "\"$JS.API.STREAM.CREATE.SHOP-1\"",
        "\"$JS.ACK.SHOP-0.>\"",
        "\"_INBOX_mail.>\"",
    ] {
        assert_eq!(printed.matches(line).count(), 1, "{line}: {printed}");
    }
    for (user, why) in [
        ("relay", "NAME=PURPOSE"),
        ("relay=boss", "`ordered-consumer:NAME`"),
        ("a b=relay", "`inbox_prefix`"),
        ("billing=consumer:a b", "`consumer`"),
    ] {
        let refused = tool.ends(2, &["grants", "print", "--nats", "--user", user]).await;
        assert!(refused.contains(why), "{user}: {refused}");
    }
    tool.ends(2, &["grants", "print", "--user", "relay=relay"]).await;
}

/// A role of MariaDB has no host.
async fn a_role_of_mysql_is_checked_by_its_own_name() {
    let world = World::<MySql>::new().await;
    let role = format!("billing_{}", &Uuid::now_v7().simple().to_string()[12..]);
    let execute = async |sql: String| {
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(world.pool()).await.unwrap();
    };
    let ops = Ops::new(world.owner());
    let unknown = ops.missing_rights(Some(&role), Role::Producer).await.unwrap_err();
    assert_eq!(unknown.kind(), ErrorKind::NotFound);
    execute(format!("CREATE ROLE '{role}'")).await;
    execute(grants_sql_mysql("twinbox", &[(role.clone(), Role::Producer)]).unwrap()).await;
    execute(format!("GRANT SELECT ON twinbox_inbox TO '{role}'")).await;
    let missing = ops.missing_rights(Some(&role), Role::Producer).await;
    let excess = ops.excess_rights(Some(&role), &[Role::Producer]).await;
    execute(format!("DROP ROLE '{role}'")).await;
    assert_eq!(missing.unwrap(), Some(Vec::new()));
    let excess = Vec::from_iter(excess.unwrap().unwrap().iter().map(ToString::to_string));
    let version: String = sqlx::query_scalar("SELECT version()").fetch_one(world.pool()).await.unwrap();
    let host = if version.contains("MariaDB") { "" } else { "@'%'" };
    let revoke = format!("REVOKE SELECT ON `twinbox_inbox` FROM '{role}'{host}");
    assert_eq!(excess, [format!("SELECT ON twinbox_inbox: {revoke}")]);
}

cases! {
    postgres: [
        the_users_of_nats_are_printed_as_the_page_has_them,
        the_printed_grants_are_enough_for_roles_and_a_schema_of_any_name,
        without_roles_the_documented_ones_are_printed,
    ]
    mysql: [a_role_of_mysql_is_checked_by_its_own_name]
}
