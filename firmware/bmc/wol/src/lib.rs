//! Wake-on-LAN: a magic packet switches a machine on; nothing else is possible with it.
//!
//! Pure: [`wake_on_lan`] returns what to do for a power order. The power state cannot be read, so
//! the record's own is the answer. Switching off needs SSH to a host that can do it (the keys
//! `ssh_*` of `driver_info`); without that, the order is refused with the reason.

mod protocol;

pub use protocol::WakeOnLanProtocol;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use serde_json::Value;
use trivet_model::node::JsonObject;
use trivet_model::{MacAddr, Node, PowerAnswer, PowerError, PowerOrder, PowerState};

/// The UDP port "discard", which magic packets are usually sent to.
const DISCARD_PORT: u16 = 9;

/// How often the address is repeated in a magic packet, after six bytes of 0xff (AMD's "Magic
/// Packet Technology", 1995).
const REPETITIONS: usize = 16;

/// How often each packet is sent, because UDP may lose one. Ours.
const COPIES: usize = 3;

const NO_OFF: &str = "Wake-on-LAN can only switch a machine on; shut it down by hand, or set \
     ssh_address and the other ssh_ keys in driver_info so that a host can switch it off";

const NO_RESET: &str = "Wake-on-LAN cannot restart a machine; switch it off, then on, or set \
     ssh_address and the other ssh_ keys in driver_info so that a host can restart it";

const NO_BMC: &str = "a node with power control by Wake-on-LAN has no BMC";

/// What to do for a power order.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum WakeOnLanAction {
    /// Send these datagrams; the order has then this answer, as no reply exists.
    Send {
        /// The destination, usually a broadcast address.
        to: SocketAddr,
        /// The datagrams.
        packets: Vec<Vec<u8>>,
        /// The answer after they were sent.
        answer: PowerAnswer,
    },
    /// The host of the `ssh_` keys carries the order out.
    OverSsh,
    /// Nothing is sent.
    Answer(Result<PowerAnswer, PowerError>),
}

/// Decides what a power order does on a node with these port addresses.
pub fn wake_on_lan(node: &Node, order: PowerOrder, macs: &[MacAddr]) -> WakeOnLanAction {
    let is_off = node.power_state != Some(PowerState::On);
    let answer = |state| WakeOnLanAction::Answer(Ok(PowerAnswer::Power(state)));
    match order {
        PowerOrder::Status => answer(node.power_state.unwrap_or(PowerState::Off)),
        PowerOrder::On => wake(&node.driver_info, macs),
        PowerOrder::Off | PowerOrder::SoftOff if is_off => answer(PowerState::Off),
        PowerOrder::Cycle | PowerOrder::Reset if is_off => wake(&node.driver_info, macs),
        PowerOrder::Off | PowerOrder::SoftOff => over_ssh(node, NO_OFF),
        PowerOrder::Cycle | PowerOrder::Reset => over_ssh(node, NO_RESET),
        PowerOrder::ReadBoot | PowerOrder::SetBoot { .. } => {
            WakeOnLanAction::Answer(Ok(PowerAnswer::Accepted))
        }
        PowerOrder::Nmi | PowerOrder::BmcReset { .. } | PowerOrder::Raw { .. } => refused(NO_BMC),
    }
}

fn refused(message: &'static str) -> WakeOnLanAction {
    WakeOnLanAction::Answer(Err(PowerError::Unsupported { message }))
}

fn over_ssh(node: &Node, otherwise: &'static str) -> WakeOnLanAction {
    let host = node.driver_info.get("ssh_address").and_then(Value::as_str);
    if host.is_some_and(|host| !host.trim().is_empty()) {
        WakeOnLanAction::OverSsh
    } else {
        refused(otherwise)
    }
}

fn wake(info: &JsonObject, macs: &[MacAddr]) -> WakeOnLanAction {
    if macs.is_empty() {
        return refused(
            "the node has no port, so there is no address for a magic packet; create a port",
        );
    }
    match destination(info) {
        Err(error) => WakeOnLanAction::Answer(Err(error)),
        Ok(to) => WakeOnLanAction::Send {
            to,
            packets: (0..COPIES)
                .flat_map(|_| macs.iter().map(|mac| magic_packet(*mac)))
                .collect(),
            answer: PowerAnswer::Power(PowerState::On),
        },
    }
}

/// The destination of magic packets, from `driver_info`.
fn destination(info: &JsonObject) -> Result<SocketAddr, PowerError> {
    let missing = |missing| PowerError::NotConfigured { missing };
    let address = match info.get("wol_address") {
        None | Some(Value::Null) => Some(Ipv4Addr::BROADCAST),
        Some(value) => value.as_str().and_then(|text| text.trim().parse().ok()),
    };
    let port = match info.get("wol_port") {
        None | Some(Value::Null) => Some(DISCARD_PORT),
        Some(Value::String(text)) => text.trim().parse().ok(),
        Some(other) => other.as_u64().and_then(|port| u16::try_from(port).ok()),
    };
    let address = address.ok_or(missing("a wol_address that is an IPv4 address"))?;
    let port = port.filter(|port| *port > 0);
    let port = port.ok_or(missing("a valid wol_port"))?;
    Ok(SocketAddr::new(IpAddr::V4(address), port))
}

/// The magic packet for one address.
fn magic_packet(mac: MacAddr) -> Vec<u8> {
    let mut packet = vec![0xff; 6];
    for _ in 0..REPETITIONS {
        packet.extend_from_slice(&mac.0);
    }
    packet
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use trivet_model::{NodeId, SeededRandom, UnixMs};

    use super::*;

    fn mac() -> MacAddr {
        "52:54:00:aa:bb:01".parse().unwrap()
    }

    fn node(info: &Value, state: Option<PowerState>) -> Node {
        let id = NodeId::random(&mut SeededRandom::new(1));
        let mut node = Node::new(id, "manual-management", UnixMs(1));
        node.driver_info = info.as_object().unwrap().clone();
        node.power_state = state;
        node
    }

    #[test]
    fn a_magic_packet_has_six_bytes_of_ones_and_the_address_sixteen_times() {
        let WakeOnLanAction::Send { to, packets, .. } =
            wake_on_lan(&node(&json!({}), None), PowerOrder::On, &[mac()])
        else {
            panic!("nothing is sent");
        };
        assert_eq!(to, "255.255.255.255:9".parse().unwrap());
        assert_eq!(packets.len(), COPIES);
        assert_eq!(packets[0].len(), 102);
        assert_eq!(packets[0][..6], [0xff; 6]);
        for part in packets[0][6..].chunks(6) {
            assert_eq!(part, [0x52, 0x54, 0, 0xaa, 0xbb, 1]);
        }
    }

    #[test]
    fn destination_is_set_by_driver_info_and_checked() {
        let info = json!({"wol_address": "192.0.2.255", "wol_port": "7"});
        let action = wake_on_lan(&node(&info, None), PowerOrder::On, &[mac()]);
        let to = match action {
            WakeOnLanAction::Send { to, .. } => to.to_string(),
            other => format!("{other:?}"),
        };
        assert_eq!(to, "192.0.2.255:7");
        for info in [
            json!({"wol_address": "lan"}),
            json!({"wol_address": 7}),
            json!({"wol_port": 0}),
            json!({"wol_port": 70_000}),
            json!({"wol_port": "x"}),
        ] {
            let action = wake_on_lan(&node(&info, None), PowerOrder::On, &[mac()]);
            let is_error = matches!(
                action,
                WakeOnLanAction::Answer(Err(PowerError::NotConfigured { .. }))
            );
            assert!(is_error, "{info}");
        }
    }

    #[test]
    fn what_cannot_be_done_is_refused_with_the_reason() {
        let on = node(&json!({}), Some(PowerState::On));
        for (order, message) in [
            (PowerOrder::Off, "shut it down by hand"),
            (PowerOrder::Cycle, "cannot restart"),
            (PowerOrder::Nmi, "no BMC"),
        ] {
            match wake_on_lan(&on, order, &[mac()]) {
                WakeOnLanAction::Answer(Err(error)) => {
                    assert!(error.to_string().contains(message), "{error}");
                }
                other => panic!("{order:?}: {other:?}"),
            }
        }
        let WakeOnLanAction::Answer(Err(error)) = wake_on_lan(&on, PowerOrder::On, &[]) else {
            panic!("no port, and no error");
        };
        assert!(error.to_string().contains("create a port"), "{error}");
    }

    #[test]
    fn a_host_switches_off_and_a_machine_that_is_off_stays_off() {
        let host = json!({"ssh_address": "192.0.2.9"});
        let on = node(&host, Some(PowerState::On));
        let off = wake_on_lan(&on, PowerOrder::Off, &[mac()]);
        assert_eq!(off, WakeOnLanAction::OverSsh);
        let answer = |state| WakeOnLanAction::Answer(Ok(PowerAnswer::Power(state)));
        for state in [None, Some(PowerState::Off)] {
            let node = node(&json!({}), state);
            let off = wake_on_lan(&node, PowerOrder::Off, &[mac()]);
            assert_eq!(off, answer(PowerState::Off));
        }
        let status = wake_on_lan(&on, PowerOrder::Status, &[]);
        assert_eq!(status, answer(PowerState::On));
    }
}
