//! A proxy that names the principal.
use super::{
    error::AccessError,
    principal::{Principal, Role},
};
use axum::http::{HeaderMap, HeaderName};
use std::{collections::HashSet, net::IpAddr};

/// The longest name of a principal, in bytes.
const NAME_BYTES_MAX: usize = 200;

/// A proxy that logs people in, and names them in a header.
#[derive(Debug, Clone)]
pub(crate) struct Proxy {
    header: HeaderName,
    addresses: HashSet<IpAddr>,
    operators: HashSet<String>,
}

impl Proxy {
    pub(super) fn new(
        header: &str,
        addresses: HashSet<IpAddr>,
        operators: HashSet<String>,
    ) -> Result<Self, AccessError> {
        if addresses.is_empty() {
            return Err(AccessError("name the addresses of the proxy: others could set the header".into()));
        }
        let header = header.parse();
        let header = header.map_err(|_| AccessError("the name of the proxy's header is no name".into()))?;
        Ok(Self { header, addresses, operators })
    }

    /// Returns whom the proxy names. None: the request is not the proxy's, or names nobody or several.
    pub(crate) fn principal(&self, peer: IpAddr, headers: &HeaderMap) -> Option<Principal> {
        if !self.addresses.contains(&peer.to_canonical()) {
            return None;
        }
        let mut values = headers.get_all(&self.header).iter();
        let (Some(value), None) = (values.next(), values.next()) else { return None };
        let name = value.to_str().ok()?.trim();
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            return None;
        }
        let role = if self.operators.contains(name) { Role::Operator } else { Role::Viewer };
        Some(Principal { name: name.to_owned(), role })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    #[test]
    fn only_the_proxy_names_a_principal() {
        let (ours, other) = (IpAddr::from([10, 0, 0, 7]), IpAddr::from([10, 0, 0, 8]));
        let operators = HashSet::from(["ada".to_owned()]);
        let proxy = Proxy::new("x-user", HashSet::from([ours]), operators).unwrap();
        let headers = |names: &[&str]| {
            let mut headers = HeaderMap::new();
            for name in names {
                headers.append("x-user", HeaderValue::from_str(name).unwrap());
            }
            headers
        };
        assert_eq!(proxy.principal(ours, &headers(&["ada"])).unwrap().role, Role::Operator);
        assert_eq!(proxy.principal(ours, &headers(&["eve"])).unwrap().role, Role::Viewer);
        assert_eq!(proxy.principal(other, &headers(&["ada"])), None);
        for names in [&[][..], &["eve", "ada"], &[" "], &["\u{e9}"], &[&"a".repeat(201)]] {
            assert_eq!(proxy.principal(ours, &headers(names)), None, "{names:?}");
        }
        assert!(Proxy::new("x-user", HashSet::new(), HashSet::new()).is_err());
        assert!(Proxy::new("x user", HashSet::from([ours]), HashSet::new()).is_err());
    }
}
