//! The tests are in `tests/it`.
