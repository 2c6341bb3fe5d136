//! Sending with a publisher, as a relay does.
use super::wait::in_time;
use futures::StreamExt as _;
use twinbox::{
    Message,
    seam::destination::{Acknowledgements, DestinationSecret, Outgoing, PublishError, Publisher, Receipt},
};

pub(crate) type Sent = Result<Receipt, PublishError>;

/// The secret of publishers without a store: they are one destination.
pub(crate) fn secret() -> DestinationSecret {
    DestinationSecret::from_bytes([7; 32])
}

/// Sends messages. Returns their results in the order of the messages.
pub(crate) async fn send_to(publisher: &mut dyn Publisher, messages: &[&Message]) -> Vec<Sent> {
    results(publisher.send(&outgoing(messages.iter().copied())).await).await
}

/// Sends messages that may have been sent before. Returns their results in the order of the messages.
pub(crate) async fn send_again(publisher: &mut dyn Publisher, messages: &[&Message]) -> Vec<Sent> {
    results(publisher.send(&repeated(messages.iter().copied())).await).await
}

/// Messages that may have been sent before.
pub(crate) fn repeated<'a>(messages: impl IntoIterator<Item = &'a Message>) -> Vec<Outgoing<'a>> {
    let repeated = |message| Outgoing { may_be_repeated: true, ..Outgoing::first(message) };
    messages.into_iter().map(repeated).collect()
}

/// Messages that were never sent before.
pub(crate) fn outgoing<'a>(messages: impl IntoIterator<Item = &'a Message>) -> Vec<Outgoing<'a>> {
    messages.into_iter().map(Outgoing::first).collect()
}

/// Waits for all results of a send. Returns them in the order of the messages.
pub(crate) async fn results(acknowledgements: Acknowledgements) -> Vec<Sent> {
    results_with(acknowledgements, |_| {}).await
}

/// As [`results`]. Calls `before` with the number of each result, before it waits for that one.
pub(crate) async fn results_with(
    mut acknowledgements: Acknowledgements,
    mut before: impl FnMut(usize),
) -> Vec<Sent> {
    let mut results = Vec::new();
    in_time(async {
        loop {
            before(results.len());
            match acknowledgements.next().await {
                Some(result) => results.push(result),
                None => return,
            }
        }
    })
    .await;
    results.sort_by_key(|(place, _)| *place);
    results.into_iter().map(|(_, result)| result).collect()
}
