//! Each option that takes a duration takes none and the longest: no panic, and other work goes on.
mod brokers;
mod consumers;
mod options;
mod requests;
mod senders;

use futures::{
    FutureExt as _,
    future::{LocalBoxFuture, join_all},
};
use std::{collections::BTreeSet, panic::AssertUnwindSafe, time::Duration};
use tokio::time::timeout;

/// An option, and the work that is done with it.
pub(crate) struct Tried {
    option: &'static str,
    work: fn(Duration) -> LocalBoxFuture<'static, ()>,
}

macro_rules! tried {
    ($($option:literal: |$duration:ident| $work:expr,)*) => {
        pub(super) const TRIED: &[$crate::durations::Tried] = &[$($crate::durations::Tried {
            option: $option,
            work: |$duration| Box::pin(async move { $work.await; }),
        },)*];
    };
}
use tried;

/// No work takes so long, also on a machine that is busy.
const WORK_MAX: Duration = Duration::from_secs(120);

/// A time that is over at once may fail. The longest time must work, or be refused before anything begins.
fn is_long(duration: Duration) -> bool {
    duration == Duration::MAX
}

async fn work_with_all(tried: &[Tried]) {
    let works = tried.iter().flat_map(|tried| {
        [Duration::ZERO, Duration::MAX].map(|duration| async move {
            let work = AssertUnwindSafe((tried.work)(duration)).catch_unwind();
            let why = match timeout(WORK_MAX, work).await {
                Ok(Ok(())) => return None,
                Ok(Err(_)) => "it panics",
                Err(_) => "it does not end",
            };
            Some(format!("{} of {duration:?}: {why}", tried.option))
        })
    });
    let problems = Vec::from_iter(join_all(works).await.into_iter().flatten());
    assert!(problems.is_empty(), "{problems:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn consumers_take_any_duration() {
    work_with_all(consumers::TRIED).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_take_any_duration() {
    work_with_all(requests::TRIED).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn senders_take_any_duration() {
    work_with_all(senders::TRIED).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn brokers_take_any_duration() {
    work_with_all(brokers::TRIED).await;
}

#[test]
fn each_option_that_takes_a_duration_is_tried() {
    let tried = [consumers::TRIED, requests::TRIED, senders::TRIED, brokers::TRIED];
    let tried = tried.into_iter().flatten().map(|tried| tried.option);
    let known = tried.chain(options::OTHERS.iter().map(|(option, _)| *option));
    let known = BTreeSet::from_iter(known.map(str::to_owned));
    assert_eq!(options::in_sources(), known);
}
