//! The names of all SQL texts, by area.
//!
//! A dialect fills the structs with text, and a store renders each text once. So `T` is `&'static str` in
//! [`Dialect::SQL`](crate::Dialect::SQL) and [`Statement`] in a store. The doc of a field names the index
//! that the statement relies on and its binds in order.
//!
//! An empty text means that the database does not need the statement: see [`Statement::is_absent`].
mod bulk_actions;
mod client_keys;
mod drift;
mod effects;
mod inbox;
mod jobs;
mod log;
mod operations;
mod operators;
mod parking;
mod publishing;

pub use bulk_actions::BulkActions;
pub use client_keys::ClientKeys;
pub use drift::Drift;
pub use effects::{EffectActs, Effects};
pub use inbox::{Consumers, DeadLetters, Inbox, Partitions};
pub use jobs::Jobs;
pub use log::{Cursors, Holes, Log, Replays, Retention};
pub use operations::{Operations, Webhooks};
pub use operators::{Audit, Backlog, Redaction};
pub use parking::{Deliveries, ParkedMessages, ParkedQueue};
pub use publishing::{Delayed, Outbox, Setup};

use crate::statement::Statement;

/// A struct of texts.
macro_rules! area {
    ($(#[$doc:meta])* $Area:ident { $($(#[$text_doc:meta])* $text:ident,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy)]
        pub struct $Area<T = &'static str> {
            $($(#[$text_doc])* pub $text: T,)*
        }

        impl $Area {
            pub(super) fn map(
                &self,
                render: &impl Fn(&str) -> crate::statement::Statement,
            ) -> $Area<crate::statement::Statement> {
                $Area { $($text: render(self.$text),)* }
            }
        }

        impl<T> $Area<T> {
            pub(super) fn named(&self) -> Vec<(&'static str, &T)> {
                vec![$((stringify!($text), &self.$text),)*]
            }
        }
    };
}
use area;

macro_rules! texts {
    ($($area:ident: $Area:ident,)*) => {
        /// Every SQL statement of the project, by area.
        #[derive(Debug, Clone, Copy)]
        pub struct Texts<T = &'static str> {
            $(
                #[doc = concat!("See [`", stringify!($Area), "`].")]
                pub $area: $Area<T>,
            )*
        }

        impl Texts {
            /// Renders every SQL text.
            pub fn map(&self, render: impl Fn(&str) -> Statement) -> Texts<Statement> {
                Texts { $($area: self.$area.map(&render),)* }
            }
        }

        impl<T> Texts<T> {
            /// Lists every SQL text with its name, such as `log.page`.
            pub fn named(&self) -> Vec<(String, &T)> {
                let mut all = Vec::new();
                $(
                    let texts = self.$area.named().into_iter();
                    all.extend(texts.map(|(name, text)| (format!("{}.{name}", stringify!($area)), text)));
                )*
                all
            }
        }
    };
}

texts! {
    audit: Audit,
    backlog: Backlog,
    bulk_actions: BulkActions,
    client_keys: ClientKeys,
    consumers: Consumers,
    cursors: Cursors,
    dead_letters: DeadLetters,
    delayed: Delayed,
    deliveries: Deliveries,
    delivery_queue: ParkedQueue,
    destination_queue: ParkedQueue,
    drift: Drift,
    effect_acts: EffectActs,
    effects: Effects,
    holes: Holes,
    inbox: Inbox,
    jobs: Jobs,
    log: Log,
    operations: Operations,
    outbox: Outbox,
    parked_messages: ParkedMessages,
    partitions: Partitions,
    redaction: Redaction,
    replays: Replays,
    retention: Retention,
    setup: Setup,
    webhooks: Webhooks,
}
