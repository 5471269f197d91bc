//! Privilege levels: how much a session may do.

/// Privilege levels, lowest first (section 6.8). The callback level is left out:
/// nothing that anybody here orders can be done with it.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum IpmiPrivilege {
    /// May look.
    User = 2,
    /// May switch power and choose boot devices.
    Operator = 3,
    /// May do all.
    Administrator = 4,
}

impl IpmiPrivilege {
    /// The level as it goes over the wire.
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
