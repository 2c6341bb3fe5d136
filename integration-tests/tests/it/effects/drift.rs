//! Drift: rows without their effects, effects without their rows, and what stays undone.
use crate::support::{
    cases::cases,
    consumer::publish,
    database::SERVICE,
    databases::{MySql, Postgres},
    effects::{mail, plan},
    long,
    operations::{answer, expire, key, open, open_lease, runs_out},
    postgres::counts_late,
    stores::{TestDb, World, sql},
};
use integration_tests::vendors::VENDOR;
use sqlx::{AssertSqlSafe, Sqlite};
use std::time::Duration;
use twinbox::{
    Dialect, ErrorKind, Store,
    effects::{
        Effects,
        drift::{CheckReport, Drift, DriftReport, Expectation, FINDINGS_MAX, Sweep},
    },
    log::{Reader, ReaderOptions},
};
use uuid::Uuid;

const CAPTURED: &str = "webhook.payment_captured";
const MINUTE: Duration = Duration::from_secs(60);

/// A table of payments, as an application has it on each database.
trait Shop: TestDb {
    const PAYMENTS: &str;
    /// Inserts payments: their ids, their state, and minutes since it changed.
    const INSERT: &str;
    /// The kind of a second effect of one source.
    const SECOND: &str;
    /// Lets a source have a second effect of a kind, where that is possible.
    async fn break_uniqueness(world: &World<Self>);
}

#[cfg(feature = "postgres")]
impl Shop for Postgres {
    const PAYMENTS: &str = "CREATE TABLE payments (
        id uuid PRIMARY KEY, status text NOT NULL, updated_at timestamptz NOT NULL)";
    const INSERT: &str = "INSERT INTO payments VALUES ($1, $2, now() - $3 * interval '1 minute')";
    const SECOND: &str = CAPTURED;

    async fn break_uniqueness(world: &World<Self>) {
        let drop = "ALTER TABLE twinbox.side_effects DROP CONSTRAINT side_effects_source_id_kind_key";
        world.execute(drop).await;
        world.execute("CREATE INDEX side_effects_source ON twinbox.side_effects (source_id, kind)").await;
    }
}

/// SQLite drops no constraint: another qualifier counts like a second row.
impl Shop for Sqlite {
    const PAYMENTS: &str = "CREATE TABLE payments (
        id BLOB PRIMARY KEY, status TEXT NOT NULL, updated_at INTEGER NOT NULL)";
    const INSERT: &str = "INSERT INTO payments VALUES
        ($1, $2, CAST(unixepoch('subsec') * 1000000 AS INTEGER) - $3 * 60000000)";
    const SECOND: &str = "webhook.payment_captured:again";

    async fn break_uniqueness(_world: &World<Self>) {}
}

/// Another qualifier counts like a second row.
#[cfg(feature = "mysql")]
impl Shop for MySql {
    const PAYMENTS: &str = "CREATE TABLE payments (
        id BINARY(16) PRIMARY KEY, status VARCHAR(64) NOT NULL, updated_at DATETIME(6) NOT NULL)";
    const INSERT: &str = "INSERT INTO payments VALUES ($1, $2, TIMESTAMPADD(MINUTE, -$3, UTC_TIMESTAMP(6)))";
    const SECOND: &str = "webhook.payment_captured:again";

    async fn break_uniqueness(_world: &World<Self>) {}
}

async fn pay<DB: Shop>(world: &World<DB>, status: &str, minutes_ago: i64) -> Uuid {
    let (id, mut conn) = (Uuid::now_v7(), world.pool().acquire().await.unwrap());
    let insert = sqlx::query::<DB>(sql::<DB>(DB::INSERT)).bind(id).bind(status.to_owned()).bind(minutes_ago);
    insert.execute(&mut *conn).await.unwrap();
    id
}

/// Plans in SQL, so that a second effect is not refused by the library.
async fn announce<DB: Shop>(world: &World<DB>, source: Uuid, kind: &str) {
    let table = DB::table_of("side_effects");
    let insert =
        format!("INSERT INTO {table} (source_id, kind, vendor, request) VALUES ($1, $2, '{VENDOR}', $3)");
    let mut conn = world.pool().acquire().await.unwrap();
    let insert = sqlx::query::<DB>(sql::<DB>(&insert)).bind(source).bind(kind.to_owned());
    insert.bind(b"{}".to_vec()).execute(&mut *conn).await.unwrap();
}

async fn delete<DB: Shop>(world: &World<DB>, table: &str, column: &str, id: Uuid) {
    let delete = format!("DELETE FROM {table} WHERE {column} = $1");
    let mut conn = world.pool().acquire().await.unwrap();
    sqlx::query::<DB>(sql::<DB>(&delete)).bind(id).execute(&mut *conn).await.unwrap();
}

/// A shop with payments of which thirty are captured and announced.
async fn shop<DB: Shop>() -> (World<DB>, Vec<Uuid>) {
    let world = World::<DB>::new().await;
    world.execute(DB::PAYMENTS).await;
    let mut captured = Vec::new();
    for _ in 0..30 {
        let id = pay(&world, "captured", 60).await;
        announce(&world, id, CAPTURED).await;
        captured.push(id);
        // Neither these nor those below are due.
        pay(&world, "authorized", 60).await;
    }
    pay(&world, "captured", 5).await;
    pay(&world, "captured", 60 * 24 * 30).await;
    (world, captured)
}

fn captured_once() -> Expectation {
    Expectation::exactly(1)
        .of(CAPTURED)
        .per("payments")
        .where_sql("status = 'captured'")
        .after(15 * MINUTE, "updated_at")
}

async fn run<DB: Dialect>(store: &Store<DB>, expectation: Expectation, sweep: Sweep) -> DriftReport {
    Drift::new(store).expect(expectation).unwrap().run_once(sweep).await.unwrap()
}

fn check<'a>(report: &'a DriftReport, name: &str) -> &'a CheckReport {
    report.checks.iter().find(|check| check.check == name).unwrap_or_else(|| panic!("{name}: {report}"))
}

fn objects(report: &DriftReport, name: &str) -> Vec<String> {
    check(report, name).findings.iter().map(|finding| finding.object.clone()).collect()
}

const MISSING: &str = "missing webhook.payment_captured per payments";
const EXTRA: &str = "extra webhook.payment_captured per payments";
const ORPHAN: &str = "orphan webhook.payment_captured";

/// R73, t30: one effect is deleted and another one doubled; one run names both.
async fn a_missing_and_a_second_effect_are_named_in_one_run<DB: Shop>() {
    for sweep in [Sweep::Full, Sweep::Sample(1000)] {
        let (world, captured) = shop::<DB>().await;
        let clean = run(&world, captured_once(), sweep).await;
        assert!(clean.is_clean() && clean.exit_code() == 0, "{clean}");
        assert_eq!(check(&clean, MISSING).examined, 62);
        let (lost, doubled) = (captured[7], captured[11]);
        delete(&world, &DB::table_of("side_effects"), "source_id", lost).await;
        DB::break_uniqueness(&world).await;
        announce(&world, doubled, DB::SECOND).await;

        let report = run(&world, captured_once(), sweep).await;
        assert_eq!(objects(&report, MISSING), [lost.to_string()], "{report}");
        assert_eq!(objects(&report, EXTRA), [doubled.to_string()], "{report}");
        assert_eq!((check(&report, ORPHAN).open, report.exit_code()), (0, 7));
        let text = report.to_string();
        assert!(text.contains(&format!("{lost}  0 instead of 1")), "{text}");
        assert!(text.contains(&format!("{doubled}  2 instead of 1")), "{text}");
        // Seen again it is the same finding.
        let again = run(&world, captured_once(), sweep).await;
        assert_eq!(check(&again, MISSING).findings, check(&report, MISSING).findings);
        assert_eq!(world.rows("drift_findings").await, 2);

        announce(&world, lost, CAPTURED).await;
        let table = DB::table_of("side_effects");
        let newest = format!("SELECT max(position) FROM {table} WHERE kind = '{}'", DB::SECOND);
        let newest = match DB::MODULE {
            "sqlite" | "mysql" => world.number(newest).await,
            _ => world.number(format!("SELECT max(position) - 1 FROM {table}")).await,
        };
        let mut conn = world.pool().acquire().await.unwrap();
        let mended = format!("DELETE FROM {table} WHERE position = {newest}");
        sqlx::raw_sql(AssertSqlSafe(mended)).execute(&mut *conn).await.unwrap();
        drop(conn);
        let mended = run(&world, captured_once(), sweep).await;
        assert!(mended.is_clean() && mended.exit_code() == 0, "{mended}");
        assert_eq!((check(&mended, MISSING).resolved, check(&mended, EXTRA).resolved), (1, 1));
        let resolved =
            format!("SELECT count(*) FROM {} WHERE resolved_at IS NOT NULL", DB::table_of("drift_findings"));
        assert_eq!(world.number(resolved).await, 2);
    }
}

/// D27: effects of all qualifiers count, and no other kind that begins alike.
async fn each_qualifier_of_a_kind_counts<DB: Shop>() {
    let (world, captured) = shop::<DB>().await;
    for id in &captured {
        announce(&world, *id, "webhook.payment_captured:ep_2").await;
        announce(&world, *id, "webhook.payment_captured_late").await;
    }
    let twice = Expectation::exactly(2)
        .of(CAPTURED)
        .per("payments")
        .where_sql("status = 'captured'")
        .after(15 * MINUTE, "updated_at");
    let report = run(&world, twice, Sweep::Full).await;
    assert!(report.is_clean(), "{report}");
    let once = run(&world, captured_once(), Sweep::Full).await;
    assert_eq!((check(&once, EXTRA).open, check(&once, MISSING).open), (30, 0));
    // A finding whose row is no longer expected to have effects is resolved.
    world.execute("UPDATE payments SET status = 'refunded'").await;
    let later = run(&world, captured_once(), Sweep::Sample(10)).await;
    assert_eq!((check(&later, EXTRA).open, check(&later, EXTRA).resolved), (0, 30));
}

async fn an_effect_without_its_row_is_an_orphan<DB: Shop>() {
    let (world, captured) = shop::<DB>().await;
    plan(&world, mail("another kind has no expectation")).await;
    delete(&world, "payments", "id", captured[3]).await;
    for sweep in [Sweep::Full, Sweep::Sample(1000)] {
        let report = run(&world, captured_once(), sweep).await;
        assert_eq!(objects(&report, ORPHAN), ["4"], "{report}");
        assert_eq!((check(&report, MISSING).open, check(&report, EXTRA).open), (0, 0));
    }
    // It belongs to a row of another table with the same kind.
    world.execute("CREATE TABLE old_payments AS SELECT * FROM payments").await;
    let insert = DB::INSERT.replace("payments", "old_payments");
    let mut conn = world.pool().acquire().await.unwrap();
    let insert = sqlx::query::<DB>(sql::<DB>(&insert)).bind(captured[3]).bind("old".to_owned()).bind(60_i64);
    insert.execute(&mut *conn).await.unwrap();
    drop(conn);
    let old = Expectation::exactly(1)
        .of(CAPTURED)
        .per("old_payments")
        .where_sql("false")
        .after(15 * MINUTE, "updated_at");
    let drift = Drift::new(&*world).expect(captured_once()).unwrap().expect(old.clone()).unwrap();
    let report = drift.run_once(Sweep::Full).await.unwrap();
    assert!(report.is_clean() && check(&report, ORPHAN).resolved == 1, "{report}");
    let twice = Drift::new(&*world).expect(old.clone()).unwrap().expect(old).unwrap_err();
    assert!(twice.kind() == ErrorKind::Configuration && twice.to_string().contains("there twice"), "{twice}");
}

/// A run goes under the id that its scheduler gives, and stops at its bound.
async fn a_run_has_an_id_and_a_bound<DB: Shop>() {
    let world = World::<DB>::new().await;
    world.execute(DB::PAYMENTS).await;
    let mut tx = world.begin().await.unwrap();
    for _ in 0..=FINDINGS_MAX {
        let insert = sqlx::query::<DB>(sql::<DB>(DB::INSERT)).bind(Uuid::now_v7());
        insert.bind("captured".to_owned()).bind(60_i64).execute(&mut *tx).await.unwrap();
    }
    tx.commit().await.unwrap();
    let (drift, run_id) = (Drift::new(&*world).expect(captured_once()).unwrap(), Uuid::now_v7());
    for _ in 0..2 {
        let report = drift.run_as(run_id, Sweep::Full).await.unwrap();
        assert_eq!(report.run_id, run_id);
        let missing = check(&report, MISSING);
        assert!(missing.is_cut && missing.findings.len() == FINDINGS_MAX, "{}", missing.findings.len());
        assert!(report.to_string().contains("and 980 more"), "{report}");
        assert_eq!(world.rows("drift_findings").await, FINDINGS_MAX as i64);
        let runs = format!("SELECT count(DISTINCT run_id) FROM {}", DB::table_of("drift_findings"));
        assert_eq!(world.number(runs).await, 1);
    }
    let wrong = Expectation::exactly(1).of(CAPTURED).per("no_table").after(MINUTE, "at");
    let error = Drift::new(&*world).expect(wrong).unwrap().run_once(Sweep::Full).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Database);
}

/// Effects, requests and messages that stay undone are found.
async fn what_stays_undone_is_found<DB: Shop>() {
    let world = World::<DB>::new().await;
    let table = DB::table_of("side_effects");
    for (n, set) in [
        "state = 'fired'",
        "state = 'unknown', next_attempt_at = NULL",
        "state = 'failed', next_attempt_at = NULL",
    ]
    .into_iter()
    .enumerate()
    {
        plan(&world, mail(set)).await;
        let set = format!("UPDATE {table} SET {set} WHERE position = {}", n + 1);
        let mut conn = world.pool().acquire().await.unwrap();
        sqlx::raw_sql(AssertSqlSafe(set)).execute(&mut *conn).await.unwrap();
    }
    let mut request = open_lease(&world, &key("a"), "1").await;
    request.save("charged ch_1").await.unwrap();
    drop(request);
    runs_out(&world).await;
    let ended = open(&world, &key("b"), "1").await;
    ended.commit(&answer("1")).await.unwrap();
    let quiet = Drift::new(&*world).run_once(Sweep::Full).await.unwrap();
    assert_eq!(quiet.oldest_expired, Duration::ZERO, "{quiet}");
    expire(&world).await;
    let reader = Reader::open(&world, "nats", Uuid::now_v7(), ReaderOptions::new()).await.unwrap().unwrap();
    publish(&world, 0..3).await;
    let failing = format!(
        "INSERT INTO {} (consumer, message_id, failures, last_error) VALUES ('billing', $1, 3, 'no')",
        DB::table_of("attempts")
    );
    let mut conn = world.pool().acquire().await.unwrap();
    sqlx::query::<DB>(sql::<DB>(&failing)).bind(Uuid::nil()).execute(&mut *conn).await.unwrap();
    drop(conn);

    let quiet = Drift::new(&*world).run_once(Sweep::Full).await.unwrap();
    assert!(quiet.is_clean(), "it is not old enough: {quiet}");
    assert!(quiet.oldest_expired > Duration::ZERO);
    let drift = Drift::new(&*world).stuck_after(Duration::ZERO);
    let report = drift.run_once(Sweep::Full).await.unwrap();
    for (check, object) in [("overdue", "1"), ("unknown", "2"), ("failed", "3"), ("backlog", "nats")] {
        assert_eq!(objects(&report, check), [object], "{report}");
    }
    assert_eq!(objects(&report, "failing"), [format!("billing {}", Uuid::nil())]);
    let slot = key("a").slot().map(|byte| format!("{byte:02x}")).concat();
    assert_eq!(objects(&report, "unfinished"), [slot]);
    let text = report.to_string();
    assert!(text.contains("email.welcome for mail, fired") && text.contains("effects resolve"), "{text}");
    reader.close().await.unwrap();
    let mut conn = world.pool().acquire().await.unwrap();
    let ended = format!("DELETE FROM {table}; DELETE FROM {}", DB::table_of("attempts"));
    sqlx::raw_sql(AssertSqlSafe(ended)).execute(&mut *conn).await.unwrap();
    drop(conn);
    let report = drift.run_once(Sweep::Full).await.unwrap();
    let open = Vec::from_iter(report.checks.iter().filter(|check| check.open > 0).map(CheckReport::word));
    assert_eq!(open, ["unfinished", "backlog"], "{report}");
    assert!(Effects::new(&world).get(1).await.unwrap().is_none());
}

/// Counts what a session has read before its answer comes. Otherwise the server counts it within a second.
const COUNT_ALL: &str = "SELECT pg_stat_force_next_flush()";

/// A sample of a large table reads no more than a sample.
async fn a_sample_of_a_large_table_reads_no_more_than_it_says() {
    let world = World::<Postgres>::new().await;
    if counts_late(world.pool()).await {
        return;
    }
    world.execute(Postgres::PAYMENTS).await;
    let fill = format!(
        "INSERT INTO payments
        SELECT gen_random_uuid(), CASE WHEN n % 100 = 0 THEN 'captured' ELSE 'authorized' END,
            now() - interval '1 hour'
        FROM generate_series(1, {}) n;
        INSERT INTO twinbox.side_effects (source_id, kind, vendor, request)
        SELECT id, 'webhook.payment_captured', 'mail', '' FROM payments;
        ANALYZE payments, twinbox.side_effects; {COUNT_ALL}",
        long::or(300_000, 50_000)
    );
    sqlx::raw_sql(AssertSqlSafe(fill)).execute(world.pool()).await.unwrap();
    let read = async |what: &str| {
        let of = |table: &str| format!("(SELECT {what} FROM pg_stat_user_tables WHERE relname = '{table}')");
        let sum = format!("SELECT {} + {}", of("payments"), of("side_effects"));
        world.number(sum).await
    };
    let (scanned, fetched) = (read("seq_tup_read").await, read("idx_tup_fetch").await);
    let pool = world.twin(1).await;
    let store = Store::new(pool.clone(), SERVICE).unwrap();
    for _ in 0..8 {
        let report = run(&store, captured_once(), Sweep::Sample(1000)).await;
        assert!(report.is_clean(), "{report}");
        assert_eq!((check(&report, MISSING).examined, check(&report, ORPHAN).examined), (1000, 1000));
    }
    // On the connection that has read.
    sqlx::raw_sql(COUNT_ALL).execute(&pool).await.unwrap();
    let fetched = read("idx_tup_fetch").await - fetched;
    assert_eq!(read("seq_tup_read").await - scanned, 0, "no table was read as a whole");
    // Each of 8 runs: 1,000 payments, 1,000 effects with their payments, and the two ends of each table.
    assert!((1..=8 * 4_000).contains(&fetched), "{fetched} rows were read");
}

cases! {
    all: [
        a_missing_and_a_second_effect_are_named_in_one_run,
        a_run_has_an_id_and_a_bound,
        an_effect_without_its_row_is_an_orphan,
        each_qualifier_of_a_kind_counts,
        what_stays_undone_is_found,
    ]
    postgres: [a_sample_of_a_large_table_reads_no_more_than_it_says]
}
