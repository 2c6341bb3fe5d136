//! The password of a database changes while the relay runs.
use super::*;
use crate::support::{
    databases::PROCESSES,
    program::{destination, logged},
};
use sqlx::{AssertSqlSafe, MySql, Pool};
use std::process::Stdio;
use tokio::io::{AsyncBufReadExt as _, BufReader};

const USER: &str = "rotated";

/// The relay goes on with the URL that its file holds after a change. `url` makes the URL of the relay's user
/// with a password, `change` sets it and ends the connections of the user.
async fn goes_on_after_a_change<DB: Dialect>(
    store: &Store<DB>,
    url: impl Fn(&str) -> String,
    change: impl AsyncFn(&str),
) {
    let (folder, target) = (tempfile::tempdir().unwrap(), Target::shared());
    let (file, config) = (folder.path().join("url"), folder.path().join("relay.toml"));
    let service = database::SERVICE;
    let toml = format!("[database]\nurl_file = {file:?}\nservice = {service:?}\n[log]\nformat = \"json\"\n")
        + &destination("events", &target, "create_stream = true");
    std::fs::write(&config, toml).unwrap();
    change("one").await;
    std::fs::write(&file, url("one")).unwrap();
    publish(store, 0..MESSAGES).await;
    let mut program = Command::new(helper::program("twinbox-relay"));
    program.args(["run", "--config"]).arg(&config).env_remove("RUST_LOG").stderr(Stdio::piped());
    let mut relay = program.kill_on_drop(true).spawn().unwrap();
    let mut log = BufReader::new(relay.stderr.take().unwrap()).lines();
    target.holds(u64::from(MESSAGES), ConnectOptions::new()).await;
    let two = url("two");
    std::fs::write(&file, &two[..two.len() / 2]).unwrap();
    logged(&mut log, "new connections use the last database URL").await;
    change("two").await;
    std::fs::write(&file, two).unwrap();
    logged(&mut log, "new connections use the changed login").await;
    publish(store, MESSAGES..2 * MESSAGES).await;
    target.holds(u64::from(2 * MESSAGES), ConnectOptions::new()).await;
}

async fn run<DB: Dialect>(pool: &Pool<DB>, sql: String) {
    let mut conn = pool.acquire().await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut *conn).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_password_of_postgres_is_read_without_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let ours = Authority::new(folder.path(), "ours");
    let server = postgres(folder.path(), &ours).await;
    let url = |user: &str, password: &str| {
        format!("postgres://{user}:{password}@127.0.0.1:{}/postgres?sslmode=require", server.port())
    };
    let pool = PgPool::connect(&url("postgres", "secret")).await.unwrap();
    let store = Store::new(pool.clone(), database::SERVICE).unwrap();
    store.migrate().await.unwrap();
    run(&pool, format!("CREATE ROLE {USER} LOGIN SUPERUSER")).await;
    let change = async |password: &str| {
        let set = format!("ALTER ROLE {USER} PASSWORD '{password}'");
        let end = format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{USER}'");
        run(&pool, format!("{set}; {end}")).await;
    };
    goes_on_after_a_change(&store, |password| url(USER, password), change).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_password_of_mysql_is_read_without_a_restart() {
    let store = database::mysql().await;
    let (head, database) = store.url().rsplit_once('/').unwrap();
    let server = head.rsplit_once('@').map_or(head, |(_, server)| server).to_owned();
    let database = database.split('?').next().unwrap();
    let user = format!("{USER}_{}", &Uuid::now_v7().simple().to_string()[20..]);
    let pool: &Pool<MySql> = store.pool();
    run(pool, format!("CREATE USER '{user}' IDENTIFIED BY 'none'")).await;
    run(pool, format!("GRANT ALL ON *.* TO '{user}'")).await;
    let change = async |password: &str| {
        run(pool, format!("ALTER USER '{user}' IDENTIFIED BY '{password}'")).await;
        let list = format!("SELECT CAST(id AS SIGNED) FROM {PROCESSES} WHERE user = '{user}'");
        let ids: Vec<i64> = sqlx::query_scalar(AssertSqlSafe(list)).fetch_all(pool).await.unwrap();
        for id in ids {
            // It may have ended by itself.
            let _ = sqlx::raw_sql(AssertSqlSafe(format!("KILL {id}"))).execute(pool).await;
        }
    };
    let url = |password: &str| format!("mysql://{user}:{password}@{server}/{database}");
    goes_on_after_a_change(&store, url, change).await;
    run(pool, format!("DROP USER '{user}'")).await;
}
