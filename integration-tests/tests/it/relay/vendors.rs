//! Side effects that the relay's program sends.
use crate::support::{
    cases::cases,
    effects::{mail, plan, reaches},
    program::Program,
    stores::{TestDb, World},
};
use integration_tests::vendors::VENDOR;
use sqlx::AssertSqlSafe;
use twinbox::{Store, StoreOptions, effects::EffectState};
use twinbox_testkit::vendor::{FakeVendor, VendorAnswer, VendorRequest};

/// As the program spells it.
fn url<DB: TestDb>(world: &World<DB>) -> String {
    match DB::MODULE {
        "postgres" | "mysql" => world.url().to_owned(),
        _ => format!("sqlite:{}", world.url()),
    }
}

async fn the_program_sends_effects_with_the_credential<DB: TestDb>() {
    let (world, vendor) = (World::<DB>::new().await, FakeVendor::start().await.unwrap());
    let credential = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(credential.path(), "Bearer of-the-file\n").unwrap();
    let text = format!(
        "[vendors.{VENDOR}]\nprofile = \"resend\"\nurl = {:?}\ncredential_file = {:?}\ntimeout = \"5s\"\n",
        vendor.url(),
        credential.path()
    );
    vendor.answer_next([VendorAnswer::ActThenCut]);
    let unfit = plan(&world, mail("written by another program")).await;
    let spoil = format!("UPDATE {} SET target = 'no target'", DB::table_of("side_effects"));
    let mut tx = world.begin().await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(spoil)).execute(&mut *tx).await.unwrap();
    tx.commit().await.unwrap();
    let program = Program::run(&url(&world), &[], &text).await;
    assert_eq!(reaches(&world, unfit, EffectState::Failed).await.attempts, 0);
    program.shows("twinbox_effects_failed_total{vendor=\"mail\",kind=\"email.welcome\"} 1").await;
    let source = plan(&world, mail("hello")).await;
    let effect = reaches(&world, source, EffectState::Confirmed).await;
    assert_eq!((effect.attempts, vendor.calls().len(), vendor.acts().len()), (2, 2, 1));
    for call in vendor.calls() {
        let sent = call.headers.iter().find(|(name, _)| name == "authorization");
        assert_eq!(sent.map(|(_, value)| value.as_str()), Some("Bearer of-the-file"));
    }
    program.shows("twinbox_effects_sends_total{vendor=\"mail\",kind=\"email.welcome\"} 2").await;
    program.shows("twinbox_effects_confirmed_total{vendor=\"mail\",kind=\"email.welcome\"} 1").await;
    assert_eq!(program.get("/readyz").await, (200, "ok\n".to_owned()));
    let check = program.output(&["check"]).await;
    let printed = String::from_utf8(check.stdout).unwrap();
    assert!(printed.contains(&format!("ok    vendor {VENDOR}: {} by resend", vendor.url())), "{printed}");
}

async fn a_changed_credential_is_read_without_a_restart<DB: TestDb>() {
    let (world, vendor) = (World::<DB>::new().await, FakeVendor::start().await.unwrap());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("credential");
    std::fs::write(&file, "Bearer one\n").unwrap();
    let text = format!(
        "[vendors.{VENDOR}]\nprofile = \"resend\"\nurl = {:?}\ncredential_file = {file:?}\n",
        vendor.url()
    );
    let _program = Program::run(&url(&world), &[], &text).await;
    let first = plan(&world, mail("first")).await;
    reaches(&world, first, EffectState::Confirmed).await;
    // Until it is there again, the last one counts.
    std::fs::remove_file(&file).unwrap();
    let second = plan(&world, mail("second")).await;
    reaches(&world, second, EffectState::Confirmed).await;
    std::fs::write(&file, "Bearer two\n").unwrap();
    let third = plan(&world, mail("third")).await;
    reaches(&world, third, EffectState::Confirmed).await;
    let sent = |call: &VendorRequest| {
        let header = call.headers.iter().find(|(name, _)| name == "authorization");
        header.map(|(_, value)| value.clone())
    };
    let sent = Vec::from_iter(vendor.calls().iter().filter_map(sent));
    assert_eq!(sent, ["Bearer one", "Bearer one", "Bearer two"]);
}

async fn each_vendor_gets_the_effects_of_its_schema<DB: TestDb>() {
    let (world, vendor) = (World::<DB>::new().await, FakeVendor::start().await.unwrap());
    let options = StoreOptions::new().namespace("billing");
    let billing = Store::with_options(world.pool().clone(), "billing", options).unwrap();
    billing.migrate().await.unwrap();
    let text = format!(
        "[schemas.billing]\nservice = \"billing\"\n\
         [vendors.{VENDOR}]\nprofile = \"resend\"\nurl = {:?}\nschema = \"billing\"\n",
        vendor.url()
    );
    let of_main = plan(&world, mail("main")).await;
    // Of the owner of both schemas: the roles of tests have rights on one.
    let _program = Program::run(&url(&world).replace(world.url(), world.owner_url()), &[], &text).await;
    let of_billing = plan(&billing, mail("billing")).await;
    reaches(&billing, of_billing, EffectState::Confirmed).await;
    assert_eq!(reaches(&world, of_main, EffectState::Pending).await.attempts, 0);
    assert_eq!(vendor.acts(), [br#"{"text":"billing"}"#]);
}

cases! {
    all: [
        a_changed_credential_is_read_without_a_restart,
        each_vendor_gets_the_effects_of_its_schema,
        the_program_sends_effects_with_the_credential,
    ]
}
