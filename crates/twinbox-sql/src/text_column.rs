//! Texts as columns hold them.
use sqlx::{Database, Decode, Encode, Type, encode::IsNull, error::BoxDynError};

/// A text, as a column holds it: a MySQL table keeps names in binary columns, because a collation would take
/// different ones for the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Text(pub String);

impl<DB: Database> Type<DB> for Text
where
    String: Type<DB>,
    Vec<u8>: Type<DB>,
{
    fn type_info() -> DB::TypeInfo {
        <String as Type<DB>>::type_info()
    }

    fn compatible(ty: &DB::TypeInfo) -> bool {
        <String as Type<DB>>::compatible(ty) || <Vec<u8> as Type<DB>>::compatible(ty)
    }
}

impl<'q, DB: Database> Encode<'q, DB> for Text
where
    String: Encode<'q, DB>,
{
    fn encode_by_ref(&self, buffer: &mut DB::ArgumentBuffer) -> Result<IsNull, BoxDynError> {
        self.0.encode_by_ref(buffer)
    }
}

impl<'r, DB: Database> Decode<'r, DB> for Text
where
    String: Decode<'r, DB>,
{
    fn decode(value: DB::ValueRef<'r>) -> Result<Self, BoxDynError> {
        String::decode(value).map(Self)
    }
}
