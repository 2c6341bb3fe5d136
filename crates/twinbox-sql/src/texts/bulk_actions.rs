//! Acts of operators on many dead letters.
use super::area;

area! {
    /// Bulk actions, by primary key where nothing else is named.
    BulkActions {
        /// Records an action, which a relay or a consumer then carries out. Binds: action, filter, spacing,
        /// planned, number of the audit entry, operator, reason.
        create,
        /// One action. Bind: id.
        find,
        /// The newest. Bind: limit.
        list,
        /// The oldest behind an id that runs and that no other process has, by `bulk_actions_running`. Binds:
        /// id, owner.
        next,
        /// Takes an action, or renews its lease, in a transaction that works on it. Binds: owner, lease, id,
        /// owner.
        take,
        /// Records how far it is, in the transaction that changed the dead letters. Binds: time, number,
        /// dead letters that were looked at, changed ones, id.
        advance,
        /// Ends an action that runs. Binds: state, id.
        finish,
        /// Ends an action that runs and cannot be carried out. Binds: why, id.
        fail,
        /// Writes the number of changed dead letters into the audit. Binds: id, number of the audit entry.
        end_audit,
    }
}
