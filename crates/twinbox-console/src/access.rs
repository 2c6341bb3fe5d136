//! Access: principals, their roles, and how the console knows them.
mod csrf;
mod error;
mod forms;
mod principal;
mod proxy;
mod sessions;
mod settings;
mod throttle;
mod tokens;

pub(crate) use csrf::Csrf;
pub use error::AccessError;
pub(crate) use forms::Forms;
pub use principal::{Principal, Role};
pub(crate) use sessions::{SESSION_COOKIE, Sessions, session_of};
pub use settings::Access;
pub(crate) use settings::Identity;
pub(crate) use throttle::Throttle;
