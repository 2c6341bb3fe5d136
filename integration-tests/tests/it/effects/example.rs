//! The example `signup`.
use crate::support::stores::World;
use sqlx::Sqlite;
use twinbox::effects::EffectState;
use twinbox_testkit::vendor::{FakeVendor, VendorAnswer};

/// R69, R71, R75
#[tokio::test]
async fn a_user_gets_one_mail_from_a_provider_that_drops_connections() {
    let (world, provider) = (World::<Sqlite>::new().await, FakeVendor::start().await.unwrap());
    provider.answer_next([VendorAnswer::Cut, VendorAnswer::ActThenCut, VendorAnswer::Status(503)]);
    signup::create_tables(&world).await.unwrap();
    let user_id = signup::sign_up(&world, "ada@example.org").await.unwrap();
    let mail = signup::send_mails(&world, &provider.url(), user_id).await.unwrap();
    assert_eq!((mail.state, mail.attempts), (EffectState::Confirmed, 4));
    assert_eq!((provider.calls().len(), provider.acts().len()), (4, 1));
    assert_eq!((world.rows("outbox").await, world.number("SELECT count(*) FROM users").await), (1, 1));
}
