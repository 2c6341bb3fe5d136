//! Statements of operations that all databases share, by the names that they have among the others.
/// By primary key, all that bind a slot.
pub(crate) const TOKEN_TIME: &str =
    "SELECT {now} FROM {idempotency_keys} WHERE slot = ? AND owner = ? AND status = 'pending'";
/// Flushed, both: somebody outside is called next, or was.
pub(crate) const GIVE_TOKEN: &str = "UPDATE {idempotency_keys} SET tokens = ?, updated_at = {now} \
    WHERE {bounded} AND slot = ? AND owner = ? AND status = 'pending' RETURNING {flushed}";
pub(crate) const SAVE_OPERATION: &str = "UPDATE {idempotency_keys} SET recovery_point = ?, lease_until = {after}, \
    updated_at = {now} WHERE {bounded} AND slot = ? AND owner = ? AND status = 'pending' RETURNING {flushed}";
/// The answer is sent after the transaction that begins with this, so that is flushed.
pub(crate) const ENTER_OPERATION: &str = "UPDATE {idempotency_keys} SET owner = NULL \
    WHERE slot = ? AND owner = ? AND status = 'pending' RETURNING {flushed}";
pub(crate) const FIND_OPERATION: &str = "SELECT request_hash, hash_alg, principal, status, http_code, \
    response_headers, response_body, body_kind, result_ref, codec_headers, NOT unfinished AND expires_at <= {now} \
    FROM {idempotency_keys} WHERE slot = ?";
/// Nobody's any more, so that a renewal which is on its way finds nothing.
pub(crate) const RELEASE_OPERATION: &str = "UPDATE {idempotency_keys} SET owner = ?, \
    uncounted = uncounted + ?, lease_until = {now} WHERE {bounded} AND slot = ? AND owner = ? AND status = 'pending'";
pub(crate) const FORGET_OPERATION: &str = "DELETE FROM {idempotency_keys} \
    WHERE {bounded} AND slot = ? AND owner = ? AND status = 'pending' AND NOT unfinished AND attempts = 1";
/// By idempotency_keys_unfinished, both.
pub(crate) const UNFINISHED_OPERATIONS: &str = "SELECT slot, tenant, principal, scope, key, attempts, recovery_point, tokens, created_at, updated_at, \
    expires_at, expires_at <= (SELECT {now}) FROM {idempotency_keys} \
    WHERE unfinished AND (lease_until IS NULL OR lease_until <= (SELECT {now})) ORDER BY updated_at LIMIT ?";
pub(crate) const COUNT_UNFINISHED: &str = "SELECT count(*) FROM (SELECT 1 FROM {idempotency_keys} \
    WHERE unfinished AND (lease_until IS NULL OR lease_until <= (SELECT {now})) LIMIT ?) AS unfinished";
pub(crate) const FORGET_UNFINISHED: &str = "DELETE FROM {idempotency_keys} \
    WHERE {bounded} AND slot = ? AND unfinished AND (lease_until IS NULL OR lease_until <= {now})";
/// By primary key, both.
pub(crate) const ERASE_OPERATIONS_PAGE: &str = "SELECT slot FROM (SELECT slot FROM {idempotency_keys} WHERE slot > ? ORDER BY slot LIMIT ?) \
    AS page ORDER BY slot DESC LIMIT 1";
pub(crate) const ERASE_OPERATIONS: &str = "UPDATE {idempotency_keys} SET principal = '', key = '', response_headers = NULL, \
    response_body = NULL, body_kind = 'omitted', result_ref = NULL, codec_headers = NULL, recovery_point = NULL, \
    updated_at = {now} WHERE slot > ? AND slot <= ? AND status <> 'pending' AND NOT unfinished \
    AND tenant = ? AND principal = coalesce(?, principal)";
/// By idempotency_keys_principal.
pub(crate) const LIVE_OPERATIONS: &str = "SELECT count(*) FROM (SELECT 1 FROM {idempotency_keys} \
    WHERE tenant = ? AND principal = ? AND expires_at > (SELECT {now}) LIMIT ?) AS live";
