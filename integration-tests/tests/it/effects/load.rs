//! Many effects, and a vendor that fails in every way.
use crate::support::{
    effects::{Dispatching, WELCOME},
    long,
    stores::World,
    wait::{eventually, in_time},
};
use integration_tests::vendors::{VENDOR, http_vendor};
use sqlx::Postgres;
use std::{collections::HashMap, time::Duration};
use twinbox::{
    RetryPolicy,
    effects::{Dispatcher, VendorOptions, VendorProfile},
};
use twinbox_testkit::vendor::{FakeVendor, VendorAnswer};

/// How long the vendor remembers a key.
const WINDOW: Duration = Duration::from_secs(600);
/// How long the vendor says nothing, from time to time.
const STALL: Duration = Duration::from_secs(2);

const RETRIES: RetryPolicy = RetryPolicy::listed(&[Duration::from_millis(100); 12]);

/// 5 % failures, pauses that the vendor asks for, and calls that take 2 s and end without a response.
fn answer(nth: usize) -> VendorAnswer {
    match nth {
        nth if nth % 20 == 7 => VendorAnswer::Status(500),
        nth if nth % 2000 == 500 => VendorAnswer::RetryAfter(429, 1),
        nth if nth % 200 == 13 => VendorAnswer::ActThenStall,
        _ => VendorAnswer::Act,
    }
}

/// Notes each pause of the vendor, and each claim of effects with the transactions that it could see.
const NOTES: &str = "
    CREATE TABLE pauses (xid xid8 NOT NULL, lasts interval NOT NULL, ends_at timestamptz NOT NULL);
    CREATE FUNCTION note_pause() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO public.pauses
        VALUES (pg_current_xact_id(), NEW.closed_until - transaction_timestamp(), NEW.closed_until);
        RETURN NULL;
    END $$;
    CREATE TRIGGER note_pause AFTER INSERT OR UPDATE ON twinbox.vendors
        FOR EACH ROW EXECUTE FUNCTION note_pause();
    CREATE TABLE claims (owner uuid NOT NULL, made_at timestamptz NOT NULL, saw pg_snapshot NOT NULL);
    CREATE FUNCTION note_claim() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO public.claims
        SELECT owner, clock_timestamp(), pg_current_snapshot() FROM changed WHERE owner IS NOT NULL LIMIT 1;
        RETURN NULL;
    END $$;
    CREATE TRIGGER note_claim AFTER UPDATE ON twinbox.side_effects REFERENCING NEW TABLE AS changed
        FOR EACH STATEMENT EXECUTE FUNCTION note_claim();";

/// Counts the claims of a dispatcher in a pause that it could see, without the first: that one may have read
/// the due effects before, and wrote later that it takes them. A dispatcher makes one claim after another.
///
/// A busy machine makes no claim early, while it may bring any call late to the vendor.
const EARLY_CLAIMS: &str = "
    SELECT COALESCE(sum(seen - 1), 0)::bigint
    FROM (
        SELECT count(*) AS seen
        FROM claims c
        JOIN pauses p ON pg_visible_in_snapshot(p.xid, c.saw) AND c.made_at < p.ends_at
        GROUP BY c.owner, p.xid
    ) of_one";

/// By two dispatchers. R13, R69, t26
#[tokio::test(flavor = "multi_thread")]
async fn thousands_of_effects_are_confirmed_by_a_vendor_that_fails() {
    let count = long::or(10_000_usize, 4_000);
    let (world, vendor) = (World::<Postgres>::new().await, FakeVendor::start().await.unwrap());
    vendor.answer_with(answer);
    world.execute(NOTES).await;
    // With ids, which a dispatcher would give one by one to effects that were planned in SQL.
    let plan = "INSERT INTO twinbox.side_effects (id, source_id, kind, vendor, request)
        SELECT gen_random_uuid(), gen_random_uuid(), $1, $2, n::text::bytea
        FROM generate_series(1, $3::bigint) n";
    let plan = sqlx::query::<Postgres>(plan).bind(WELCOME).bind(VENDOR).bind(count as i64);
    plan.execute(world.pool()).await.unwrap();
    let profile = VendorProfile::with_key("failing", WINDOW);
    let options = VendorOptions::new().timeout(STALL).retries(RETRIES);
    let both = [(); 2].map(|()| {
        let sender = http_vendor(&vendor.url(), profile.clone()).unwrap();
        Dispatching::start(Dispatcher::new(&world).vendor_with(sender, options))
    });
    in_time(vendor.wait_for_calls(count)).await;
    let confirmed = "SELECT count(*) FROM twinbox.side_effects WHERE state = 'confirmed'";
    eventually(async || (world.number(confirmed).await == count as i64).then_some(())).await;
    for dispatching in both {
        dispatching.stop().await;
    }
    let calls = vendor.calls();
    let mut by_key = HashMap::new();
    for call in &calls {
        by_key.entry(call.key.clone().unwrap()).or_insert_with(Vec::new).push(call.at);
    }
    assert_eq!((by_key.len(), vendor.acts().len()), (count, count));
    for times in by_key.values() {
        assert!(times[times.len() - 1] - times[0] < WINDOW * 9 / 10, "a key was sent outside of its window");
    }
    assert!(calls.iter().any(|call| matches!(call.answer, VendorAnswer::RetryAfter(..))));
    // An effect that was claimed before a pause may be sent in it.
    let paused = "SELECT count(*) FROM pauses WHERE lasts >= '1 second'";
    let short = "SELECT count(*) FROM pauses WHERE lasts < '1 second'";
    assert!(world.number(paused).await > 0 && world.number(short).await == 0);
    assert_eq!(world.number(EARLY_CLAIMS).await, 0, "claims while the vendor asked for none");
}
