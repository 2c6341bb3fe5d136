//! Finding a destination by its name.
use crate::exit::Exit;
use twinbox_ops::{Ops, ReaderStatus};
use twinbox_sql::Dialect;

/// # Errors
/// No such destination: the error names the existing ones.
pub(crate) async fn find_destination<DB: Dialect>(ops: &Ops<DB>, name: &str) -> Result<ReaderStatus, Exit> {
    let mut readers = ops.readers().await?;
    match readers.iter().position(|reader| reader.name == name) {
        Some(index) => Ok(readers.swap_remove(index)),
        None if readers.is_empty() => Err(Exit::not_found(format!(
            "destination {name:?} is unknown: none has ever run on this database"
        ))),
        None => {
            let names = Vec::from_iter(readers.iter().map(|reader| reader.name.as_str())).join(", ");
            Err(Exit::not_found(format!("destination {name:?} is unknown: known are {names}")))
        }
    }
}
