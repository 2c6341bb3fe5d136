//! Locks by number or by name. A role without any right on the tables may hold such a lock, if it knows the
//! number or the name; so the secret of the tables is in it. Rows are locked otherwise.
use super::files::texts;

/// Programs that no stranger stands beside.
const EXEMPT: &[&str] = &["crates/twinbox-testkit/"];
/// A number with the secret in it, or a random one in a column that our roles alone read.
const NUMBERS: [&str; 2] = ["({lock_number})", "(lock_number)"];

/// The locks by number or name that a stranger could hold.
fn open_locks(text: &str) -> Vec<&str> {
    let by_number = text.split("advisory_").skip(1).filter(|call| {
        let argument = call.find('(').map_or("", |at| &call[at..]);
        !NUMBERS.iter().any(|number| argument.starts_with(number))
    });
    let by_name = text.split("GET_LOCK(").skip(1).filter(|call| {
        let argument = call.split(';').next().unwrap_or_default();
        !argument.contains("HEX(secret)")
    });
    by_number.chain(by_name).map(|call| call.lines().next().unwrap_or_default()).collect()
}

#[test]
fn no_stranger_can_hold_a_lock_that_we_wait_for() {
    let mut locks = 0;
    for (name, text) in texts() {
        let is_ours = name.starts_with("crates/") && (name.ends_with(".rs") || name.ends_with(".sql"));
        if is_ours && !EXEMPT.iter().any(|exempt| name.starts_with(exempt)) {
            let open = open_locks(&text);
            assert!(open.is_empty(), "{name}: lock a row, or mix the secret of the tables in: {open:?}");
            locks += text.matches("advisory_").count() + text.matches("GET_LOCK(").count();
        }
    }
    assert!(locks > 5, "{locks} locks");
}

#[test]
fn locks_that_anybody_could_hold_are_found() {
    for open in [
        "SELECT pg_advisory_xact_lock(hashtextextended('move delayed', 0::bigint))",
        "SELECT pg_try_advisory_lock(7)",
        "SELECT GET_LOCK('twinbox', 600)",
    ] {
        assert_eq!(open_locks(open).len(), 1, "{open}");
    }
    let closed = "SELECT pg_advisory_xact_lock({lock_number}), pg_try_advisory_xact_lock(lock_number)";
    assert!(open_locks(closed).is_empty());
}
