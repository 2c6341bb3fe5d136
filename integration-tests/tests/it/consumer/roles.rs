//! A handler that sets a role for its transaction, as for row level security.
use crate::support::{
    cases::cases,
    database::owner_of,
    databases::Postgres,
    stores::{Placed, World, effect, failed, placed},
};
use sqlx::AssertSqlSafe;
use twinbox::{Delivery, DeliveryOutcome, HandlerResult, Store, Tx, event_handler};
use twinbox_testkit::Harness;
use uuid::Uuid;

/// The role and how often the handler fails.
type Tenant = (String, u32);

#[event_handler(consumer = "tests.tenants", max_attempts = 3)]
async fn as_tenant(
    (role, failures): &Tenant,
    tx: &mut Tx<'_, Postgres>,
    order: Delivery<Placed>,
) -> HandlerResult {
    sqlx::raw_sql(AssertSqlSafe(format!("SET LOCAL ROLE {role}"))).execute(&mut **tx).await?;
    effect::<Postgres>(tx, order.n).await?;
    if order.attempt() <= *failures { Err("once more".into()) } else { Ok(()) }
}

/// The record of its failures ends with its transaction, though its role has no right on it. What is deferred
/// to the COMMIT runs as its role again.
async fn a_handler_that_sets_a_role_is_delivered_again() {
    let world = World::<Postgres>::new().await;
    let store: &Store<Postgres> = &world;
    let role = format!("tenant_{}", Uuid::now_v7().simple());
    let user = sqlx::query_scalar::<_, String>("SELECT session_user").fetch_one(store.pool()).await.unwrap();
    let create = format!(
        "CREATE ROLE {role};
        GRANT {role} TO {user};
        GRANT INSERT ON effects TO {role};
        CREATE FUNCTION of_role() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN ASSERT current_user = '{role}', current_user; RETURN NULL; END $$;
        CREATE CONSTRAINT TRIGGER of_role AFTER INSERT ON effects DEFERRABLE INITIALLY DEFERRED
            FOR EACH ROW EXECUTE FUNCTION of_role()"
    );
    let owner = owner_of(&world);
    sqlx::raw_sql(AssertSqlSafe(create)).execute(owner.pool()).await.unwrap();
    let harness = Harness::new(&world, (role.clone(), 1));
    let order = placed(1);
    let outcome = harness.deliver::<as_tenant>(&order).await;
    assert!(failed(&outcome, "once more"), "{outcome:?}");
    assert_eq!(harness.deliver::<as_tenant>(&order).await, DeliveryOutcome::Handled);
    assert_eq!((world.effects().await, world.rows("attempts").await), (vec![1], 0));
    let drop = format!("DROP OWNED BY {role}; DROP ROLE {role}");
    sqlx::raw_sql(AssertSqlSafe(drop)).execute(owner.pool()).await.unwrap();
}

cases! {
    postgres: [a_handler_that_sets_a_role_is_delivered_again]
}
