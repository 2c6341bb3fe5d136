//! Effects and vendors with a time that no program can read.
use crate::support::{
    cases::cases,
    effects::{Dispatching, mail, plan, reaches},
    stores::World,
    times::{BrokenTimes, drop_rules, run_unchecked},
};
use integration_tests::vendors::VENDOR;
use std::time::Duration;
use twinbox::{
    effects::{EffectState, profiles},
    ops::Ops,
};
use twinbox_testkit::vendor::FakeVendor;

/// An effect whose time is past is due, whatever that time is: it is sent, alone and with another, and the
/// status shows the vendor.
async fn a_broken_time_stops_neither_dispatcher_nor_status<DB: BrokenTimes>() {
    let (world, vendor) = (World::<DB>::new().await, FakeVendor::start().await.unwrap());
    drop_rules(&world).await;
    let (effects, vendors) = (DB::table_of("side_effects"), DB::table_of("vendors"));
    run_unchecked(&world, &format!("INSERT INTO {vendors} (vendor) VALUES ('{VENDOR}')")).await;
    for (time, is_alone) in DB::PAST.iter().flat_map(|time| [(time, true), (time, false)]) {
        let mut planned = vec![plan(&*world, mail("broken")).await];
        let update = format!(
            "UPDATE {effects} SET next_attempt_at = {time} WHERE next_attempt_at IS NOT NULL;
            UPDATE {vendors} SET closed_until = {time}"
        );
        run_unchecked(&world, &update).await;
        if !is_alone {
            planned.push(plan(&*world, mail("whole")).await);
        }
        let listed = Ops::new(&*world).vendors().await.unwrap();
        let waiting = planned.len() as u64;
        assert_eq!((listed.len(), listed[0].waiting, listed[0].closed_for), (1, waiting, Duration::ZERO));
        assert!(listed[0].overdue > Duration::from_secs(365 * 24 * 3600), "{time}: {listed:?}");

        let dispatching = Dispatching::to(&*world, &vendor, profiles::RESEND);
        for source in planned {
            reaches(&*world, source, EffectState::Confirmed).await;
        }
        dispatching.stop().await;
    }
    assert_eq!(vendor.acts().len(), 3 * DB::PAST.len());
}

cases! {
    all: [a_broken_time_stops_neither_dispatcher_nor_status]
}
