//! Numbers of the IPMI commands used here (appendix G) and of completion codes (table 5-2).

pub(crate) const NETFN_CHASSIS: u8 = 0x00;
pub(crate) const NETFN_SENSOR: u8 = 0x04;
pub(crate) const NETFN_APP: u8 = 0x06;
pub(crate) const NETFN_STORAGE: u8 = 0x0a;
pub(crate) const NETFN_TRANSPORT: u8 = 0x0c;

/// Chassis commands.
pub(crate) mod chassis {
    pub(crate) const STATUS: u8 = 0x01;
    pub(crate) const CONTROL: u8 = 0x02;
    pub(crate) const IDENTIFY: u8 = 0x04;
    pub(crate) const SET_BOOT_OPTIONS: u8 = 0x08;
    pub(crate) const BOOT_OPTIONS: u8 = 0x09;
}

/// Application commands: the management controller itself.
pub(crate) mod app {
    pub(crate) const DEVICE_ID: u8 = 0x01;
    pub(crate) const COLD_RESET: u8 = 0x02;
    pub(crate) const WARM_RESET: u8 = 0x03;
    pub(crate) const DEVICE_GUID: u8 = 0x08;
    pub(crate) const SYSTEM_GUID: u8 = 0x37;
    pub(crate) const CHANNEL_AUTHENTICATION: u8 = 0x38;
    pub(crate) const SESSION_CHALLENGE: u8 = 0x39;
    pub(crate) const ACTIVATE_SESSION: u8 = 0x3a;
    pub(crate) const SET_SESSION_PRIVILEGE: u8 = 0x3b;
    pub(crate) const CLOSE_SESSION: u8 = 0x3c;
    pub(crate) const CHANNEL_INFO: u8 = 0x42;
    pub(crate) const USER_ACCESS: u8 = 0x44;
    pub(crate) const USER_NAME: u8 = 0x46;
    pub(crate) const CHANNEL_CIPHER_SUITES: u8 = 0x54;
}

/// Transport commands: the LAN configuration.
pub(crate) mod transport {
    pub(crate) const LAN_PARAMETER: u8 = 0x02;
}

/// LAN parameters (table 23-4).
pub(crate) mod lan {
    pub(crate) const SET_IN_PROGRESS: u8 = 0;
    pub(crate) const ADDRESS: u8 = 3;
    pub(crate) const SOURCE: u8 = 4;
    pub(crate) const MAC: u8 = 5;
    pub(crate) const MASK: u8 = 6;
    pub(crate) const GATEWAY: u8 = 12;
}

/// Sensor commands.
pub(crate) mod sensor {
    pub(crate) const THRESHOLDS: u8 = 0x27;
    pub(crate) const READING: u8 = 0x2d;
}

/// Storage commands.
pub(crate) mod storage {
    pub(crate) const FRU_INFO: u8 = 0x10;
    pub(crate) const READ_FRU: u8 = 0x11;
    pub(crate) const WRITE_FRU: u8 = 0x12;
    pub(crate) const SDR_INFO: u8 = 0x20;
    pub(crate) const RESERVE_SDR: u8 = 0x22;
    pub(crate) const SDR: u8 = 0x23;
    pub(crate) const SEL_INFO: u8 = 0x40;
    pub(crate) const RESERVE_SEL: u8 = 0x42;
    pub(crate) const SEL_ENTRY: u8 = 0x43;
    pub(crate) const CLEAR_SEL: u8 = 0x47;
    pub(crate) const SEL_TIME: u8 = 0x48;
}

/// Values of Chassis Control (section 28.3).
pub(crate) mod control {
    pub(crate) const DOWN: u8 = 0;
    pub(crate) const UP: u8 = 1;
    pub(crate) const CYCLE: u8 = 2;
    pub(crate) const RESET: u8 = 3;
    /// Pulse diagnostic interrupt.
    pub(crate) const INTERRUPT: u8 = 4;
    pub(crate) const SOFT: u8 = 5;
}

/// Parameters of the boot options (table 28-14).
pub(crate) mod option {
    pub(crate) const SET_IN_PROGRESS: u8 = 0;
    pub(crate) const VALID_BIT_CLEARING: u8 = 3;
    pub(crate) const INFO_ACKNOWLEDGE: u8 = 4;
    pub(crate) const FLAGS: u8 = 5;
    pub(crate) const MAILBOX: u8 = 7;
}

/// Completion codes.
pub(crate) mod completion {
    pub(crate) const OK: u8 = 0x00;
    /// Boot options and LAN: no such parameter.
    pub(crate) const NO_PARAMETER: u8 = 0x80;
    /// Boot options: another console is setting them.
    pub(crate) const IN_PROGRESS: u8 = 0x81;
    /// Set Session Privilege Level: above the user's limit.
    pub(crate) const ABOVE_LIMIT: u8 = 0x81;
    /// Close Session: no such session.
    pub(crate) const NO_SESSION: u8 = 0x87;
    pub(crate) const NODE_BUSY: u8 = 0xc0;
    pub(crate) const NO_COMMAND: u8 = 0xc1;
    /// The reservation was cancelled.
    pub(crate) const CANCELLED: u8 = 0xc5;
    pub(crate) const BAD_LENGTH: u8 = 0xc7;
    pub(crate) const TOO_LONG: u8 = 0xc8;
    pub(crate) const OUT_OF_RANGE: u8 = 0xc9;
    /// The request is for more bytes than fit into a response.
    pub(crate) const TOO_MUCH: u8 = 0xca;
    pub(crate) const NOT_PRESENT: u8 = 0xcb;
    pub(crate) const BAD_FIELD: u8 = 0xcc;
    pub(crate) const NO_PRIVILEGE: u8 = 0xd4;
    pub(crate) const NOT_IN_THIS_STATE: u8 = 0xd5;
    pub(crate) const UNSPECIFIED: u8 = 0xff;
}

/// A command and its data, without the sequence numbers of one transmission.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct IpmiRequest {
    /// Network function, even.
    pub netfn: u8,
    /// Command.
    pub command: u8,
    /// The data of the request.
    pub data: Vec<u8>,
}

impl IpmiRequest {
    pub(crate) fn app(command: u8, data: &[u8]) -> Self {
        Self {
            netfn: NETFN_APP,
            command,
            data: data.to_vec(),
        }
    }

    pub(crate) fn storage(command: u8, data: &[u8]) -> Self {
        Self {
            netfn: NETFN_STORAGE,
            command,
            data: data.to_vec(),
        }
    }

    pub(crate) fn chassis(command: u8, data: &[u8]) -> Self {
        Self {
            netfn: NETFN_CHASSIS,
            command,
            data: data.to_vec(),
        }
    }
}
