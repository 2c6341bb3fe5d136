//! Planning side effects, and reading them.
use crate::{
    request::EffectRequest,
    side_effect::{self, SideEffect},
    source::SourceId,
    token::effect_id,
};
use std::fmt;
use twinbox_core::BoxFuture;
use twinbox_sql::{
    Dialect, Error, ErrorKind, InTransaction, Store,
    engine::{Caller, Engine, caller, headers, inserted, query, text},
};
use uuid::Uuid;

/// The result of [`Effects::plan`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Planned {
    /// The effect is written, and is sent after the commit.
    New(Uuid),
    /// The source has an effect of this kind already. Nothing was written, and the first request stays.
    Existing {
        /// The id of the effect.
        id: Uuid,
        /// Whether it is known to have the request that was now given. False if it has another one and a
        /// replay or a compensation plans it, if a compensation has another kind, or if the effect cannot be
        /// read.
        has_same_request: bool,
    },
    /// The transaction is a dry run. Nothing was written.
    DryRun,
}

/// Plans the side effects of a service, and reads them. Cheap to clone; needs no running dispatcher.
///
/// An effect is sent if and only if the transaction that plans it commits. A
/// [`Dispatcher`](crate::Dispatcher) sends it after that.
pub struct Effects<DB: Dialect> {
    pub(crate) engine: Engine<DB>,
}

impl<DB: Dialect> Effects<DB> {
    /// Creates a handle to the side effects of a store.
    pub fn new(store: &Store<DB>) -> Self {
        Self { engine: store.engine().clone() }
    }

    /// Plans a side effect in the caller's transaction.
    ///
    /// A source has one effect of each kind, so a handler that runs again plans nothing twice. For several
    /// effects of one kind, such as a mail to each of three persons, add a qualifier: `email.invoice:ada`.
    /// Make the request of what the source says, without the time of now or a random number: an effect that
    /// is planned again with another request is an error. In a replay it is none, because the handler may be
    /// another one since: the first request stays, and a line of the log says so.
    ///
    /// Two consumers that plan the same kind for one message are in conflict too, unless their requests are
    /// the same: give each a kind of its own. So is a new consumer that reads from the beginning what another
    /// one has planned for, with a newer request. To try again cannot help: return
    /// [`HandlerError::reject`](twinbox_sql::HandlerError::reject) with the error, and the message is a dead
    /// letter at once.
    ///
    /// The source is the message in a handler, [`Tx::message_id`](twinbox_sql::Tx::message_id); the operation
    /// in a request, which is the same call; or the id of a row.
    ///
    /// In a handler the effect inherits correlation and trace. A dry run plans nothing.
    ///
    /// # Errors
    /// [`ErrorKind::Configuration`]: the request could never be sent, and nothing was written.
    /// [`ErrorKind::Conflict`]: the source has an effect of this kind with another request, which stays, and
    /// nothing was written. The codec refused, and nothing was written; or the database refused, and on
    /// Postgres the transaction is lost.
    pub fn plan<'a>(
        &'a self,
        tx: &'a mut impl InTransaction<DB>,
        source: impl Into<SourceId>,
        kind: &'a str,
        request: EffectRequest,
    ) -> BoxFuture<'a, Result<Planned, Error>> {
        let (caller, source) = (caller(tx), source.into());
        Box::pin(self.write(caller, source.as_uuid(), kind, request, None))
    }

    pub(crate) async fn write(
        &self,
        caller: Caller<'_, DB>,
        source_id: Uuid,
        kind: &str,
        request: EffectRequest,
        compensates: Option<i64>,
    ) -> Result<Planned, Error> {
        request.check(kind)?;
        if caller.is_dry_run {
            return Ok(Planned::DryRun);
        }
        let (catalog, id) = (self.engine.catalog(), effect_id(source_id, kind));
        let (body, codec_headers) = side_effect::encode(catalog, source_id, kind, &request)?;
        let plan = query::<DB>(&catalog.sql.effects.plan)
            .for_caller()
            .bind(id)
            .bind(source_id)
            .bind(kind.to_owned())
            .bind(request.vendor.clone())
            .bind(request.key.clone())
            .bind(request.method.clone())
            .bind(request.target.clone())
            .bind(request.content_type.clone())
            .bind(headers(&request.headers))
            .bind(body)
            .bind(codec_headers)
            .bind(caller.correlation_id.map(|id| text(&id).into_owned()))
            .bind(caller.trace.map(|trace| trace.traceparent))
            .bind(compensates);
        if inserted::<DB>(&mut *caller.conn, plan).await? {
            return Ok(Planned::New(id));
        }
        let find = query::<DB>(&catalog.sql.effects.find).bind(source_id).bind(kind.to_owned());
        match find.fetch_optional(caller.conn).await? {
            Some(row) => {
                let existing = side_effect::read::<DB>(&row)?.decode(catalog)?;
                if !caller.is_replay && compensates.is_none() {
                    check_request(&existing, &request)?;
                }
                Ok(planned_before(&existing, &request))
            }
            None => Ok(Planned::Existing { id, has_same_request: false }),
        }
    }

    /// Returns the effect of a source, if one of this kind is planned.
    ///
    /// # Errors
    /// The database refused or is away; or the request cannot be decoded, or is not encoded although the
    /// store requires it: [`ErrorKind::Codec`].
    pub async fn find(&self, source: impl Into<SourceId>, kind: &str) -> Result<Option<SideEffect>, Error> {
        let (find, source) = (&self.engine.sql().effects.find, source.into().as_uuid());
        let row = self.engine.fetch_optional(find, |query| query.bind(source).bind(kind.to_owned())).await?;
        self.decode(row)
    }

    /// Returns the effect with a position.
    ///
    /// # Errors
    /// As [`find`](Self::find).
    pub async fn get(&self, position: i64) -> Result<Option<SideEffect>, Error> {
        self.decode(
            self.engine.fetch_optional(&self.engine.sql().effects.get, |query| query.bind(position)).await?,
        )
    }

    /// Returns the effect with an id. One that was planned in SQL has no stored id before it is first sent.
    ///
    /// # Errors
    /// As [`find`](Self::find).
    pub async fn get_by_id(&self, id: Uuid) -> Result<Option<SideEffect>, Error> {
        let get = &self.engine.sql().effects.get_by_id;
        self.decode(self.engine.fetch_optional(get, |query| query.bind(id)).await?)
    }

    fn decode(&self, row: Option<DB::Row>) -> Result<Option<SideEffect>, Error> {
        row.map(|row| side_effect::read::<DB>(&row)?.decode(self.engine.catalog())).transpose()
    }
}

/// Refuses a request that is not the one of the effect that is there.
fn check_request(existing: &SideEffect, request: &EffectRequest) -> Result<(), Error> {
    if existing.request.is_stored_like(request) {
        return Ok(());
    }
    let SideEffect { position, kind, .. } = existing;
    let what = format!(
        "the effect {position} ({kind:?}) was planned with another request, which stays: plan it with the \
         same one, or give its kind a qualifier"
    );
    Err(Error::new(ErrorKind::Conflict, what))
}

/// The result of planning an effect that is there. Its request stays.
pub(crate) fn planned_before(existing: &SideEffect, request: &EffectRequest) -> Planned {
    let (id, has_same_request) = (existing.id, existing.request.is_stored_like(request));
    if !has_same_request {
        let kind = &*existing.kind;
        tracing::warn!(effect = %id, kind, "planned again with another request: the first stays");
    }
    Planned::Existing { id, has_same_request }
}

impl<DB: Dialect> Clone for Effects<DB> {
    fn clone(&self) -> Self {
        Self { engine: self.engine.clone() }
    }
}

impl<DB: Dialect> fmt::Debug for Effects<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Effects").field("service", &self.engine.service()).finish_non_exhaustive()
    }
}
