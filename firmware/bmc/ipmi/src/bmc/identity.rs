//! Data of the simulated BMC about itself: its channel, its network configuration, its users. User
//! one has no name, as on most BMCs; the configured users follow.

use crate::command::{completion, lan};
use crate::operation::IpmiLanConfig;

use super::IpmiSimulatorUser;
use super::commands::{CHANNEL_LAN, CHANNEL_THIS};

/// Number of the first configured user.
const USER_FIRST: usize = 2;

fn is_ours(channel: u8) -> bool {
    matches!(channel & 0x0f, CHANNEL_THIS | CHANNEL_LAN)
}

/// Get Channel Info (section 22.24): Ethernet with IPMB messages, with sessions.
pub(super) fn channel_info(data: &[u8]) -> Vec<u8> {
    match data.first() {
        None => vec![completion::BAD_LENGTH],
        Some(&channel) if !is_ours(channel) => vec![completion::BAD_FIELD],
        Some(_) => vec![
            completion::OK,
            CHANNEL_LAN,
            0x04,
            0x01,
            0x80,
            0xf2,
            0x1b,
            0,
            0,
            0,
        ],
    }
}

/// Get LAN Configuration Parameters.
pub(super) fn lan_parameter(data: &[u8], known: &IpmiLanConfig) -> Vec<u8> {
    let &[channel, parameter, _set, _block, ..] = data else {
        return vec![completion::BAD_LENGTH];
    };
    if !is_ours(channel) {
        return vec![completion::BAD_FIELD];
    }
    let value: Option<Vec<u8>> = match parameter {
        lan::SET_IN_PROGRESS => Some(vec![0]),
        lan::ADDRESS => known.address.map(|it| it.octets().to_vec()),
        lan::SOURCE => known.source.map(|it| vec![it.number()]),
        lan::MAC => known.mac.map(|it| it.to_vec()),
        lan::MASK => known.mask.map(|it| it.octets().to_vec()),
        lan::GATEWAY => known.gateway.map(|it| it.octets().to_vec()),
        _ => None,
    };
    match value {
        Some(value) => [&[completion::OK, 0x11][..], &value].concat(),
        None => vec![completion::NO_PARAMETER],
    }
}

/// Get User Access.
pub(super) fn user_access(data: &[u8], users: &[IpmiSimulatorUser]) -> Vec<u8> {
    let &[channel, id, ..] = data else {
        return vec![completion::BAD_LENGTH];
    };
    let (id, count) = (usize::from(id & 0x3f), users.len() + 1);
    if !is_ours(channel) || !(1..=count).contains(&id) {
        return vec![completion::BAD_FIELD];
    }
    let user = id.checked_sub(USER_FIRST).and_then(|at| users.get(at));
    let access = user.map_or(0x0f, |user| 0x10 | user.limit.level());
    vec![completion::OK, count as u8, users.len() as u8, 1, access]
}

/// Get User Name.
pub(super) fn user_name(data: &[u8], users: &[IpmiSimulatorUser]) -> Vec<u8> {
    let Some(&id) = data.first() else {
        return vec![completion::BAD_LENGTH];
    };
    let id = usize::from(id & 0x3f);
    if !(1..=users.len() + 1).contains(&id) {
        return vec![completion::BAD_FIELD];
    }
    let user = id.checked_sub(USER_FIRST).and_then(|at| users.get(at));
    let mut body = vec![completion::OK];
    body.extend(user.map(|user| &user.name[..]).unwrap_or_default());
    body.resize(17, 0);
    body
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bmc::IpmiPrivilege;

    fn users() -> Vec<IpmiSimulatorUser> {
        vec![IpmiSimulatorUser {
            name: b"admin".to_vec(),
            password: b"password".to_vec(),
            limit: IpmiPrivilege::Administrator,
        }]
    }

    #[test]
    fn users_have_names_and_levels_and_the_first_is_unnamed() {
        let users = users();
        assert_eq!(user_access(&[14, 1], &users), [0, 2, 1, 1, 0x0f]);
        assert_eq!(user_access(&[1, 2], &users), [0, 2, 1, 1, 0x14]);
        assert_eq!(user_name(&[2], &users)[..8], *b"\0admin\0\0");
        assert_eq!(user_name(&[1], &users), [0; 17]);
        for (data, code) in [
            (&[1][..], 0xc7),
            (&[1, 0], 0xcc),
            (&[1, 3], 0xcc),
            (&[2, 1], 0xcc),
        ] {
            assert_eq!(user_access(data, &users), [code]);
        }
        for (data, code) in [(&[][..], 0xc7), (&[0], 0xcc), (&[3], 0xcc)] {
            assert_eq!(user_name(data, &users), [code]);
        }
    }

    #[test]
    fn only_known_network_parameters_are_returned() {
        let known = IpmiLanConfig {
            mac: Some([2, 0, 0, 0, 0, 9]),
            ..IpmiLanConfig::default()
        };
        let send = |data: &[u8]| lan_parameter(data, &known);
        assert_eq!(send(&[1, lan::MAC, 0, 0]), [0, 0x11, 2, 0, 0, 0, 0, 9]);
        assert_eq!(send(&[14, lan::ADDRESS, 0, 0]), [0x80]);
        assert_eq!(send(&[14, 200, 0, 0]), [0x80]);
        assert_eq!(send(&[7, lan::MAC, 0, 0]), [0xcc]);
        assert_eq!(send(&[1, lan::MAC, 0]), [0xc7]);
        assert_eq!(channel_info(&[14])[..4], [0, 1, 4, 1]);
        assert_eq!(channel_info(&[3]), [0xcc]);
        assert_eq!(channel_info(&[]), [0xc7]);
    }
}
