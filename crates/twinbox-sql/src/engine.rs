//! What other crates of Twinbox use of this one. Not part of the API: it may change in any release.
mod caller;
mod handle;

pub use crate::{
    catalog::Catalog,
    change::{changed_row, changed_rows, inserted, inserted_id},
    codecs::{EffectColumns, decode_bytes, encode_bytes},
    connection::{Connection, done_with},
    cursor::Cursor,
    dialect::{
        Claim, Claims, Fragments, HOLES_MAX, OperationClaim, OperationClaimed, OperationRow, PURGE_BATCH,
        PageBinds, Purged, check_server_run, hold_fence, selection,
    },
    expectation::{SourceStatements, SourceTable},
    job_runs::{JobRunResult, JobRunRow, JobRunState, OwnedJobRun, elect_job_run, job_run_id, take_job_run},
    micros::{Micros, micros},
    render::render,
    row::{MessageColumns, TextColumns, bind_message, count, log_message, optional_text, small_count},
    schema::{check_namespace, check_tables, tables, triggers},
    statement::{COUNT_MAX, Query, Scalar, Statement, query, query_of, scalar, silent},
    text::{bounded, headers, hex, read_headers, text},
    text_column::Text,
    texts::{ParkedQueue, Texts},
};
pub use caller::{Caller, caller};
pub use handle::Engine;
