//! Writing messages in a transaction.
use crate::{
    Dialect, Error, ErrorKind, catalog::Catalog, codecs, handler_connection, micros::Micros, row,
    scope::Scope, statement::query, trace::publish_span,
};
use tracing::Instrument as _;
use twinbox_core::{Draft, MessageId, draft::Fields, id, trace};

/// The most messages that one statement of [`Outbox::publish_all`](crate::Outbox::publish_all) writes. More
/// become several statements of the same transaction.
pub const PUBLISH_ALL_MAX: usize = 1000;
/// The bytes of their payloads and headers, unless one message alone has more. A server of MariaDB takes a
/// statement of 16 MiB.
pub const PUBLISH_ALL_BYTES_MAX: usize = 4 << 20;

/// Publishes one draft.
pub(crate) async fn publish<DB: Dialect>(
    conn: &mut DB::Connection,
    scope: Option<&mut Scope>,
    catalog: &Catalog,
    draft: Draft,
) -> Result<MessageId, Error> {
    check_cause::<DB>(conn, scope.as_deref())?;
    let drafts = vec![draft];
    let span = publish_span(&drafts);
    let write = async {
        let fields = prepare(catalog, scope, drafts)?.swap_remove(0);
        let id = message_id(catalog, &fields);
        write::<DB>(conn, catalog, fields).await?;
        Ok(id)
    };
    write.instrument(span).await
}

/// Publishes many drafts in order, as few statements as possible.
pub(crate) async fn publish_all<DB: Dialect>(
    conn: &mut DB::Connection,
    scope: Option<&mut Scope>,
    catalog: &Catalog,
    drafts: Vec<Draft>,
) -> Result<Vec<MessageId>, Error> {
    check_cause::<DB>(conn, scope.as_deref())?;
    let span = publish_span(&drafts);
    let write_all = async {
        let mut ids = Vec::with_capacity(drafts.len());
        let mut messages: Vec<Fields> = Vec::with_capacity(drafts.len());
        let mut delayed = Vec::new();
        for fields in prepare(catalog, scope, drafts)? {
            ids.push(message_id(catalog, &fields));
            if fields.not_before.is_some() { delayed.push(fields) } else { messages.push(fields) }
        }
        while !messages.is_empty() {
            let rest = messages.split_off(of_one_statement(&messages));
            DB::publish_all(conn, catalog, messages).await?;
            messages = rest;
        }
        for fields in delayed {
            write::<DB>(conn, catalog, fields).await?;
        }
        Ok(ids)
    };
    write_all.instrument(span).await
}

/// The bytes of a header's byte in JSON, at most: `\u0001`.
const JSON_BYTES_MAX: usize = 6;

/// How many of the first messages one statement writes.
fn of_one_statement(messages: &[Fields]) -> usize {
    let mut bytes = 0;
    let fits = |message: &&Fields| {
        let headers = message.headers.iter().map(|(name, value)| name.len() + value.len());
        bytes += message.payload.len() + JSON_BYTES_MAX * headers.sum::<usize>();
        bytes <= PUBLISH_ALL_BYTES_MAX
    };
    messages.iter().take(PUBLISH_ALL_MAX).take_while(fits).count().max(1)
}

/// Refuses an event of a handler without a cause, from which its id is derived: another run would publish it
/// again.
pub(crate) fn check_cause<DB: Dialect>(conn: &DB::Connection, scope: Option<&Scope>) -> Result<(), Error> {
    let what = match scope {
        Some(scope) if scope.is_of_batch => {
            "one message of a batch causes an event: write `tx.caused_by(&delivery).publish(&event)`, or \
             `outbox.publish(&mut tx.caused_by(&delivery), &event)`"
        }
        None if handler_connection::is_recorded(conn) => {
            "a transaction of sqlx that was begun inside a handler's knows nothing of the delivery: write \
             `tx.publish(&event)`, and `tx.savepoint(async |tx| …)` to undo a part of the work"
        }
        _ => return Ok(()),
    };
    Err(Error::new(ErrorKind::Configuration, what))
}

/// Completes, encodes and checks drafts. If one is refused, none counts as published.
fn prepare(
    catalog: &Catalog,
    mut scope: Option<&mut Scope>,
    drafts: Vec<Draft>,
) -> Result<Vec<Fields>, Error> {
    let Some(codec) = &catalog.codecs.encoder else {
        drafts.iter().try_for_each(Draft::validate)?;
        let fields = drafts.into_iter().map(|draft| complete(draft, scope.as_deref_mut()).with_tracestate());
        return Ok(fields.collect());
    };
    let counts = scope.as_deref().map(Scope::counts);
    let encode = |draft| {
        let fields = complete(draft, scope.as_deref_mut());
        codecs::encode(&**codec, &catalog.service, fields).map(Fields::with_tracestate)
    };
    let prepared = drafts.into_iter().map(encode).collect();
    if let (Err(_), Some(scope), Some(counts)) = (&prepared, scope, counts) {
        scope.reset(counts);
    }
    prepared
}

/// Writes a message to the log, or to the messages that wait for their time.
async fn write<DB: Dialect>(
    conn: &mut DB::Connection,
    catalog: &Catalog,
    fields: Fields,
) -> Result<(), Error> {
    let query = match fields.not_before {
        None if catalog.sql.outbox.publish.is_absent() => {
            return DB::publish_all(conn, catalog, vec![fields]).await;
        }
        None => row::bind_fields::<DB>(query::<DB>(&catalog.sql.outbox.publish), fields),
        Some(not_before) => {
            let id = message_id(catalog, &fields).as_uuid();
            row::bind_fields::<DB>(query::<DB>(&catalog.sql.delayed.insert), fields)
                .bind(id)
                .bind(Micros(not_before))
        }
    };
    query.for_caller().execute(conn).await?;
    Ok(())
}

/// Fills the gaps of a draft.
fn complete(draft: Draft, scope: Option<&mut Scope>) -> Fields {
    let mut fields = draft.fields;
    fields.trace_or(trace::current());
    if let Some(scope) = scope {
        scope.inherit(&mut fields);
    }
    let id = fields.id.get_or_insert_with(id::new_event_id).clone();
    fields.correlation_id.get_or_insert(id);
    fields
}

fn message_id(catalog: &Catalog, fields: &Fields) -> MessageId {
    MessageId::of(&catalog.service, &fields.event_type, fields.id.as_deref().unwrap_or_default())
}

/// Cancels a message that waits for its time. False: none with this id waits.
pub(crate) async fn cancel<DB: Dialect>(
    conn: &mut DB::Connection,
    catalog: &Catalog,
    id: MessageId,
) -> Result<bool, Error> {
    let cancel = query::<DB>(&catalog.sql.delayed.cancel).for_caller().bind(id.as_uuid());
    Ok(DB::rows_affected(&cancel.execute(conn).await?) > 0)
}
