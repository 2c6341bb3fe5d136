//! Ranges of addresses, and which of them a stranger's URL must not reach.
use std::{error::Error, fmt, net::IpAddr, str::FromStr};

/// A range of IP addresses, such as `10.0.0.0/8` or `fd00::/8`.
///
/// ```
/// use twinbox_effects::webhook::Network;
///
/// let office: Network = "10.20.0.0/16".parse()?;
/// assert!(office.contains("10.20.30.40".parse()?) && !office.contains("10.21.0.1".parse()?));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Network {
    first: IpAddr,
    prefix: u8,
}

/// The error for a text that is no range of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InvalidNetwork;

impl Network {
    const fn v4(octets: [u8; 4], prefix: u8) -> Self {
        let [a, b, c, d] = octets;
        Self { first: IpAddr::V4(std::net::Ipv4Addr::new(a, b, c, d)), prefix }
    }

    const fn v6(segments: [u16; 3], prefix: u8) -> Self {
        let [a, b, c] = segments;
        Self { first: IpAddr::V6(std::net::Ipv6Addr::new(a, b, c, 0, 0, 0, 0, 0)), prefix }
    }

    /// Returns whether an address is in the range. An IPv4 address inside an IPv6 address is not looked at.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.first, address) {
            (IpAddr::V4(first), IpAddr::V4(address)) => {
                let differ = u32::from(first) ^ u32::from(address);
                differ.leading_zeros() >= u32::from(self.prefix)
            }
            (IpAddr::V6(first), IpAddr::V6(address)) => {
                let differ = u128::from(first) ^ u128::from(address);
                differ.leading_zeros() >= u32::from(self.prefix)
            }
            _ => false,
        }
    }
}

/// Reads an address with the length of its prefix, or a single address.
impl FromStr for Network {
    type Err = InvalidNetwork;

    fn from_str(text: &str) -> Result<Self, InvalidNetwork> {
        let (first, prefix) = match text.split_once('/') {
            Some((first, prefix)) => (first, Some(prefix)),
            None => (text, None),
        };
        let first: IpAddr = first.parse().map_err(|_| InvalidNetwork)?;
        let longest = if first.is_ipv4() { 32 } else { 128 };
        let prefix = prefix.map_or(Ok(longest), str::parse).map_err(|_| InvalidNetwork)?;
        if prefix > longest { Err(InvalidNetwork) } else { Ok(Self { first, prefix }) }
    }
}

impl fmt::Display for InvalidNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a network is an address and a length, such as 10.0.0.0/8")
    }
}

impl Error for InvalidNetwork {}

/// The ranges that are not on the public internet, after the registries of special-purpose addresses of IANA
/// (RFC 6890). An IPv6 address that carries an IPv4 address is refused whatever it carries: no public service
/// needs one. The last three ranges are the rest of IPv6 that is not handed out.
const SPECIAL: [(Network, &str); 35] = [
    (Network::v4([0, 0, 0, 0], 8), "this network"),
    (Network::v4([10, 0, 0, 0], 8), "private"),
    (Network::v4([100, 64, 0, 0], 10), "carrier-grade NAT"),
    (Network::v4([127, 0, 0, 0], 8), "loopback"),
    // Not special by the registry: the host of Azure, which gives out credentials.
    (Network::v4([168, 63, 129, 16], 32), "the host of a cloud"),
    (Network::v4([169, 254, 0, 0], 16), "link-local"),
    (Network::v4([172, 16, 0, 0], 12), "private"),
    (Network::v4([192, 0, 0, 0], 24), "protocol assignments"),
    (Network::v4([192, 0, 2, 0], 24), "documentation"),
    (Network::v4([192, 88, 99, 0], 24), "6to4 relays"),
    (Network::v4([192, 168, 0, 0], 16), "private"),
    (Network::v4([198, 18, 0, 0], 15), "benchmarking"),
    (Network::v4([198, 51, 100, 0], 24), "documentation"),
    (Network::v4([203, 0, 113, 0], 24), "documentation"),
    (Network::v4([224, 0, 0, 0], 4), "multicast"),
    (Network::v4([255, 255, 255, 255], 32), "broadcast"),
    (Network::v4([240, 0, 0, 0], 4), "reserved"),
    (Network { first: IpAddr::V6(std::net::Ipv6Addr::UNSPECIFIED), prefix: 128 }, "unspecified"),
    (Network { first: IpAddr::V6(std::net::Ipv6Addr::LOCALHOST), prefix: 128 }, "loopback"),
    (Network { first: IpAddr::V6(std::net::Ipv6Addr::UNSPECIFIED), prefix: 96 }, "IPv4-compatible"),
    (
        Network { first: IpAddr::V6(std::net::Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0, 0)), prefix: 96 },
        "IPv4-mapped",
    ),
    (Network::v6([0x64, 0xff9b, 0], 96), "NAT64"),
    (Network::v6([0x64, 0xff9b, 1], 48), "NAT64"),
    (Network::v6([0x100, 0, 0], 64), "discard"),
    (Network::v6([0x2001, 0, 0], 32), "Teredo"),
    (Network::v6([0x2001, 0, 0], 23), "protocol assignments"),
    (Network::v6([0x2001, 0xdb8, 0], 32), "documentation"),
    (Network::v6([0x2002, 0, 0], 16), "6to4"),
    (Network::v6([0x3fff, 0, 0], 20), "documentation"),
    (Network::v6([0xfc00, 0, 0], 7), "unique local"),
    (Network::v6([0xfe80, 0, 0], 10), "link-local"),
    (Network::v6([0xff00, 0, 0], 8), "multicast"),
    (Network::v6([0, 0, 0], 3), "reserved"),
    (Network::v6([0x4000, 0, 0], 2), "reserved"),
    (Network::v6([0x8000, 0, 0], 1), "reserved"),
];

/// Returns what an address is, if it is not on the public internet.
pub(super) fn special(address: IpAddr) -> Option<&'static str> {
    SPECIAL.iter().find(|(network, _)| network.contains(address)).map(|(_, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_addresses_of_the_public_internet_have_no_name() {
        for (address, name) in [
            ("0.0.0.0", "this network"),
            ("0.1.2.3", "this network"),
            ("10.255.255.255", "private"),
            ("100.64.0.1", "carrier-grade NAT"),
            ("100.100.100.200", "carrier-grade NAT"),
            ("100.127.255.255", "carrier-grade NAT"),
            ("127.0.0.1", "loopback"),
            ("127.255.255.254", "loopback"),
            ("168.63.129.16", "the host of a cloud"),
            ("169.254.169.254", "link-local"),
            ("172.16.0.1", "private"),
            ("172.31.255.255", "private"),
            ("192.0.0.192", "protocol assignments"),
            ("192.0.2.1", "documentation"),
            ("192.88.99.1", "6to4 relays"),
            ("192.168.1.1", "private"),
            ("198.19.0.1", "benchmarking"),
            ("198.51.100.7", "documentation"),
            ("203.0.113.7", "documentation"),
            ("224.0.0.1", "multicast"),
            ("239.255.255.250", "multicast"),
            ("240.0.0.1", "reserved"),
            ("255.255.255.255", "broadcast"),
            ("::", "unspecified"),
            ("::1", "loopback"),
            ("::7f00:1", "IPv4-compatible"),
            ("::ffff:127.0.0.1", "IPv4-mapped"),
            ("::ffff:8.8.8.8", "IPv4-mapped"),
            ("::ffff:0:127.0.0.1", "reserved"),
            ("64:ff9b::7f00:1", "NAT64"),
            ("64:ff9b:1::1", "NAT64"),
            ("100::1", "discard"),
            ("2001::1", "Teredo"),
            ("2001:2::1", "protocol assignments"),
            ("2001:10::1", "protocol assignments"),
            ("2001:20::1", "protocol assignments"),
            ("2001:db8::1", "documentation"),
            ("2002:7f00:1::1", "6to4"),
            ("3fff::1", "documentation"),
            ("fd00:ec2::254", "unique local"),
            ("fe80::1", "link-local"),
            ("fec0::1", "reserved"),
            ("ff02::1", "multicast"),
            ("4000::1", "reserved"),
            ("5f00::1", "reserved"),
            ("8000::1", "reserved"),
        ] {
            assert_eq!(special(address.parse().unwrap()), Some(name), "{address}");
        }
        for public in [
            "1.1.1.1",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.0",
            "169.253.255.255",
            "172.15.255.255",
            "172.32.0.0",
            "192.0.1.1",
            "198.17.255.255",
            "198.20.0.0",
            "223.255.255.255",
            "2001:200::1",
            "2001:4860:4860::8888",
            "2606:4700::1111",
            "2a00:1450::1",
        ] {
            assert_eq!(special(public.parse().unwrap()), None, "{public}");
        }
    }

    proptest! {
        /// Every range that the standard library calls not public has a name here.
        #[test]
        fn nothing_that_std_knows_is_missing(bits: u32, more: u128, low in any::<bool>()) {
            let v4 = std::net::Ipv4Addr::from(bits);
            if v4.is_private() || v4.is_loopback() || v4.is_link_local() || v4.is_broadcast()
                || v4.is_documentation() || v4.is_multicast() || v4.is_unspecified()
            {
                prop_assert!(special(v4.into()).is_some(), "{v4}");
            }
            let v6 = std::net::Ipv6Addr::from(if low { u128::from(bits) } else { more });
            if v6.is_loopback() || v6.is_unspecified() || v6.is_multicast() || v6.is_unique_local()
                || v6.is_unicast_link_local() || v6.to_ipv4().is_some()
            {
                prop_assert!(special(v6.into()).is_some(), "{v6}");
            }
            for inside in [v4.to_ipv6_mapped(), v4.to_ipv6_compatible()] {
                prop_assert!(special(inside.into()).is_some(), "{inside}");
            }
        }
    }

    #[test]
    fn a_network_is_an_address_and_a_length() {
        for refused in ["", "10.0.0.0/33", "::/129", "10.0.0/8", "10.0.0.0/", "10.0.0.0/-1", "localhost"] {
            assert_eq!(refused.parse::<Network>(), Err(InvalidNetwork), "{refused}");
        }
        let all: Network = "0.0.0.0/0".parse().unwrap();
        assert!(all.contains("1.2.3.4".parse().unwrap()) && !all.contains("::1".parse().unwrap()));
        let one: Network = "10.0.0.1".parse().unwrap();
        assert!(one.contains("10.0.0.1".parse().unwrap()) && !one.contains("10.0.0.2".parse().unwrap()));
    }
}
