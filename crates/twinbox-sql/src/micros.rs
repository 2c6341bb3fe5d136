//! Times as columns hold them.
use sqlx::{Decode, Encode, Type, encode::IsNull, error::BoxDynError};
use std::time::Duration;
use twinbox_core::Timestamp;

/// Reads and binds timestamps: `timestamptz` in Postgres, `DATETIME(6)` in UTC in MySQL, an integer of
/// microseconds since 1970 in SQLite.
///
/// Binds the nearest time of the years 0 to 9999, on MySQL 1000 to 9999, because columns hold no other. Reads
/// whatever a column holds: where another program left no time, or one that no calendar has, it is
/// [`Timestamp::UNREADABLE`], because one such row must not stop who reads the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Micros(pub Timestamp);

/// About 5,000 years: the longest time span that all databases add to their time and subtract from it.
const SPAN_MAX: i64 = 5_000 * 365 * 24 * 3_600 * 1_000_000;

/// Converts a time span to microseconds for a statement, cut to the longest that the database takes.
pub fn micros(span: Duration) -> i64 {
    i64::try_from(span.as_micros()).unwrap_or(i64::MAX).min(SPAN_MAX)
}

/// The years 0 and 9999, in microseconds since 1970. The last microsecond is the end of the lease of a
/// detached cursor.
const BOUNDS: (i64, i64) = (-62_167_219_200_000_000, 253_402_300_799_999_998);

/// Microseconds from 1970 to 2000, where Postgres starts to count.
#[cfg(feature = "postgres")]
const POSTGRES_EPOCH: i64 = 946_684_800_000_000;

#[cfg(feature = "postgres")]
mod postgres {
    use super::*;
    use sqlx::{
        Postgres, ValueRef as _,
        postgres::{PgArgumentBuffer, PgHasArrayType, PgTypeInfo, PgValueRef, types::Oid},
    };

    impl Type<Postgres> for Micros {
        fn type_info() -> PgTypeInfo {
            PgTypeInfo::with_oid(Oid(1184)) // timestamptz
        }
    }

    impl PgHasArrayType for Micros {
        fn array_type_info() -> PgTypeInfo {
            PgTypeInfo::with_oid(Oid(1185)) // timestamptz[]
        }
    }

    impl Encode<'_, Postgres> for Micros {
        fn encode_by_ref(&self, buf: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
            let micros = self.0.as_micros().clamp(BOUNDS.0, BOUNDS.1);
            <i64 as Encode<Postgres>>::encode(micros - POSTGRES_EPOCH, buf)
        }
    }

    impl<'r> Decode<'r, Postgres> for Micros {
        fn decode(value: PgValueRef<'r>) -> Result<Self, BoxDynError> {
            if value.is_null() {
                return Ok(Self(Timestamp::UNREADABLE));
            }
            // The ends of the range are the infinite times.
            let micros = <i64 as Decode<Postgres>>::decode(value)?;
            Ok(Self(Timestamp::from_micros(micros.saturating_add(POSTGRES_EPOCH))))
        }
    }
}

#[cfg(feature = "sqlite")]
mod sqlite {
    use super::*;
    use sqlx::{
        Sqlite, ValueRef as _,
        sqlite::{SqliteArgumentsBuffer, SqliteTypeInfo, SqliteValueRef},
    };

    impl Type<Sqlite> for Micros {
        fn type_info() -> SqliteTypeInfo {
            <i64 as Type<Sqlite>>::type_info()
        }
    }

    impl Encode<'_, Sqlite> for Micros {
        fn encode_by_ref(&self, buf: &mut SqliteArgumentsBuffer) -> Result<IsNull, BoxDynError> {
            <i64 as Encode<Sqlite>>::encode(self.0.as_micros().clamp(BOUNDS.0, BOUNDS.1), buf)
        }
    }

    impl<'r> Decode<'r, Sqlite> for Micros {
        fn decode(value: SqliteValueRef<'r>) -> Result<Self, BoxDynError> {
            if value.is_null() {
                return Ok(Self(Timestamp::UNREADABLE));
            }
            Ok(Self(Timestamp::from_micros(<i64 as Decode<Sqlite>>::decode(value)?)))
        }
    }
}

#[cfg(feature = "mysql")]
mod mysql {
    use super::*;
    use sqlx::{
        MySql,
        mysql::{MySqlTypeInfo, MySqlValueRef},
    };
    use time::{OffsetDateTime, PrimitiveDateTime};

    /// The year 1000, before which the server takes no time, in microseconds since 1970.
    const FIRST: i64 = -30_610_224_000_000_000;

    impl Type<MySql> for Micros {
        fn type_info() -> MySqlTypeInfo {
            <PrimitiveDateTime as Type<MySql>>::type_info()
        }

        fn compatible(ty: &MySqlTypeInfo) -> bool {
            <PrimitiveDateTime as Type<MySql>>::compatible(ty)
        }
    }

    impl Encode<'_, MySql> for Micros {
        fn encode_by_ref(&self, buf: &mut Vec<u8>) -> Result<IsNull, BoxDynError> {
            let micros = self.0.as_micros().clamp(FIRST, BOUNDS.1);
            let at = OffsetDateTime::from_unix_timestamp_nanos(i128::from(micros) * 1_000)?;
            <PrimitiveDateTime as Encode<MySql>>::encode(PrimitiveDateTime::new(at.date(), at.time()), buf)
        }

        fn size_hint(&self) -> usize {
            12
        }
    }

    impl<'r> Decode<'r, MySql> for Micros {
        fn decode(value: MySqlValueRef<'r>) -> Result<Self, BoxDynError> {
            // A year, a month or a day 0, or a day that the month does not have.
            let Ok(at) = <PrimitiveDateTime as Decode<MySql>>::decode(value) else {
                return Ok(Self(Timestamp::UNREADABLE));
            };
            let micros = at.assume_utc().unix_timestamp_nanos().div_euclid(1_000);
            Ok(Self(Timestamp::from_micros(i64::try_from(micros)?)))
        }
    }
}
