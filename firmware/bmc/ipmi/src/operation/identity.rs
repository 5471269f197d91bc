//! GUIDs of a BMC (sections 20.8 and 22.14), its network configuration (table 23-4), its users
//! (sections 22.26 and 22.28), and the identify LED of the machine (section 28.5).

use core::net::Ipv4Addr;

use trivet_model::PowerError;

use super::{IpmiOperationNext, IpmiOperationResult, IpmiReply, invalid_response, refused};
use crate::command::{IpmiRequest, NETFN_TRANSPORT, app, chassis, completion, lan, transport};
use crate::wire::sixteen_at;

/// Most users of a BMC: their numbers have six bits.
pub const USERS_MAX: u8 = 63;

/// A request for the identify LED of a machine.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum IpmiIdentify {
    /// On for this many seconds; zero switches it off.
    For {
        /// Seconds.
        seconds: u8,
    },
    /// On until the next request; not every BMC supports this.
    On,
}

impl IpmiIdentify {
    pub(super) fn request(self) -> IpmiRequest {
        match self {
            Self::For { seconds } => IpmiRequest::chassis(chassis::IDENTIFY, &[seconds]),
            Self::On => IpmiRequest::chassis(chassis::IDENTIFY, &[0, 1]),
        }
    }

    /// Reads the data of Chassis Identify; the default is 15 seconds.
    pub(crate) fn parse(data: &[u8]) -> Self {
        match *data {
            [] => Self::For { seconds: 15 },
            [_, force, ..] if force & 1 != 0 => Self::On,
            [seconds, ..] => Self::For { seconds },
        }
    }
}

/// The source of a BMC's IP address.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum AddressSource {
    /// Static.
    Static,
    /// From a DHCP server.
    Dhcp,
    /// From the machine's firmware.
    Firmware,
    /// Another source, or not specified.
    Other(u8),
}

impl AddressSource {
    fn from_number(number: u8) -> Self {
        match number & 0x0f {
            1 => Self::Static,
            2 => Self::Dhcp,
            3 => Self::Firmware,
            other => Self::Other(other),
        }
    }

    pub(crate) fn number(self) -> u8 {
        match self {
            Self::Static => 1,
            Self::Dhcp => 2,
            Self::Firmware => 3,
            Self::Other(number) => number & 0x0f,
        }
    }
}

/// Network configuration of a BMC; `None` for parameters that it does not have.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct IpmiLanConfig {
    /// IP address.
    pub address: Option<Ipv4Addr>,
    /// Source of the IP address.
    pub source: Option<AddressSource>,
    /// MAC address.
    pub mac: Option<[u8; 6]>,
    /// Subnet mask.
    pub mask: Option<Ipv4Addr>,
    /// Default gateway.
    pub gateway: Option<Ipv4Addr>,
}

/// A user of a BMC.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct UserEntry {
    /// User ID.
    pub id: u8,
    /// Name; empty for a user without one.
    pub name: String,
    /// Highest privilege level on this channel, as on the wire: two for user, three for operator,
    /// four for administrator, fifteen for no access.
    pub limit: u8,
    /// Whether this user is enabled for IPMI messaging.
    pub messaging: bool,
}

/// The state of the identify LED, as in Get Chassis Status (section 28.2).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum IpmiIdentifyState {
    /// Off.
    Off,
    /// On for a limited time.
    Timed,
    /// On until the next request.
    On,
    /// The BMC does not report it.
    Unknown,
}

impl IpmiIdentifyState {
    pub(super) fn request() -> IpmiRequest {
        IpmiRequest::chassis(chassis::STATUS, &[])
    }

    /// The bits in the third byte of the status: whether the state is supported, and the state.
    pub(crate) fn bits(self) -> u8 {
        match self {
            Self::Off => 0x40,
            Self::Timed => 0x50,
            Self::On => 0x60,
            Self::Unknown => 0,
        }
    }
}

impl From<IpmiIdentify> for IpmiIdentifyState {
    fn from(light: IpmiIdentify) -> Self {
        match light {
            IpmiIdentify::On => Self::On,
            IpmiIdentify::For { seconds: 0 } => Self::Off,
            IpmiIdentify::For { .. } => Self::Timed,
        }
    }
}

/// The state of the identify LED in a response to Get Chassis Status.
pub(super) fn parse_identify_state(code: u8, data: &[u8]) -> IpmiOperationResult {
    if code != completion::OK {
        return Err(PowerError::Refused { code });
    }
    let message = "a chassis status cut short";
    let bits = data.get(2).ok_or(PowerError::InvalidResponse { message })?;
    Ok(IpmiReply::IdentifyState(match bits & 0x70 {
        0x40 => IpmiIdentifyState::Off,
        0x50 => IpmiIdentifyState::Timed,
        0x60 => IpmiIdentifyState::On,
        _ => IpmiIdentifyState::Unknown,
    }))
}

/// The sixteen bytes of a GUID in a response.
pub(super) fn parse_guid(code: u8, data: &[u8]) -> IpmiOperationResult {
    if code != completion::OK {
        return Err(PowerError::Refused { code });
    }
    sixteen_at(data, 0)
        .filter(|_| data.len() == 16)
        .map(IpmiReply::Guid)
        .ok_or(PowerError::InvalidResponse {
            message: "a GUID that is not 16 bytes",
        })
}

/// Reads the LAN parameters, one by one.
#[derive(Clone, Copy, Debug)]
pub(super) struct LanScript {
    channel: u8,
    at: usize,
    lan: IpmiLanConfig,
}

const LAN_PARAMETERS: [u8; 5] = [lan::ADDRESS, lan::SOURCE, lan::MAC, lan::MASK, lan::GATEWAY];

impl LanScript {
    pub(super) fn start(channel: u8) -> (Self, IpmiRequest) {
        let (at, lan) = (0, IpmiLanConfig::default());
        let script = Self { channel, at, lan };
        (script, script.request(LAN_PARAMETERS[0]))
    }

    fn request(self, parameter: u8) -> IpmiRequest {
        IpmiRequest {
            netfn: NETFN_TRANSPORT,
            command: transport::LAN_PARAMETER,
            data: vec![self.channel & 0x0f, parameter, 0, 0],
        }
    }

    pub(super) fn handle_response(&mut self, code: u8, data: &[u8]) -> IpmiOperationNext {
        match code {
            completion::OK => {
                let value = data.get(1..).unwrap_or_default();
                if self
                    .store_parameter(LAN_PARAMETERS[self.at], value)
                    .is_none()
                {
                    return invalid_response("a LAN parameter cut short");
                }
            }
            // A parameter that the BMC does not have.
            completion::NO_PARAMETER => {}
            code => return refused(code),
        }
        self.at += 1;
        match LAN_PARAMETERS.get(self.at) {
            Some(&parameter) => IpmiOperationNext::Send(self.request(parameter)),
            None => IpmiOperationNext::Done(Ok(IpmiReply::Lan(self.lan))),
        }
    }

    fn store_parameter(&mut self, parameter: u8, value: &[u8]) -> Option<()> {
        let address = || Some(Ipv4Addr::from(*value.first_chunk::<4>()?));
        match parameter {
            lan::ADDRESS => self.lan.address = Some(address()?),
            lan::SOURCE => self.lan.source = Some(AddressSource::from_number(*value.first()?)),
            lan::MAC => self.lan.mac = Some(*value.first_chunk()?),
            lan::MASK => self.lan.mask = Some(address()?),
            _ => self.lan.gateway = Some(address()?),
        }
        Some(())
    }
}

/// Reads the users of a channel, one by one.
#[derive(Clone, Debug)]
pub(super) struct UsersScript {
    channel: u8,
    count: u8,
    /// The present user, and its access if that was received.
    id: u8,
    access: Option<u8>,
    users: Vec<UserEntry>,
}

impl UsersScript {
    pub(super) fn start(channel: u8) -> (Self, IpmiRequest) {
        let script = Self {
            channel,
            count: 1,
            id: 1,
            access: None,
            users: Vec::new(),
        };
        let request = script.access_request();
        (script, request)
    }

    fn access_request(&self) -> IpmiRequest {
        IpmiRequest::app(app::USER_ACCESS, &[self.channel & 0x0f, self.id])
    }

    pub(super) fn handle_response(&mut self, code: u8, data: &[u8]) -> IpmiOperationNext {
        // Some BMCs refuse to return the name of a user that is not set up.
        let unnamed = self.access.is_some()
            && matches!(code, completion::BAD_FIELD | completion::NOT_PRESENT);
        if code != completion::OK && !unnamed {
            return refused(code);
        }
        let Some(access) = self.access.take() else {
            let &[count, _enabled, _fixed, access, ..] = data else {
                return invalid_response("a user's access cut short");
            };
            self.count = (count & 0x3f).min(USERS_MAX);
            self.access = Some(access);
            return IpmiOperationNext::Send(IpmiRequest::app(app::USER_NAME, &[self.id]));
        };
        let bytes = if unnamed { &[] } else { data };
        if bytes.len() > 16 {
            return invalid_response("a user's name longer than 16 bytes");
        }
        let name = bytes.split(|&byte| byte == 0).next().unwrap_or_default();
        let characters = name.iter().copied().map(char::from);
        self.users.push(UserEntry {
            id: self.id,
            name: characters
                .filter(|character| !character.is_control())
                .collect(),
            limit: access & 0x0f,
            messaging: access & 0x10 != 0,
        });
        if self.id < self.count {
            self.id += 1;
            return IpmiOperationNext::Send(self.access_request());
        }
        IpmiOperationNext::Done(Ok(IpmiReply::Users(core::mem::take(&mut self.users))))
    }
}

#[cfg(test)]
mod tests {
    use super::super::IpmiOperation;
    use super::super::tests::{is_invalid_response, run_script};
    use super::*;

    #[test]
    fn identify_is_sent_with_and_without_force() {
        for (light, data) in [
            (IpmiIdentify::For { seconds: 15 }, &[15][..]),
            (IpmiIdentify::For { seconds: 0 }, &[0]),
            (IpmiIdentify::On, &[0, 1]),
        ] {
            let (requests, outcome) =
                run_script(IpmiOperation::Identify { identify: light }, |_| vec![0]);
            assert_eq!((requests[0].netfn, requests[0].command), (0, 4));
            assert_eq!(
                (&requests[0].data[..], outcome),
                (data, Ok(IpmiReply::Done))
            );
            assert_eq!(IpmiIdentify::parse(data), light);
        }
        let light = IpmiIdentify::On;
        let (_, outcome) = run_script(IpmiOperation::Identify { identify: light }, |_| vec![0xcc]);
        assert_eq!(outcome, Err(PowerError::Refused { code: 0xcc }));
        assert_eq!(IpmiIdentify::parse(&[]), IpmiIdentify::For { seconds: 15 });
    }

    #[test]
    fn the_identify_state_is_read_if_the_bmc_reports_it() {
        for light in [
            IpmiIdentifyState::Off,
            IpmiIdentifyState::Timed,
            IpmiIdentifyState::On,
            IpmiIdentifyState::Unknown,
        ] {
            let (requests, outcome) = run_script(IpmiOperation::IdentifyState, |_| {
                vec![0, 1, 0, light.bits(), 0]
            });
            assert_eq!((requests[0].netfn, requests[0].command), (0, 1));
            assert_eq!(outcome, Ok(IpmiReply::IdentifyState(light)));
        }
        let (_, outcome) = run_script(IpmiOperation::IdentifyState, |_| vec![0, 1, 0, 0x70]);
        assert_eq!(
            outcome,
            Ok(IpmiReply::IdentifyState(IpmiIdentifyState::Unknown))
        );
        let (_, outcome) = run_script(IpmiOperation::IdentifyState, |_| vec![0, 1, 0]);
        assert!(is_invalid_response(&outcome));
        let (_, outcome) = run_script(IpmiOperation::IdentifyState, |_| vec![0xd4]);
        assert_eq!(outcome, Err(PowerError::Refused { code: 0xd4 }));
        assert_eq!(
            IpmiIdentifyState::from(IpmiIdentify::On),
            IpmiIdentifyState::On
        );
        assert_eq!(
            IpmiIdentifyState::from(IpmiIdentify::For { seconds: 0 }),
            IpmiIdentifyState::Off
        );
        assert_eq!(
            IpmiIdentifyState::from(IpmiIdentify::For { seconds: 9 }),
            IpmiIdentifyState::Timed
        );
    }

    #[test]
    fn a_guid_has_sixteen_bytes() {
        for (operation, command) in [
            (IpmiOperation::SystemGuid, 0x37),
            (IpmiOperation::DeviceGuid, 0x08),
        ] {
            let (requests, outcome) =
                run_script(operation.clone(), |_| [&[0][..], &[7; 16]].concat());
            assert_eq!(requests[0].command, command);
            assert_eq!(outcome, Ok(IpmiReply::Guid([7; 16])));
            for length in [1, 16, 18] {
                let (_, outcome) = run_script(operation.clone(), |_| vec![0; length]);
                assert!(is_invalid_response(&outcome));
            }
            let (_, outcome) = run_script(operation, |_| vec![0xc1]);
            assert_eq!(outcome, Err(PowerError::Refused { code: 0xc1 }));
        }
    }

    fn lan_of(answer: impl Fn(u8) -> Vec<u8>) -> IpmiOperationResult {
        let operation = IpmiOperation::Lan { channel: 1 };
        run_script(operation, |request| {
            assert_eq!((request.netfn, request.command), (0x0c, 2));
            assert_eq!(request.data[0], 1);
            answer(request.data[1])
        })
        .1
    }

    #[test]
    fn lan_parameters_are_read_as_far_as_there_are() {
        let outcome = lan_of(|parameter| match parameter {
            lan::ADDRESS => vec![0, 0x11, 10, 0, 0, 2],
            lan::SOURCE => vec![0, 0x11, 2],
            lan::MAC => vec![0, 0x11, 2, 0, 0, 0, 0, 9],
            lan::MASK => vec![0, 0x11, 255, 255, 255, 0],
            _ => vec![0x80],
        });
        let want = IpmiLanConfig {
            address: Some(Ipv4Addr::new(10, 0, 0, 2)),
            source: Some(AddressSource::Dhcp),
            mac: Some([2, 0, 0, 0, 0, 9]),
            mask: Some(Ipv4Addr::new(255, 255, 255, 0)),
            gateway: None,
        };
        assert_eq!(outcome, Ok(IpmiReply::Lan(want)));
        assert_eq!(
            lan_of(|_| vec![0x80]),
            Ok(IpmiReply::Lan(IpmiLanConfig::default()))
        );
        let refused = Err(PowerError::Refused { code: 0xcc });
        assert_eq!(lan_of(|_| vec![0xcc]), refused);
    }

    #[test]
    fn short_lan_parameters_are_refused() {
        for short in LAN_PARAMETERS {
            let outcome = lan_of(|parameter| {
                let length = if parameter == short { 2 } else { 8 };
                vec![0; length]
            });
            assert!(is_invalid_response(&outcome), "{short}");
        }
        for number in 0..16 {
            assert_eq!(AddressSource::from_number(number).number(), number);
        }
    }

    #[test]
    fn users_are_listed_up_to_the_number_the_bmc_has() {
        let (requests, outcome) =
            run_script(IpmiOperation::Users { channel: 14 }, |request| {
                match (request.command, &request.data[..]) {
                    (app::USER_ACCESS, [14, 1]) => vec![0, 3, 1, 1, 0x0f],
                    (app::USER_ACCESS, [14, _]) => vec![0, 3, 1, 1, 0x14],
                    (app::USER_NAME, [1]) => vec![0xcc],
                    (app::USER_NAME, [2]) => [&b"\0admin"[..], &[0; 11]].concat(),
                    (app::USER_NAME, [3]) => [&[0][..], &[b'n'; 16]].concat(),
                    other => panic!("unexpected request {other:?}"),
                }
            });
        assert_eq!(requests.len(), 6);
        let Ok(IpmiReply::Users(users)) = outcome else {
            panic!("{outcome:?}");
        };
        let reported: Vec<_> = users
            .iter()
            .map(|user| (user.id, &*user.name, user.limit, user.messaging))
            .collect();
        let long = "n".repeat(16);
        let want = [
            (1, "", 15, false),
            (2, "admin", 4, true),
            (3, &long, 4, true),
        ];
        assert_eq!(reported, want);
    }

    #[test]
    fn users_without_end_or_sense_are_refused() {
        let (requests, _) = run_script(IpmiOperation::Users { channel: 1 }, |_| {
            vec![0, 0xff, 0, 0, 0]
        });
        assert_eq!(requests.len(), 2 * usize::from(USERS_MAX));
        for body in [&[0][..], &[0, 1, 1, 1]] {
            let (_, outcome) = run_script(IpmiOperation::Users { channel: 1 }, |_| body.to_vec());
            assert!(is_invalid_response(&outcome));
        }
        let (_, outcome) = run_script(IpmiOperation::Users { channel: 1 }, |_| vec![0; 18]);
        assert!(is_invalid_response(&outcome));
        let (_, outcome) = run_script(IpmiOperation::Users { channel: 1 }, |_| vec![0xcc]);
        assert_eq!(outcome, Err(PowerError::Refused { code: 0xcc }));
    }
}
