#[doc = include_str!("../../README.md")]
#[cfg(doctest)]
struct Readme;
