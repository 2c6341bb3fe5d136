//! Tokens in a file.
use super::{error::AccessError, principal::Principal};
use sha2::{Digest as _, Sha256};
use std::{collections::HashMap, fmt};

/// The shortest token, in characters.
const TOKEN_MIN: usize = 32;
/// The longest token, in bytes.
pub(super) const TOKEN_BYTES_MAX: usize = 1024;

/// The principals by the hashes of their tokens: a look-up takes no time that depends on a token.
#[derive(Clone)]
pub(crate) struct Tokens(HashMap<[u8; 32], Principal>);

impl Tokens {
    pub(super) fn parse(file: &str) -> Result<Self, AccessError> {
        let mut tokens = HashMap::new();
        for (nth, line) in file.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let refuse = |why: &str| Err(AccessError(format!("line {} of the token file {why}", nth + 1)));
            let [role, name, token] = *line.split_whitespace().collect::<Vec<_>>() else {
                return refuse("must have a role, a name and a token, separated by spaces");
            };
            let Ok(role) = role.parse() else {
                return refuse("must begin with `viewer` or `operator`");
            };
            if token.chars().count() < TOKEN_MIN || token.len() > TOKEN_BYTES_MAX {
                return refuse("has a token that is shorter than 32 characters or longer than 1024 bytes");
            }
            let principal = Principal { name: name.to_owned(), role };
            if tokens.insert(hash(token), principal).is_some() {
                return refuse("has a token that an earlier line has too");
            }
        }
        match tokens.is_empty() {
            true => Err(AccessError("the token file has no token: write lines `operator NAME TOKEN`".into())),
            false => Ok(Self(tokens)),
        }
    }

    pub(crate) fn find(&self, token: &str) -> Option<&Principal> {
        self.0.get(&hash(token.trim()))
    }
}

fn hash(token: &str) -> [u8; 32] {
    Sha256::digest(token).into()
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.values()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Role;

    #[test]
    fn a_file_of_tokens_is_read() {
        let (ada, eve) = ("a".repeat(32), "e".repeat(40));
        let tokens = Tokens::parse(&format!("# ours\n\noperator ada {ada}\n viewer  eve {eve}\n")).unwrap();
        assert_eq!(tokens.find(&ada).unwrap().role, Role::Operator);
        assert_eq!(tokens.find(&format!(" {eve}\n")).unwrap().name, "eve");
        assert_eq!(tokens.find("other"), None);
        assert!(!format!("{tokens:?}").contains(&ada));
    }

    #[test]
    fn a_file_that_is_not_safe_is_refused() {
        let (token, short) = ("a".repeat(32), "a".repeat(31));
        for (file, why) in [
            (String::new(), "has no token"),
            ("# only a comment".to_owned(), "has no token"),
            (format!("operator ada {short}"), "line 1"),
            (format!("\nadmin ada {token}"), "line 2 of the token file must begin"),
            (format!("operator {token}"), "must have a role"),
            (format!("operator a {token}\nviewer b {token}"), "line 2"),
        ] {
            let error = Tokens::parse(&file).unwrap_err().to_string();
            assert!(error.contains(why) && !error.contains(&short), "{error}");
        }
    }
}
