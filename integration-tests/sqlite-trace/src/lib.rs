//! Hears of each statement of a SQLite connection, in the thread of the connection.
use libsqlite3_sys::{
    SQLITE_OK, SQLITE_TRACE_CLOSE, SQLITE_TRACE_PROFILE, SQLITE_TRACE_STMT, sqlite3_sql, sqlite3_trace_v2,
};
use sqlx::SqliteConnection;
use std::{
    ffi::{CStr, c_char, c_int, c_uint, c_void},
    ptr,
};

/// When a statement is heard of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// It has not done anything yet.
    Begins,
    /// It is executed. Outside of a transaction it is committed as well, unless its reader takes the first
    /// row alone.
    Ended,
}

type Watch = Box<dyn Fn(Moment, &str) + Send + Sync>;

/// Calls a function at the beginning and at the end of each statement, with its text. The connection waits
/// for the function. It must not panic, and must not use the connection.
///
/// # Errors
/// The connection is lost.
pub async fn watch(
    conn: &mut SqliteConnection,
    watch: impl Fn(Moment, &str) + Send + Sync + 'static,
) -> sqlx::Result<()> {
    let mut handle = conn.lock_handle().await?;
    let watch: Box<Watch> = Box::new(Box::new(watch));
    let mask = SQLITE_TRACE_STMT | SQLITE_TRACE_PROFILE | SQLITE_TRACE_CLOSE;
    // SAFETY: the handle is locked and open. SQLite uses the pointer until it has called `heard` with
    // SQLITE_TRACE_CLOSE, which frees it: nothing else sets a trace on these connections, and sqlx ends all
    // statements before it closes one.
    let set = unsafe {
        let watch = Box::into_raw(watch).cast();
        sqlite3_trace_v2(handle.as_raw_handle().as_ptr(), mask, Some(heard), watch)
    };
    assert_eq!(set, SQLITE_OK, "a trace is set");
    Ok(())
}

/// # Safety
/// `watch` is the pointer of [`watch()`], and the others are as SQLite says: a statement and a text, a
/// statement and a time, or a connection.
unsafe extern "C" fn heard(event: c_uint, watch: *mut c_void, what: *mut c_void, text: *mut c_void) -> c_int {
    let watch = watch.cast::<Watch>();
    if event == SQLITE_TRACE_CLOSE {
        // SAFETY: it is the last call.
        drop(unsafe { Box::from_raw(watch) });
        return 0;
    }
    let (moment, text) = match event {
        SQLITE_TRACE_STMT => (Moment::Begins, text.cast::<c_char>().cast_const()),
        // SAFETY: a statement that ends is one that lives.
        SQLITE_TRACE_PROFILE => (Moment::Ended, unsafe { sqlite3_sql(what.cast()) }),
        _ => return 0,
    };
    if !ptr::eq(text, ptr::null()) {
        // SAFETY: the texts of SQLite end with a zero, and live as long as their statement.
        let text = unsafe { CStr::from_ptr(text) };
        // SAFETY: it is freed by the last call alone.
        unsafe { (*watch)(moment, &text.to_string_lossy()) };
    }
    0
}
