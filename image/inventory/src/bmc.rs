//! The addresses of the BMC, which it gives to its own machine (IPMI 2.0, section 23).

use std::net::{Ipv4Addr, Ipv6Addr};

use trivet_model::MacAddr;

use crate::SystemCalls;

/// Network functions and commands.
const APPLICATION: u8 = 0x06;
const TRANSPORT: u8 = 0x0c;
const GET_CHANNEL_INFO: u8 = 0x42;
const GET_LAN_PARAMETERS: u8 = 0x02;

/// Channels that can be LAN channels; the stock agent tries the same.
const CHANNELS: std::ops::RangeInclusive<u8> = 1..=11;

/// Medium types of a LAN channel (table 6-3): 802.3 and others.
const LAN_MEDIA: [u8; 2] = [4, 6];

/// LAN parameters (table 23-4).
mod parameter {
    pub(super) const IP_ADDRESS: u8 = 3;
    pub(super) const MAC_ADDRESS: u8 = 5;
    pub(super) const IPV6_ENABLES: u8 = 51;
    pub(super) const IPV6_STATUS: u8 = 55;
    pub(super) const IPV6_STATIC: u8 = 56;
    pub(super) const IPV6_DYNAMIC: u8 = 59;
}

/// Most addresses of one kind that are read. Ours.
const ADDRESSES_MAX: u8 = 16;

/// What the stock agent reports if a BMC has no address.
const NO_IPV4: &str = "0.0.0.0";
const NO_IPV6: &str = "::/0";

/// The addresses of the BMC as an inventory has them.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct BmcLanAddresses {
    /// `None` without a BMC, `0.0.0.0` if it has no address.
    pub ipv4: Option<String>,
    /// `None` without a BMC, `::/0` if it has no address.
    pub ipv6: Option<String>,
    /// `None` if it has no address or no BMC.
    pub mac: Option<String>,
}

/// Asks the BMC for its addresses: each is that of the first LAN channel that has one.
pub fn read_bmc_lan(calls: &mut dyn SystemCalls) -> BmcLanAddresses {
    if !calls.has_bmc() {
        return BmcLanAddresses::default();
    }
    let mut found = BmcLanAddresses::default();
    for channel in CHANNELS {
        if !is_lan(calls, channel) {
            continue;
        }
        let ipv4 = ipv4_address(calls, channel).filter(|address| !address.is_unspecified());
        let ipv6 = ipv6_address(calls, channel);
        // A channel without addresses is not used, so its hardware address is not the BMC's.
        if (ipv4.is_some() || ipv6.is_some()) && found.mac.is_none() {
            found.mac = mac_address(calls, channel);
        }
        found.ipv4 = found
            .ipv4
            .or_else(|| ipv4.map(|address| address.to_string()));
        found.ipv6 = found
            .ipv6
            .or_else(|| ipv6.map(|address| address.to_string()));
    }
    found.ipv4.get_or_insert_with(|| NO_IPV4.to_owned());
    found.ipv6.get_or_insert_with(|| NO_IPV6.to_owned());
    found
}

fn is_lan(calls: &mut dyn SystemCalls, channel: u8) -> bool {
    let reply = calls.bmc_request(APPLICATION, GET_CHANNEL_INFO, &[channel]);
    let Ok(reply) = reply else { return false };
    // Completion code, channel, medium.
    matches!(reply.as_slice(), [0, _, medium, ..] if LAN_MEDIA.contains(&(medium & 0x7f)))
}

/// The data of a LAN parameter, after completion code and revision.
fn lan_parameter(
    calls: &mut dyn SystemCalls,
    channel: u8,
    parameter: u8,
    set: u8,
) -> Option<Vec<u8>> {
    let request = [channel, parameter, set, 0];
    let reply = calls
        .bmc_request(TRANSPORT, GET_LAN_PARAMETERS, &request)
        .ok()?;
    match reply.as_slice() {
        [0, _revision, data @ ..] => Some(data.to_vec()),
        _ => None,
    }
}

fn ipv4_address(calls: &mut dyn SystemCalls, channel: u8) -> Option<Ipv4Addr> {
    let data = lan_parameter(calls, channel, parameter::IP_ADDRESS, 0)?;
    Some(Ipv4Addr::from(*data.first_chunk::<4>()?))
}

fn mac_address(calls: &mut dyn SystemCalls, channel: u8) -> Option<String> {
    let data = lan_parameter(calls, channel, parameter::MAC_ADDRESS, 0)?;
    let mac = MacAddr(*data.first_chunk()?);
    (mac.0 != [0; 6]).then(|| mac.to_string())
}

/// An active dynamic address, or an active static one.
fn ipv6_address(calls: &mut dyn SystemCalls, channel: u8) -> Option<Ipv6Addr> {
    let enables = lan_parameter(calls, channel, parameter::IPV6_ENABLES, 0)?;
    // One is IPv6 only, two is both.
    if !matches!(enables.first(), Some(1 | 2)) {
        return None;
    }
    let counts = lan_parameter(calls, channel, parameter::IPV6_STATUS, 0).unwrap_or_default();
    let [statics, dynamics] = [0, 1].map(|at| counts.get(at).copied().unwrap_or(1));
    let mut addresses = |parameter, count: u8| {
        (0..count.min(ADDRESSES_MAX)).find_map(|set| {
            let data = lan_parameter(calls, channel, parameter, set)?;
            active_ipv6(parameter, &data)
        })
    };
    addresses(parameter::IPV6_DYNAMIC, dynamics)
        .or_else(|| addresses(parameter::IPV6_STATIC, statics))
}

/// The address of a set: selector, source, address, prefix length, status.
fn active_ipv6(kind: u8, data: &[u8]) -> Option<Ipv6Addr> {
    let source = *data.get(1)?;
    let address = Ipv6Addr::from(*data.get(2..)?.first_chunk::<16>()?);
    let is_active = *data.get(19)? == 0;
    let is_enabled = if kind == parameter::IPV6_STATIC {
        source & 0x80 != 0
    } else {
        matches!(source & 0x0f, 1 | 2)
    };
    (is_active && is_enabled && !address.is_unspecified()).then_some(address)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::FakeCalls;

    fn lan(calls: &mut FakeCalls, channel: u8) {
        let request = vec![APPLICATION, GET_CHANNEL_INFO, channel];
        calls
            .bmc
            .insert(request, vec![0, channel, 4, 1, 0x80, 0, 0]);
    }

    fn parameter(calls: &mut FakeCalls, channel: u8, number: u8, set: u8, data: &[u8]) {
        let request = vec![TRANSPORT, GET_LAN_PARAMETERS, channel, number, set, 0];
        calls.bmc.insert(request, [&[0, 0x11], data].concat());
    }

    fn ipv6(source: u8, address: &str, status: u8) -> Vec<u8> {
        let address: Ipv6Addr = address.parse().unwrap();
        [&[0, source], address.octets().as_slice(), &[64, status]].concat()
    }

    #[test]
    fn the_first_channel_with_an_address_counts() {
        let mut calls = FakeCalls::default();
        lan(&mut calls, 1);
        lan(&mut calls, 8);
        parameter(&mut calls, 1, 3, 0, &[0, 0, 0, 0]);
        parameter(&mut calls, 1, 5, 0, &[2, 0, 0, 0, 0, 1]);
        parameter(&mut calls, 8, 3, 0, &[198, 51, 100, 5]);
        parameter(&mut calls, 8, 5, 0, &[0x52, 0x54, 0, 0, 0, 0x99]);
        let found = read_bmc_lan(&mut calls);
        assert_eq!(found.ipv4.as_deref(), Some("198.51.100.5"));
        assert_eq!(found.mac.as_deref(), Some("52:54:00:00:00:99"));
        assert_eq!(found.ipv6.as_deref(), Some("::/0"));
    }

    #[test]
    fn active_ipv6_addresses_count_dynamic_ones_first() {
        let mut calls = FakeCalls::default();
        lan(&mut calls, 1);
        parameter(&mut calls, 1, 51, 0, &[2]);
        parameter(&mut calls, 1, 55, 0, &[1, 2, 0]);
        parameter(&mut calls, 1, 56, 0, &ipv6(0x80, "2001:db8::5", 0));
        parameter(&mut calls, 1, 59, 0, &ipv6(2, "2001:db8::6", 1));
        parameter(&mut calls, 1, 59, 1, &ipv6(1, "2001:db8::7", 0));
        parameter(&mut calls, 1, 5, 0, &[2, 0, 0, 0, 0, 1]);
        let found = read_bmc_lan(&mut calls);
        assert_eq!(found.ipv6.as_deref(), Some("2001:db8::7"));
        assert_eq!(found.ipv4.as_deref(), Some("0.0.0.0"));
        assert_eq!(found.mac.as_deref(), Some("02:00:00:00:00:01"));
        parameter(&mut calls, 1, 59, 1, &ipv6(0, "2001:db8::7", 0));
        let found = read_bmc_lan(&mut calls);
        assert_eq!(found.ipv6.as_deref(), Some("2001:db8::5"));
        parameter(&mut calls, 1, 51, 0, &[0]);
        assert_eq!(read_bmc_lan(&mut calls).ipv6.as_deref(), Some("::/0"));
    }

    #[test]
    fn without_a_bmc_nothing_is_asked() {
        let mut calls = FakeCalls::default();
        assert_eq!(read_bmc_lan(&mut calls), BmcLanAddresses::default());
        assert_eq!(calls.requests, 0);
    }

    #[test]
    fn channels_that_are_no_lan_and_short_replies_are_skipped() {
        let mut calls = FakeCalls::default();
        calls
            .bmc
            .insert(vec![APPLICATION, GET_CHANNEL_INFO, 2], vec![0, 2, 5]);
        parameter(&mut calls, 2, 3, 0, &[192, 0, 2, 1]);
        lan(&mut calls, 3);
        parameter(&mut calls, 3, 3, 0, &[192, 0, 2]);
        parameter(&mut calls, 3, 51, 0, &[1]);
        parameter(&mut calls, 3, 59, 0, &[0, 2, 1]);
        let found = read_bmc_lan(&mut calls);
        assert_eq!(found.ipv4.as_deref(), Some("0.0.0.0"));
        assert_eq!((found.ipv6.as_deref(), found.mac), (Some("::/0"), None));
    }
}
