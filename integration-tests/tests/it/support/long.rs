//! How long a test is.

/// The variable that makes long tests run in their whole length: `cargo xtask test --long` sets it.
const LONG: &str = "TWINBOX_TEST_LONG";

/// Returns the size of a test that shows its promise by numbers: `long`, or `short` in the usual run.
pub(crate) fn or<T>(long: T, short: T) -> T {
    if std::env::var_os(LONG).is_some() { long } else { short }
}
