//! A file that does not answer for a time, as one on a disk that hangs.
use super::{Armed, Fault, Faulty, Happened, Shared, Silence, StatementFaults};
use crate::support::{stores::World, wait::PATIENCE};
use sqlite_trace::{Moment, watch};
use sqlx::{Sqlite, pool::PoolOptions};
use std::time::{Duration, Instant};
use tokio::{runtime::Handle, sync::oneshot, task::JoinSet};
use twinbox::Store;
use twinbox_core::task_name::TaskName;

/// Longer than a claim or a rollback may take, and shorter than other processes wait for the file's lock.
const STALL: Duration = Duration::from_secs(6);

impl Faulty for Sqlite {
    const FAULTS: &[Fault] = &[Fault::Silent, Fault::Unanswered];
    const PARTS: u64 = 4;
    const ANSWERS_AGAIN: bool = true;
    /// Its log has no ticks, and a statement that ends late has not failed.
    const WITHOUT: &[TaskName] = &[TaskName::EndStarts, TaskName::ThinTicks];

    fn faults(_: &Handle, world: &World<Self>, silence: Silence) -> StatementFaults<Self> {
        let shared = Shared::of(world, silence);
        let (options, watching) = ((*Store::pool(world).connect_options()).clone(), shared.clone());
        let open = move |pool: PoolOptions<Self>| {
            let watching = watching.clone();
            let pool = pool.after_connect(move |conn, _| {
                let watching = watching.clone();
                Box::pin(watch(conn, move |moment, sql| watching.meet(moment, sql)))
            });
            pool.connect_lazy_with(options.clone())
        };
        StatementFaults { shared, open: Box::new(open), _accepting: JoinSet::new() }
    }
}

impl Shared {
    /// Notes a statement, in the thread of its connection. Stops the thread if it is to fail.
    fn meet(&self, moment: Moment, sql: &str) {
        let names = self.catalog.names(sql);
        if moment == Moment::Begins {
            self.note(&names);
        }
        let is_late = moment == Moment::Ended;
        let Some(Armed { happened, .. }) = self.take(&names, |fault| fault.is_late() == is_late) else {
            return;
        };
        let (at, (answer, answered)) = (Instant::now(), oneshot::channel());
        let _ = happened.send(Happened { at, hung_up: answered });
        let limit = match self.silence {
            Silence::AsItIs => STALL,
            Silence::UntilItIsOver => PATIENCE,
        };
        let is_over = self.is_over.lock().unwrap();
        drop(self.over.wait_timeout_while(is_over, limit, |is_over| !*is_over).unwrap());
        let _ = answer.send(at.elapsed());
    }
}
