//! The addresses of a node's BMC, as its record names them.

use std::net::IpAddr;

use serde_json::Value;
use trivet_model::Node;

/// End of the keys of `driver_info` that name a BMC, as in Ironic.
const ADDRESS_KEY_END: &str = "_address";

/// The addresses of a node's BMC in its record. A host name is not looked up.
pub fn bmc_addresses(node: &Node) -> Vec<IpAddr> {
    let keys = node.driver_info.iter();
    let values = keys.filter(|(key, _)| key.ends_with(ADDRESS_KEY_END));
    values.filter_map(|(_, value)| address(value)).collect()
}

/// How the keys of `driver_info` begin that name the node's BMC, and its address as it is there.
pub fn bmc_keys(node: &Node) -> Option<(&'static str, &str)> {
    ["ipmi", "redfish"].into_iter().find_map(|keys| {
        let address = node.driver_info.get(&format!("{keys}{ADDRESS_KEY_END}"))?;
        Some((keys, address.as_str()?))
    })
}

/// An address, or that of the host of a URL, whose scheme may be missing.
fn address(value: &Value) -> Option<IpAddr> {
    let text = value.as_str()?.trim();
    let plain: Option<IpAddr> = text.parse().ok();
    let of_url = || {
        let rest = text.split_once("://").map_or(text, |(_, rest)| rest);
        let authority = rest.split(['/', '?', '#']).next()?;
        let host = match authority.strip_prefix('[') {
            Some(rest) => rest.split_once(']')?.0,
            None => authority.split(':').next()?,
        };
        host.parse().ok()
    };
    plain.or_else(of_url).map(|address| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use trivet_model::{NodeId, SeededRandom, UnixMs};

    use super::*;

    #[test]
    fn a_bmc_is_named_by_an_address_or_by_a_url_with_one() {
        for (info, want) in [
            (
                json!({"ipmi_address": " 192.0.2.7 ", "ipmi_port": 623}),
                Some("192.0.2.7"),
            ),
            (
                json!({"redfish_address": "https://192.0.2.7:8000/redfish"}),
                Some("192.0.2.7"),
            ),
            (
                json!({"redfish_address": "192.0.2.7:8000"}),
                Some("192.0.2.7"),
            ),
            (
                json!({"redfish_address": "http://[2001:db8::7]"}),
                Some("2001:db8::7"),
            ),
            (
                json!({"ipmi_address": "::ffff:192.0.2.7"}),
                Some("192.0.2.7"),
            ),
            (json!({"redfish_address": "https://[2001:db8::7"}), None),
            (json!({"ipmi_address": "bmc-7.example"}), None),
            (
                json!({"ipmi_address": 7, "ipmi_username": "192.0.2.7"}),
                None,
            ),
        ] {
            let id = NodeId::random(&mut SeededRandom::new(1));
            let mut node = Node::new(id, "ipmi", UnixMs(1));
            node.driver_info = info.as_object().cloned().unwrap();
            let want: Vec<IpAddr> = want.iter().map(|text| text.parse().unwrap()).collect();
            assert_eq!(bmc_addresses(&node), want, "{info}");
        }
    }
}
