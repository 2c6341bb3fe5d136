use crate::{
    Dialect, Error, ErrorKind, InTransaction, Store, codec, handled,
    micros::Micros,
    row,
    scope::Scope,
    sql::{Statements, query},
};
use sqlx::Row as _;
use std::{fmt, marker::PhantomData, sync::Arc};
use twinbox_core::{BoxFuture, Draft, Event, Message, MessageId, draft::Fields, id, trace};

/// Messages that one statement of [`Outbox::publish_all`] writes at most. More become several statements of
/// the same transaction.
pub const PUBLISH_ALL_MAX: usize = 1000;

/// Where an application publishes. Cheap to clone; needs no running relay.
///
/// A message is published when, and only if, the transaction that it is given commits. Relay and embedded
/// consumers see it after that.
///
/// Order: messages of one key are delivered in the order in which they were published, provided that
/// writers of one key take turns, as they do when each locks the row of its aggregate first (an `UPDATE` of
/// it does). Without such a row use [`publish_ordered`](Self::publish_ordered).
///
/// With a `sqlx::Transaction` of your own on Postgres: if a statement fails and you ignore its error,
/// `commit()` returns `Ok` and Postgres rolls back, message included. [`Store::begin`](crate::Store::begin)
/// gives a transaction whose commit says so.
pub struct Outbox<DB: Dialect> {
    statements: Arc<Statements>,
    database: PhantomData<fn() -> DB>,
}

impl<DB: Dialect> Outbox<DB> {
    pub(crate) fn new(statements: Arc<Statements>) -> Self {
        Self { statements, database: PhantomData }
    }

    pub(crate) fn statements(&self) -> &Statements {
        &self.statements
    }

    /// Writes the event in the caller's transaction. With a handler's transaction it is the same as
    /// [`Tx::publish`](crate::Tx::publish).
    ///
    /// # Errors
    /// The event breaks a bound or the codec refused it, and nothing was written; or the database refused.
    /// [`ErrorKind::Configuration`]: a handler published by a [`BatchTx`](crate::BatchTx), or by a transaction of sqlx that
    /// it has begun inside of its own; nothing was written, and the error says what to write.
    // Not `async fn`: with an opaque return type a pool in the place of `tx` is three errors, not one.
    pub fn publish<'a, E: Event>(
        &'a self,
        tx: &'a mut impl InTransaction<DB>,
        event: &'a E,
    ) -> BoxFuture<'a, Result<MessageId, Error>> {
        let (conn, scope) = tx.parts();
        Box::pin(async move { insert::<DB>(conn, scope, &self.statements, Draft::of(event)?).await })
    }

    /// Writes a draft: [`publish`](Self::publish) with an id, key, header or correlation of one's own, or for
    /// [later](Draft::not_before).
    ///
    /// # Errors
    /// As [`publish`](Self::publish).
    pub fn publish_draft<'a>(
        &'a self,
        tx: &'a mut impl InTransaction<DB>,
        draft: Draft,
    ) -> BoxFuture<'a, Result<MessageId, Error>> {
        let (conn, scope) = tx.parts();
        Box::pin(insert::<DB>(conn, scope, &self.statements, draft))
    }

    /// Publishes with a lock on the key that is held until the transaction ends, for writers that have no
    /// row of their own to lock: those of one key take turns from here on.
    ///
    /// # Errors
    /// As [`publish`](Self::publish), or the wait for the lock ran out of the session's `lock_timeout`.
    pub fn publish_ordered<'a, E: Event>(
        &'a self,
        tx: &'a mut impl InTransaction<DB>,
        event: &'a E,
    ) -> BoxFuture<'a, Result<MessageId, Error>> {
        let (conn, scope) = tx.parts();
        Box::pin(async move {
            let draft = Draft::of(event)?;
            check_cause::<DB>(conn, scope.as_deref())?;
            if let Some(key) = &draft.fields.key {
                DB::lock_key(conn, &self.statements, key).await?;
            }
            insert::<DB>(conn, scope, &self.statements, draft).await
        })
    }

    /// Writes many drafts, in order, in one statement for each [`PUBLISH_ALL_MAX`] of them; those that are for
    /// [later](Draft::not_before) one at a time.
    ///
    /// # Errors
    /// A draft breaks a bound or the codec refused it, and nothing was written; or the database refused.
    pub fn publish_all<'a>(
        &'a self,
        tx: &'a mut impl InTransaction<DB>,
        drafts: Vec<Draft>,
    ) -> BoxFuture<'a, Result<Vec<MessageId>, Error>> {
        let (conn, scope) = tx.parts();
        Box::pin(async move {
            check_cause::<DB>(conn, scope.as_deref())?;
            let mut ids = Vec::with_capacity(drafts.len());
            let mut messages: Vec<Fields> = Vec::with_capacity(drafts.len());
            let mut delayed = Vec::new();
            for fields in prepare(&self.statements, scope, drafts)? {
                ids.push(message_id(&self.statements, &fields));
                if fields.not_before.is_some() { delayed.push(fields) } else { messages.push(fields) }
            }
            while !messages.is_empty() {
                let rest = messages.split_off(messages.len().min(PUBLISH_ALL_MAX));
                DB::publish_all(conn, &self.statements, messages).await?;
                messages = rest;
            }
            for fields in delayed {
                write::<DB>(conn, &self.statements, fields).await?;
            }
            Ok(ids)
        })
    }
}

pub(crate) async fn insert<DB: Dialect>(
    conn: &mut DB::Connection,
    scope: Option<&mut Scope>,
    statements: &Statements,
    draft: Draft,
) -> Result<MessageId, Error> {
    check_cause::<DB>(conn, scope.as_deref())?;
    let fields = prepare(statements, scope, vec![draft])?.swap_remove(0);
    let id = message_id(statements, &fields);
    write::<DB>(conn, statements, fields).await?;
    Ok(id)
}

/// What a handler publishes needs a cause, from which its id follows: another run would publish it once more.
fn check_cause<DB: Dialect>(conn: &DB::Connection, scope: Option<&Scope>) -> Result<(), Error> {
    let what = match scope {
        Some(scope) if scope.is_of_batch => {
            "what is published in a batch is caused by one of its messages: write \
             `tx.caused_by(&delivery).publish(&event)`, or `outbox.publish(&mut tx.caused_by(&delivery), &event)`"
        }
        None if handled::is_handled(conn) => {
            "a transaction of sqlx that was begun inside of a handler's knows nothing of the delivery: write \
             `tx.publish(&event)`, and `tx.savepoint(async |tx| …)` for what is to be undone by itself"
        }
        _ => return Ok(()),
    };
    Err(Error::new(ErrorKind::Configuration, what))
}

/// What is to be written: complete, encoded, and within its bounds. If one is not, none counts as published.
fn prepare(
    statements: &Statements,
    mut scope: Option<&mut Scope>,
    drafts: Vec<Draft>,
) -> Result<Vec<Fields>, Error> {
    let Some(codec) = &statements.codecs.encoder else {
        drafts.iter().try_for_each(Draft::validate)?;
        return Ok(drafts.into_iter().map(|draft| complete(draft, scope.as_deref_mut())).collect());
    };
    let counts = scope.as_deref().map(Scope::counts);
    let encode = |draft| codec::encode(&**codec, &statements.service, complete(draft, scope.as_deref_mut()));
    let prepared = drafts.into_iter().map(encode).collect();
    if let (Err(_), Some(scope), Some(counts)) = (&prepared, scope, counts) {
        scope.reset(counts);
    }
    prepared
}

/// To the log, or to where messages wait for their time.
async fn write<DB: Dialect>(
    conn: &mut DB::Connection,
    statements: &Statements,
    fields: Fields,
) -> Result<(), Error> {
    let query = match fields.not_before {
        None => row::bind::<DB>(query::<DB>(&statements.publish), fields),
        Some(not_before) => {
            let id = message_id(statements, &fields).as_uuid();
            row::bind::<DB>(query::<DB>(&statements.delay), fields).bind(id).bind(Micros(not_before))
        }
    };
    query.execute(conn).await?;
    Ok(())
}

/// Fills in what the draft leaves open.
fn complete(draft: Draft, scope: Option<&mut Scope>) -> Fields {
    let mut fields = draft.fields;
    fields.traceparent = fields.traceparent.take().or_else(trace::current);
    if let Some(scope) = scope {
        scope.inherit(&mut fields);
    }
    let id = fields.id.get_or_insert_with(id::fresh).clone();
    fields.correlation_id.get_or_insert(id);
    fields
}

fn message_id(statements: &Statements, fields: &Fields) -> MessageId {
    MessageId::of(&statements.service, fields.id.as_deref().unwrap_or_default())
}

impl<DB: Dialect> Clone for Outbox<DB> {
    fn clone(&self) -> Self {
        Self { statements: self.statements.clone(), database: self.database }
    }
}

impl<DB: Dialect> fmt::Debug for Outbox<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outbox").field("service", &self.statements.service).finish_non_exhaustive()
    }
}

impl<DB: Dialect> Store<DB> {
    /// Messages of a type that are in the outbox, oldest first.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn published(&self, event_type: &str, limit: u32) -> Result<Vec<Message>, Error> {
        let mut conn = self.connection().await?;
        let rows = query::<DB>(&self.statements().published)
            .bind(event_type.to_owned())
            .bind(i64::from(limit))
            .fetch_all(&mut *conn)
            .await?;
        conn.done().await?;
        rows.iter().map(|row| row::message::<DB>(row, 1, self.service(), Some(row.try_get(0)?))).collect()
    }
}
