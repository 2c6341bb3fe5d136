//! What is put aside so that other keys go on.
use super::{DUE_MAX, Lane, Next, Partition, Work};
use std::time::Duration;
use twinbox_sql::{Dialect, Error};

impl<DB: Dialect, S: Send + Sync + 'static> Partition<DB, S> {
    /// Puts a message aside, and all that wait behind it.
    pub(super) fn park(&mut self, lane: &Lane, first: Next, delay: Duration) {
        tracing::info!(
            message_id = %first.message.message_id(),
            partition = self.fence.partition,
            "the message keeps failing: it is put aside, and others go on"
        );
        self.parked.insert(first.message.key.clone());
        self.to_park.push((first.sequence, first.message, delay));
        let waiting = self.lanes.remove(lane).unwrap_or_default();
        self.to_park.extend(waiting.into_iter().map(|next| (next.sequence, next.message, Duration::ZERO)));
    }

    pub(super) async fn write_parked(&mut self) {
        if self.to_park.is_empty() {
            return;
        }
        let deliveries = self.to_park.iter().map(|(_, message, delay)| (message.clone(), *delay));
        let deliveries = Vec::from_iter(deliveries);
        let written = self.shared.store.park_deliveries(self.consumer(), self.fence, &deliveries).await;
        match written {
            Ok(()) => std::mem::take(&mut self.to_park).iter().for_each(|(at, ..)| self.settle(*at)),
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "nothing can be put aside");
            }
        }
    }

    /// Starts what is put aside and due.
    pub(super) async fn take_up(&mut self) {
        if self.tokens.stop.is_cancelled() {
            return;
        }
        let due = self.shared.store.due_deliveries(self.consumer(), self.fence.partition, DUE_MAX).await;
        let due = due.unwrap_or_else(|error| {
            tracing::warn!(error = &error as &dyn std::error::Error, "what is put aside cannot be read");
            Vec::new()
        });
        for parked in due {
            if self.taken_up.insert(parked.id) {
                let work = Work::Parked { id: parked.id, message: parked.message };
                self.start(work, Duration::ZERO, None);
            }
        }
    }

    pub(super) async fn look_for_parked(&mut self) -> Result<(), Error> {
        let found = self.shared.store.parked_delivery_keys(self.consumer(), self.fence.partition).await?;
        self.parked = found;
        self.parked.extend(self.to_park.iter().map(|(_, message, _)| message.key.clone()));
        Ok(())
    }
}
