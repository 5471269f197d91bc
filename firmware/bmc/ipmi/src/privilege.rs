//! Privilege levels of a session.

/// Privilege levels, lowest first (section 6.8). The callback level is left out: no command used
/// here works with it.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum IpmiPrivilege {
    /// Read only.
    User = 2,
    /// Power control and boot devices.
    Operator = 3,
    /// All commands.
    Administrator = 4,
}

impl IpmiPrivilege {
    /// The level as its number on the wire.
    pub(crate) const fn level(self) -> u8 {
        self as u8
    }

    pub(crate) fn from_level(level: u8) -> Option<Self> {
        match level {
            2 => Some(Self::User),
            3 => Some(Self::Operator),
            4 => Some(Self::Administrator),
            _ => None,
        }
    }
}
