//! How a trait carries bounds on types of others to its users.
use sqlx::{Database, Decode, Encode, Type};

/// `Self: Implied<T>` carries the bounds on `T` to every user of the trait that asks for it, so callers write
/// `DB: Dialect` and not twenty lines of `where`. Rust implies bounds on the associated types of supertraits,
/// and on nothing else.
#[doc(hidden)]
pub trait ImpliedBound<T: ?Sized> {
    type Is: ?Sized;
}
impl<S: ?Sized, T: ?Sized> ImpliedBound<T> for S {
    type Is = T;
}
#[doc(hidden)]
pub trait Implied<T: ?Sized>: ImpliedBound<T, Is = T> {}
impl<S: ?Sized, T: ?Sized> Implied<T> for S {}

/// A column type that every dialect binds and reads.
#[doc(hidden)]
pub trait Column<T>:
    ImpliedBound<T, Is: Type<Self> + for<'q> Encode<'q, Self> + for<'r> Decode<'r, Self>>
    + Implied<T>
    + ImpliedBound<Option<T>, Is: Type<Self> + for<'q> Encode<'q, Self> + for<'r> Decode<'r, Self>>
    + Implied<Option<T>>
    + Database
{
}
impl<DB: Database, T> Column<T> for DB
where
    T: Type<DB> + for<'q> Encode<'q, DB> + for<'r> Decode<'r, DB>,
    Option<T>: Type<DB> + for<'q> Encode<'q, DB> + for<'r> Decode<'r, DB>,
{
}
