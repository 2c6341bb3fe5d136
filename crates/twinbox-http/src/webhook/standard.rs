use super::{Refused, SIGNATURES_MAX, Signed, seconds};
use base64::{Engine as _, engine::general_purpose::STANDARD};

/// Ids that are longer are no ids.
const ID_BYTES_MAX: usize = 255;

pub(super) fn read<'h>(only: impl Fn(&str) -> Result<&'h str, Refused>) -> Result<Signed, Refused> {
    let (id, timestamp) = (only("webhook-id")?, only("webhook-timestamp")?);
    // With a dot in it, `a.1` at 2 would be signed like `a` at 1 with a body that begins with `2.`.
    let is_id = |id: &str| {
        (1..=ID_BYTES_MAX).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_graphic() && b != b'.')
    };
    if !is_id(id) {
        return Err(Refused::Malformed);
    }
    let signatures = only("webhook-signature")?.split(' ').filter_map(|one| one.strip_prefix("v1,"));
    let signatures = signatures.take(SIGNATURES_MAX).filter_map(|one| STANDARD.decode(one).ok());
    let prefix = format!("{id}.{timestamp}.");
    Ok(Signed { id: Some(id.to_owned()), at: seconds(timestamp)?, prefix, signatures: signatures.collect() })
}
