//! The program `twinbox-relay` with a backlog on MariaDB.
use crate::{
    failure::Failure,
    nats::Server,
    orders,
    program::{self, Measured, Messages},
    report::Report,
    spread::Spread,
};
use sqlx::MySql;
use std::array;
use twinbox_testkit::database::{self, TestDatabase};

const MANY: usize = 200_000;
const SHORT: usize = 50_000;
const LONG: usize = 1_000_000;
const RUNS: usize = 5;

const ALONE: usize = 0;
const IN_BATCHES: usize = 1;
const BESIDE_WRITER: usize = 2;
const SHORT_BACKLOG: usize = 3;
const LONG_BACKLOG: usize = 4;

/// A backlog, how many of its first messages are timed, and whether they are sent in batches.
const CELLS: [(usize, usize, bool); 5] =
    [(MANY, MANY, false), (MANY, MANY, true), (MANY, MANY, true), (SHORT, SHORT, true), (LONG, SHORT, true)];

pub(super) async fn run(report: &mut Report) -> Result<(), Failure> {
    let server = Server::connect().await?;
    let stores = [filled(MANY).await?, filled(SHORT).await?, filled(LONG).await?];
    println!("relay: messages of 0.5 KB, {RUNS} interleaved runs");
    server.raw(MANY / 5).await?;
    let (mut raw, mut raw_in_batches) = (Vec::new(), Vec::new());
    let mut runs: [Vec<Measured>; CELLS.len()] = Default::default();
    for run in 0..RUNS {
        raw.push(server.raw(MANY).await?);
        let bytes = server.bytes_each(MANY).await?;
        raw_in_batches.push(server.raw_in_batches(MANY).await?.0);
        for (n, &(all, timed, in_batches)) in CELLS.iter().enumerate() {
            let store = match all {
                MANY => &stores[0],
                SHORT => &stores[1],
                _ => &stores[2],
            };
            // Dropped after the run, it rolls back.
            let mut writer = None;
            if n == BESIDE_WRITER {
                let open = writer.insert(store.begin().await?);
                store.outbox().publish_draft(open, orders::draft(0)).await?;
            }
            let name = format!("cell{n}_{run}");
            runs[n].push(program::relay(&server, store, &name, Messages { all, timed }, in_batches).await?);
            drop(writer);
            let relayed = server.bytes_each(all).await?;
            if (relayed - bytes).abs() > bytes / 50.0 {
                return Err(format!("a relayed message has {relayed:.0} bytes, a raw one {bytes:.0}").into());
            }
        }
        let rates: [f64; CELLS.len()] = array::from_fn(|n| runs[n][run].per_second);
        println!("  raw {:.0}/s, in batches {:.0}/s, relay {rates:.0?}", raw[run], raw_in_batches[run]);
    }
    server.delete().await;
    let rate = |n: usize| runs[n].iter().map(|run| run.per_second);
    let over = |a: usize, b: usize| Spread::of(rate(a).zip(rate(b)).map(|(a, b)| a / b));
    let over_raw = |n: usize, raw: &[f64]| Spread::of(rate(n).zip(raw).map(|(relay, raw)| relay / raw));
    let processor = |process: usize| Spread::of(runs[IN_BATCHES].iter().map(|run| run.processor[process]));
    report.add("MySQL: relay one by one / raw", over_raw(ALONE, &raw))?;
    report.add("MySQL: relay in batches / raw in batches", over_raw(IN_BATCHES, &raw_in_batches))?;
    report.add("MySQL: relay beside an open writer / without", over(BESIDE_WRITER, IN_BATCHES))?;
    report.add("MySQL: relay, first of 1,000,000 / of 50,000", over(LONG_BACKLOG, SHORT_BACKLOG))?;
    report.add("MySQL: relay: processor time a message, µs", processor(0))?;
    report.add("MySQL: MariaDB: processor time a message, µs", processor(1))
}

async fn filled(count: usize) -> Result<TestDatabase<MySql>, Failure> {
    let store = database::mysql().await;
    orders::publish(&store, count, |n| orders::draft(n).key(format!("o-{n}"))).await?;
    sqlx::raw_sql("ANALYZE TABLE twinbox_outbox").execute(store.pool()).await?;
    Ok(store)
}
