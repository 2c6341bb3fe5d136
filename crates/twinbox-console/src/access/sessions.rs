//! Sessions of people who have logged in with a token. They live in memory: a restart ends them.
use super::principal::Principal;
use axum::http::{HeaderMap, header};
use std::{
    collections::HashMap,
    fmt::Write as _,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// The name of the cookie that holds a session.
pub(crate) const SESSION_COOKIE: &str = "twinbox-session";
/// The longest time for which a session is good.
const SESSION: Duration = Duration::from_secs(12 * 3600);
/// A session ends when it was not used for so long.
const IDLE: Duration = Duration::from_secs(3600);
/// The most sessions. The one that was not used for the longest time ends for a new one.
const SESSIONS_MAX: usize = 1000;

/// The open sessions, by their ids.
#[derive(Default)]
pub(crate) struct Sessions(Mutex<HashMap<String, Session>>);

struct Session {
    principal: Principal,
    began: Instant,
    used: Instant,
}

impl Sessions {
    /// Begins a session and returns its id. None: the machine gives no random numbers.
    pub(crate) fn begin(&self, principal: Principal) -> Option<String> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).ok()?;
        let mut id = String::with_capacity(64);
        for byte in bytes {
            let _ = write!(id, "{byte:02x}");
        }
        let (mut sessions, now) = (self.lock(), Instant::now());
        sessions.retain(|_, session| session.is_good(now));
        if sessions.len() >= SESSIONS_MAX {
            let oldest = sessions.iter().min_by_key(|(_, session)| session.used);
            if let Some(oldest) = oldest.map(|(id, _)| id.clone()) {
                sessions.remove(&oldest);
            }
        }
        sessions.insert(id.clone(), Session { principal, began: now, used: now });
        Some(id)
    }

    /// Returns whose session it is, if it is still good. `is_use`: whether the request keeps it open.
    pub(crate) fn principal(&self, id: &str, is_use: bool) -> Option<Principal> {
        let (mut sessions, now) = (self.lock(), Instant::now());
        let session = sessions.get_mut(id).filter(|session| session.is_good(now))?;
        if is_use {
            session.used = now;
        }
        Some(session.principal.clone())
    }

    pub(crate) fn end(&self, id: &str) {
        self.lock().remove(id);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Session>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The id of the session that a request names.
pub(crate) fn session_of(headers: &HeaderMap) -> Option<&str> {
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs =
        cookies.flat_map(|cookies| cookies.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(name, _)| *name == SESSION_COOKIE).map(|(_, id)| id)
}

impl Session {
    fn is_good(&self, now: Instant) -> bool {
        now.duration_since(self.began) < SESSION && now.duration_since(self.used) < IDLE
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Role;

    fn principal(name: &str) -> Principal {
        Principal { name: name.to_owned(), role: Role::Viewer }
    }

    #[test]
    fn a_session_is_good_until_it_is_ended() {
        let sessions = Sessions::default();
        let (one, other) =
            (sessions.begin(principal("ada")).unwrap(), sessions.begin(principal("eve")).unwrap());
        assert_ne!(one, other);
        assert_eq!(sessions.principal(&one, true).unwrap().name, "ada");
        sessions.end(&one);
        assert_eq!(sessions.principal(&one, true), None);
        assert_eq!(sessions.principal(&other, true).unwrap().name, "eve");
    }

    #[test]
    fn a_session_ends_when_it_is_not_used() {
        let now = Instant::now();
        let session = Session { principal: principal("ada"), began: now, used: now };
        assert!(session.is_good(now + IDLE / 2) && !session.is_good(now + IDLE));
        let session = Session { used: now + SESSION, ..session };
        assert!(!session.is_good(now + SESSION));
    }

    #[test]
    fn a_page_that_refreshes_itself_keeps_no_session() {
        let sessions = Sessions::default();
        let id = sessions.begin(principal("ada")).unwrap();
        let used = || sessions.lock()[&id].used;
        let began = used();
        assert!(sessions.principal(&id, false).is_some() && used() == began);
        assert!(sessions.principal(&id, true).is_some() && used() > began);
    }

    #[test]
    fn there_are_no_more_than_so_many_sessions() {
        let sessions = Sessions::default();
        let first = sessions.begin(principal("first")).unwrap();
        for _ in 0..SESSIONS_MAX {
            sessions.begin(principal("later")).unwrap();
        }
        assert_eq!(sessions.principal(&first, true), None);
        assert_eq!(sessions.lock().len(), SESSIONS_MAX);
    }
}
