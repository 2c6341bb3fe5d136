//! Each way to a right that the page does not name is found, with what to change.
mod mysql;
mod postgres;

use super::granted::Granted;
use crate::support::{database::ROLES, stores::World};
use sqlx::AssertSqlSafe;
use twinbox::{
    Store,
    ops::{Deviation, DeviationKind as Kind, Ops, Role},
};
use uuid::Uuid;

/// A way to a right. In its texts `{role}` is a producer, and `{other}` another role.
#[derive(Clone, Copy)]
pub(super) struct Way {
    kind: Kind,
    /// SQL that gives the right.
    give: &'static str,
    /// SQL that takes it back.
    take: &'static str,
    /// Words of one finding meanwhile.
    words: &'static [&'static str],
    /// The version of the server from which on there is such a right.
    since: i64,
    /// The only version that has it.
    only: Option<i64>,
}

impl Way {
    const fn new(kind: Kind, give: &'static str, take: &'static str, words: &'static [&'static str]) -> Self {
        Self { kind, give, take, words, since: 0, only: None }
    }

    const fn since(self, version: i64) -> Self {
        Self { since: version, ..self }
    }

    const fn only(self, version: i64) -> Self {
        Self { only: Some(version), ..self }
    }

    fn is_of(&self, version: i64) -> bool {
        self.since <= version && self.only.is_none_or(|only| only == version)
    }
}

pub(super) trait Ways: Granted {
    /// The version of the server as a number.
    const VERSION: &str;
    /// Around the name of a role.
    const QUOTES: [&str; 2];
    const CREATE_OTHER: &str;
    const DROP_OTHER: &str;
    /// What a role without more rights cannot see, of itself and of the tables.
    const HIDDEN: &[Kind];
    const WAYS: &[Way];
}

fn has(found: &[Deviation], kind: Kind, words: &[String]) -> bool {
    found.iter().filter(|one| one.kind == kind).any(|one| {
        let text = one.to_string();
        words.iter().all(|word| text.contains(word.as_str()))
    })
}

pub(super) async fn each_way_to_a_right_is_found<DB: Ways>() {
    let world = World::<DB>::new().await;
    let roles = DB::create(&world, "effects").await;
    let other = format!("other_{}", &Uuid::now_v7().simple().to_string()[12..]);
    let [before, after] = DB::QUOTES;
    let role = format!("{before}{}{after}", roles.producer);
    let named = |text: &str| text.replace("{role}", &role).replace("{other}", &other);
    let execute = async |sql: &str| {
        let ran = sqlx::raw_sql(AssertSqlSafe(named(sql))).execute(world.pool()).await;
        ran.map(drop).unwrap_or_else(|error| panic!("{sql}: {error}"));
    };
    let look = async || Ops::new(world.owner()).excess_rights(Some(&roles.producer), &[Role::Producer]).await;
    execute(DB::CREATE_OTHER).await;
    let version = world.number(DB::VERSION).await;
    for way in DB::WAYS.iter().filter(|way| way.is_of(version)) {
        let before = look().await.unwrap().unwrap();
        assert!(before.is_empty(), "before {}: {before:?}", way.give);
        execute(way.give).await;
        let found = look().await;
        // First, because no failure may leave a role with such a right on the server.
        execute(way.take).await;
        let found = found.unwrap().unwrap();
        let words = Vec::from_iter(way.words.iter().map(|word| named(word)));
        assert!(has(&found, way.kind, &words), "{}: {words:?} is not in {found:#?}", way.give);
    }
    let after = look().await.unwrap().unwrap();
    assert!(after.is_empty(), "{after:?}");
    execute(DB::DROP_OTHER).await;
    DB::drop(roles, &world).await;
}

/// Few may read the tables of a server with its roles, or see triggers.
pub(super) async fn what_a_role_cannot_see_is_named<DB: Ways>() {
    let world = World::<DB>::new().await;
    let roles = DB::create(&world, "effects").await;
    let producer = DB::store_of(&world, &roles.producer).await;
    let found = Ops::new(&producer).excess_rights(None, &[Role::Producer]).await.unwrap().unwrap();
    let kinds = Vec::from_iter(found.iter().map(|one| one.kind));
    assert_eq!(kinds, DB::HIDDEN, "{found:?}");
    let found = Ops::new(&producer).altered_tables().await.unwrap();
    let kinds = Vec::from_iter(found.iter().map(|one| one.kind));
    assert_eq!(kinds, DB::HIDDEN, "{found:?}");
    producer.pool().close().await;
    DB::drop(roles, &world).await;
}

pub(super) async fn a_store_of_tests_has_the_rights_of_the_page_and_no_more<DB: Ways>() {
    let world = World::<DB>::new().await;
    super::forbidden(Store::pool(&world), &format!("DROP TABLE {}", DB::table_of("outbox"))).await;
    let purposes = ROLES.map(|(_, role)| role);
    let mut found = Ops::new(&world).excess_rights(None, &purposes).await.unwrap().unwrap();
    found.retain(|one| !DB::HIDDEN.contains(&one.kind));
    assert!(found.is_empty(), "{found:?}");
}
