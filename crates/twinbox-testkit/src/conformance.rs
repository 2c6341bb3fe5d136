//! Tests of the guarantees of a source of deliveries, for a source that you write.
//!
//! ```no_run
//! use twinbox_core::Transport;
//! use twinbox_testkit::conformance::{TransportUnderTest, message};
//!
//! /// Publishes to the broker that the transport reads.
//! struct Mine;
//!
//! impl TransportUnderTest for Mine {
//!     fn transport(&self) -> impl Transport {
//! #       let pool = sqlx::SqlitePool::connect_lazy("sqlite:x").unwrap();
//! #       twinbox_log::LogTransport::new(&twinbox_sql::Store::new(pool, "x").unwrap())
//! #       /*
//!         my::transport()
//! #       */
//!     }
//!
//!     async fn publish(&self, event_type: &str, key: Option<&str>, text: &str) {
//!         let message = message(event_type, key, text);
//! #       /*
//!         my::publish(message).await
//! #       */
//!     }
//! }
//!
//! // One test for each guarantee, such as `mine::what_is_published_is_delivered`, each with a transport of
//! // its own.
//! twinbox_testkit::source_conformance! {
//!     mine: async { Mine };
//! }
//! ```
mod guarantees;
mod transport;

pub use guarantees::{
    a_closed_source_goes_on_where_it_was, a_delivery_in_progress_is_not_delivered_again,
    a_dropped_delivery_comes_again, a_nak_comes_again_and_not_before_its_delay, at_most_as_many_as_asked_for,
    consumers_know_nothing_of_each_other, deliveries_of_a_dropped_source_come_again,
    one_subscriber_gets_the_messages_of_a_key_in_order, only_the_types_asked_for_are_delivered,
    receive_is_cancel_safe, what_is_acknowledged_never_comes_again, what_is_published_is_delivered,
};
pub use transport::{SOURCE, TransportUnderTest, ack_until, in_time, message, one, publish, subscribe, to};

/// Makes one test for each guarantee and each transport: `NAME: FUTURE OF A TransportUnderTest;`.
#[macro_export]
macro_rules! source_conformance {
    ($($module:ident: $transport:expr;)+) => {
        $(mod $module {
            #[allow(unused_imports)]
            use super::*;
            $crate::source_conformance! { @ $transport, [
                what_is_published_is_delivered
                at_most_as_many_as_asked_for
                what_is_acknowledged_never_comes_again
                a_nak_comes_again_and_not_before_its_delay
                a_dropped_delivery_comes_again
                deliveries_of_a_dropped_source_come_again
                a_closed_source_goes_on_where_it_was
                one_subscriber_gets_the_messages_of_a_key_in_order
                only_the_types_asked_for_are_delivered
                consumers_know_nothing_of_each_other
                receive_is_cancel_safe
                a_delivery_in_progress_is_not_delivered_again
            ] }
        })+
    };
    (@ $transport:expr, [$($case:ident)+]) => {
        $(#[tokio::test(flavor = "multi_thread")]
        async fn $case() {
            let transport = $transport.await;
            $crate::conformance::in_time($crate::conformance::$case(&transport)).await;
        })+
    };
}
