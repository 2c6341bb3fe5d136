//! The Rust blocks of the documents, compiled as doctests.

#[doc = include_str!("../../README.md")]
#[cfg(doctest)]
struct Readme;

#[doc = include_str!("../../docs/src/handlers.md")]
#[cfg(doctest)]
struct Handlers;

#[doc = include_str!("../../docs/src/http.md")]
#[cfg(doctest)]
struct Http;

#[doc = include_str!("../../docs/src/effects.md")]
#[cfg(doctest)]
struct Effects;

#[doc = include_str!("../../docs/src/vendors.md")]
#[cfg(doctest)]
struct Vendors;

#[doc = include_str!("../../docs/src/jobs.md")]
#[cfg(doctest)]
struct Jobs;

#[doc = include_str!("../../docs/src/drift.md")]
#[cfg(doctest)]
struct Drift;

#[doc = include_str!("../../docs/src/start.md")]
#[cfg(doctest)]
struct Start;

#[doc = include_str!("../../docs/src/producers.md")]
#[cfg(doctest)]
struct Producers;

#[doc = include_str!("../../docs/src/other-languages.md")]
#[cfg(doctest)]
struct OtherLanguages;

#[doc = include_str!("../../docs/src/versioning.md")]
#[cfg(doctest)]
struct Versioning;

#[doc = include_str!("../../docs/src/testing.md")]
#[cfg(doctest)]
struct Testing;

#[doc = include_str!("../../docs/src/security.md")]
#[cfg(doctest)]
struct Security;
