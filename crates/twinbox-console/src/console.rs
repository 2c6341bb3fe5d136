//! The console as a program uses it.
use crate::{
    access::{Access, Csrf, Forms, Sessions, Throttle},
    app::{App, Gate},
    broker::BrokerLag,
    samples::Samples,
    sampling, server,
};
use std::{fmt, io, sync::Arc};
use tokio::net::TcpListener;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use twinbox_ops::task_name::TaskName;
use twinbox_ops::{AlarmBounds, Dialect, Ops};

/// The web page of one store.
pub struct Console<DB: Dialect> {
    ops: Ops<DB>,
    database: String,
    access: Access,
    bounds: AlarmBounds,
    broker: Option<Box<dyn BrokerLag>>,
}

impl<DB: Dialect> Console<DB> {
    /// Creates the console. `database`: its name for people, without credentials.
    pub fn new(ops: Ops<DB>, database: impl Into<String>, access: Access) -> Self {
        Self { ops, database: database.into(), access, bounds: AlarmBounds::default(), broker: None }
    }

    /// Sets the bounds beyond which something is wrong.
    #[must_use]
    pub fn alarm_bounds(self, bounds: AlarmBounds) -> Self {
        Self { bounds, ..self }
    }

    /// Shows how far consumers are behind at a broker. While it is away, their pages say so.
    #[must_use]
    pub fn broker(self, broker: impl BrokerLag) -> Self {
        Self { broker: Some(Box::new(broker)), ..self }
    }

    /// Serves the pages until `stop` is cancelled. Then requests and changes under way have up to five
    /// seconds to end.
    ///
    /// It waits out outages of the database: pages say that it does not answer, and come back by themselves.
    /// Sessions live in memory, so a restart ends them.
    ///
    /// # Errors
    /// The port can be reached from other machines, and [`Access::loopback`] would let everybody in. Or the
    /// listener failed.
    pub async fn serve(self, listener: TcpListener, stop: CancellationToken) -> io::Result<()> {
        let address = listener.local_addr()?;
        if self.access.is_for_this_machine_only() && !address.ip().is_loopback() {
            let what = format!(
                "other machines reach {address}, and everybody would be let in: listen on 127.0.0.1, or use \
                 a file of tokens or a proxy that logs people in"
            );
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
        }
        let gate = Gate {
            access: self.access,
            sessions: Sessions::default(),
            csrf: Csrf::new()?,
            forms: Forms::default(),
            throttle: Throttle::default(),
        };
        let app = Arc::new(App {
            ops: self.ops,
            database: self.database,
            bounds: self.bounds,
            samples: Samples::default(),
            broker: self.broker,
            gate: Arc::new(gate),
            changes: TaskTracker::new(),
        });
        let sampling = tokio::spawn(TaskName::ConsoleSampling.of(sampling::run(app.clone(), stop.clone())));
        let served = server::serve(listener, app, stop).await;
        sampling.abort();
        served
    }
}

impl<DB: Dialect> fmt::Debug for Console<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Console")
            .field("ops", &self.ops)
            .field("access", &self.access)
            .finish_non_exhaustive()
    }
}
