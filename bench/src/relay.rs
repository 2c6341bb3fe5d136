//! The program `twinbox-relay` with a backlog, as a ratio to a bare client that sends the same bytes.
use crate::{
    failure::Failure,
    nats::Server,
    orders,
    program::{self, Measured, Messages},
    report::Report,
    spread::Spread,
};
use sqlx::Postgres;
use std::array;
use twinbox_testkit::database::TestDatabase;

const MANY: usize = 400_000;
const FEW: usize = 20_000;
const SHORT: usize = 50_000;
const LONG: usize = 1_000_000;
const RUNS: usize = 5;

/// A backlog, and how it is sent.
struct Cell {
    backlog: usize,
    /// How many of its first messages are timed: the broker gets slower while its stream grows.
    timed: usize,
    keys: usize,
    in_batches: bool,
    /// Beside a transaction that has published and stays open.
    beside_writer: bool,
}

const UNIQUE: usize = 0;
const HUNDRED: usize = 1;
const ONE_KEY: usize = 2;
const ALONE: usize = 3;
const ONE_KEY_ALONE: usize = 4;
const SHORT_BACKLOG: usize = 5;
const LONG_BACKLOG: usize = 6;
const BESIDE_WRITER: usize = 7;

const fn cell(backlog: usize, keys: usize) -> Cell {
    Cell { backlog, timed: backlog, keys, in_batches: true, beside_writer: false }
}

const CELLS: [Cell; 8] = [
    cell(MANY, MANY),
    cell(MANY, 100),
    cell(MANY, 1),
    Cell { in_batches: false, ..cell(MANY, MANY) },
    Cell { in_batches: false, ..cell(FEW, 1) },
    cell(SHORT, SHORT),
    Cell { timed: SHORT, ..cell(LONG, LONG) },
    Cell { beside_writer: true, ..cell(MANY, MANY) },
];

pub(crate) async fn run(report: &mut Report) -> Result<(), Failure> {
    let server = Server::connect().await?;
    let mut stores: Vec<(usize, usize, TestDatabase<Postgres>)> = Vec::new();
    for cell in &CELLS {
        if !stores.iter().any(|(backlog, keys, _)| (*backlog, *keys) == (cell.backlog, cell.keys)) {
            stores.push((cell.backlog, cell.keys, orders::filled(cell.backlog, cell.keys).await?));
        }
    }
    println!("messages of 0.5 KB, {RUNS} interleaved runs");
    server.raw(MANY / 5).await?;
    let (mut raw, mut raw_in_batches, mut raw_processor) = (Vec::new(), Vec::new(), Vec::new());
    let mut runs: [Vec<Measured>; CELLS.len()] = Default::default();
    for run in 0..RUNS {
        raw.push(server.raw(MANY).await?);
        let bytes = server.bytes_each(MANY).await?;
        let (rate, processor) = server.raw_in_batches(MANY).await?;
        raw_in_batches.push(rate);
        raw_processor.push(processor);
        for (n, cell) in CELLS.iter().enumerate() {
            let is_it =
                |(backlog, keys, _): &&(usize, usize, _)| (*backlog, *keys) == (cell.backlog, cell.keys);
            let (.., store) = stores.iter().find(is_it).ok_or("a backlog is missing")?;
            // Dropped after the run, it rolls back.
            let mut writer = None;
            if cell.beside_writer {
                let open = writer.insert(store.begin().await?);
                store.outbox().publish_draft(open, orders::draft(0)).await?;
            }
            let name = format!("cell{n}_{run}");
            let messages = Messages { all: cell.backlog, timed: cell.timed };
            let measured = program::relay(&server, store, &name, messages, cell.in_batches).await?;
            drop(writer);
            let relayed = server.bytes_each(cell.backlog).await?;
            // Keys and numbers have fewer digits in a short backlog.
            if (relayed - bytes).abs() > bytes / 50.0 {
                return Err(format!("a relayed message has {relayed:.0} bytes, a raw one {bytes:.0}").into());
            }
            runs[n].push(measured);
        }
        let rates: [f64; CELLS.len()] = array::from_fn(|n| runs[n][run].per_second);
        println!("  raw {:.0}/s, in batches {:.0}/s, relay {rates:.0?}", raw[run], raw_in_batches[run]);
    }
    server.delete().await;
    let rate = |n: usize| runs[n].iter().map(|run| run.per_second);
    let over = |a: usize, b: usize| Spread::of(rate(a).zip(rate(b)).map(|(a, b)| a / b));
    let over_raw = |n: usize, raw: &[f64]| Spread::of(rate(n).zip(raw).map(|(relay, raw)| relay / raw));
    report.add("raw one by one, messages/s", Spread::of(raw.clone()))?;
    report.add("raw in batches, messages/s", Spread::of(raw_in_batches.clone()))?;
    report.add("relay in batches, messages/s", Spread::of(rate(UNIQUE)))?;
    report.add("relay of one key one by one, messages/s", Spread::of(rate(ONE_KEY_ALONE)))?;
    report.add("relay in batches / raw in batches", over_raw(UNIQUE, &raw_in_batches))?;
    report.add("relay in batches / raw one by one", over_raw(UNIQUE, &raw))?;
    report.add("relay one by one / raw one by one", over_raw(ALONE, &raw))?;
    report.add("relay: one key / unique keys", over(ONE_KEY, UNIQUE))?;
    report.add("relay: 100 keys / unique keys", over(HUNDRED, UNIQUE))?;
    report.add("relay: first of 1,000,000 behind / of 50,000", over(LONG_BACKLOG, SHORT_BACKLOG))?;
    report.add("relay beside an open writer / without", over(BESIDE_WRITER, UNIQUE))?;
    let processor = |process: usize| Spread::of(runs[UNIQUE].iter().map(|run| run.processor[process]));
    let of_raw = |process: usize| Spread::of(raw_processor.iter().map(|worked| worked[process]));
    report.add("raw in batches: processor time a message, µs", of_raw(0))?;
    report.add("NATS beside it: processor time a message, µs", of_raw(1))?;
    report.add("relay: processor time a message, µs", processor(0))?;
    report.add("Postgres: processor time a message, µs", processor(1))?;
    report.add("NATS: processor time a message, µs", processor(2))?;
    let memory = Spread::of(runs[LONG_BACKLOG].iter().map(|run| run.memory));
    report.add("relay: memory, 1,000,000 behind, MiB", memory)
}
