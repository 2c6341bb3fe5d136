//! Tokens in forms: another site cannot make a browser send one.
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use std::fmt::Write as _;

/// Makes and checks the tokens of forms. A token is good for one session, or for one principal without a
/// session, until the process ends.
pub(crate) struct Csrf([u8; 32]);

impl Csrf {
    /// # Errors
    /// The machine gives no random numbers.
    pub(crate) fn new() -> std::io::Result<Self> {
        let mut key = [0; 32];
        getrandom::fill(&mut key).map_err(|error| std::io::Error::other(error.to_string()))?;
        Ok(Self(key))
    }

    /// `holder`: the id of a session, or the name of a principal.
    pub(crate) fn token(&self, holder: &str) -> String {
        let mut text = String::with_capacity(64);
        for byte in self.mac(holder).finalize().into_bytes() {
            let _ = write!(text, "{byte:02x}");
        }
        text
    }

    pub(crate) fn is_good(&self, holder: &str, token: &str) -> bool {
        let digit = |at: usize| token.as_bytes().get(at).and_then(|byte| char::from(*byte).to_digit(16));
        let bytes: Option<Vec<u8>> = (0..token.len())
            .step_by(2)
            .map(|at| u8::try_from(digit(at)? << 4 | digit(at + 1)?).ok())
            .collect();
        bytes.is_some_and(|bytes| self.mac(holder).verify_slice(&bytes).is_ok())
    }

    fn mac(&self, holder: &str) -> Hmac<Sha256> {
        let mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("a key of any length");
        mac.chain_update(b"csrf/1").chain_update(holder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_good_for_its_holder_alone() {
        let csrf = Csrf::new().unwrap();
        let token = csrf.token("ada");
        assert!(csrf.is_good("ada", &token) && csrf.is_good("ada", &token.to_uppercase()));
        for bad in ["", "0", &token[2..], &"0".repeat(64), "é"] {
            assert!(!csrf.is_good("ada", bad), "{bad}");
        }
        assert!(!csrf.is_good("eve", &token) && !Csrf::new().unwrap().is_good("ada", &token));
    }
}
