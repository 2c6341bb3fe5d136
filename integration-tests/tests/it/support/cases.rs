//! Makes one test of a case for each database.

/// Makes a test of each case on each database.
///
/// A case is `async fn case<DB: TestDb>()` under `all`, and `async fn case()` elsewhere. With `with a store:`
/// before the lists, a case takes `&Store<DB>` of a fresh database, and its test runs on several threads.
macro_rules! cases {
    (
        with a store:
        $(all: [$($all:ident),* $(,)?])?
        $(postgres: [$($postgres:ident),* $(,)?])?
        $(mysql: [$($mysql:ident),* $(,)?])?
        $(sqlite: [$($sqlite:ident),* $(,)?])?
    ) => {
        #[cfg(feature = "postgres")]
        mod postgres {
            $($($crate::support::cases::test_with_a_store!($all, sqlx::Postgres);)*)?
            $($($crate::support::cases::test_with_a_store!($postgres, sqlx::Postgres);)*)?
        }
        #[cfg(feature = "mysql")]
        mod mysql {
            $($($crate::support::cases::test_with_a_store!($all, sqlx::MySql);)*)?
            $($($crate::support::cases::test_with_a_store!($mysql, sqlx::MySql);)*)?
        }
        mod sqlite {
            $($($crate::support::cases::test_with_a_store!($all, sqlx::Sqlite);)*)?
            $($($crate::support::cases::test_with_a_store!($sqlite, sqlx::Sqlite);)*)?
        }
    };
    (
        $(all: [$($all:ident),* $(,)?])?
        $(postgres: [$($postgres:ident),* $(,)?])?
        $(mysql: [$($mysql:ident),* $(,)?])?
        $(sqlite: [$($sqlite:ident),* $(,)?])?
    ) => {
        #[cfg(feature = "postgres")]
        mod postgres {
            $($($crate::support::cases::test!($all, super::$all::<sqlx::Postgres>());)*)?
            $($($crate::support::cases::test!($postgres, super::$postgres());)*)?
        }
        #[cfg(feature = "mysql")]
        mod mysql {
            $($($crate::support::cases::test!($all, super::$all::<sqlx::MySql>());)*)?
            $($($crate::support::cases::test!($mysql, super::$mysql());)*)?
        }
        mod sqlite {
            $($($crate::support::cases::test!($all, super::$all::<sqlx::Sqlite>());)*)?
            $($($crate::support::cases::test!($sqlite, super::$sqlite());)*)?
        }
    };
}

/// Makes a test of each case on the databases that are named, as in
/// `cases_on! { [postgres: Postgres, mysql: MySql], [case, another] }`.
macro_rules! cases_on {
    ([$($module:ident: $database:ident),+ $(,)?], $cases:tt) => {
        $($crate::support::cases::cases_of_one! { $module $database $cases })+
    };
}

macro_rules! cases_of_one {
    ($module:ident $database:ident [$($case:ident),+ $(,)?]) => {
        mod $module {
            $($crate::support::cases::test!($case, super::$case::<sqlx::$database>());)+
        }
    };
}

macro_rules! test {
    ($case:ident, $run:expr) => {
        #[tokio::test]
        async fn $case() {
            $crate::support::wait::in_time($run).await;
        }
    };
}

macro_rules! test_with_a_store {
    ($case:ident, $database:ty) => {
        #[tokio::test(flavor = "multi_thread")]
        async fn $case() {
            let store = <$database as $crate::support::stores::TestDb>::fresh().await;
            $crate::support::wait::in_time(super::$case(&store)).await;
        }
    };
}

pub(crate) use {cases, cases_of_one, cases_on, test, test_with_a_store};
