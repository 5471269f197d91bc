//! Fuzz targets for every parser of untrusted input.
//!
//! A target is a function of bytes that panics on an error, with seeds: inputs that lead the
//! fuzzer to interesting code. `tests/run fuzz` builds `src/bin` with the compiler's own
//! coverage counters and runs every target for a while; under `cargo test` each runs over its
//! seeds, over mutated seeds, and over inputs that once failed, which are listed here as hex.

mod agent;
mod bootfiles;
mod dhcp;
mod disks;
mod enrol;
mod input;
mod ipmi;
mod link;
mod machine;
mod oci;
mod redfish;
mod tftp;
mod unpack;

/// One target.
#[derive(Clone, Copy, Debug)]
pub struct FuzzTarget {
    /// Its name on the command line.
    pub name: &'static str,
    /// Runs one input; panics on an error.
    pub run: fn(&[u8]),
    /// The initial inputs.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Inputs that once failed, as hex.
    pub regressions: &'static [&'static str],
}

/// All targets.
pub const TARGETS: [FuzzTarget; 30] = [
    agent::STARTUP,
    agent::COMMANDS,
    dhcp::frame::TARGET,
    dhcp::server::TARGET,
    dhcp::client::TARGET,
    tftp::packet::TARGET,
    tftp::sender::TARGET,
    tftp::receiver::TARGET,
    bootfiles::PATHS,
    bootfiles::REQUESTS,
    link::FRAMES,
    ipmi::BMC_REQUESTS,
    ipmi::FRU,
    ipmi::SDR,
    ipmi::SEL,
    ipmi::session::TARGET,
    machine::SMBIOS,
    machine::LLDP,
    machine::BMC_REPLIES,
    machine::DISK_PAGES,
    disks::TABLES,
    disks::HINTS,
    disks::RECORDS,
    enrol::MAILBOX,
    oci::LOOKUPS,
    oci::CHALLENGES,
    redfish::ANSWERS,
    redfish::SESSION,
    unpack::QCOW2,
    unpack::STREAMS,
];

/// The target of this name.
pub fn find(name: &str) -> Option<FuzzTarget> {
    TARGETS.into_iter().find(|target| target.name == name)
}

/// Decodes hex digits; `None` for anything else.
pub fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<_>> = text.chars().map(|digit| digit.to_digit(16)).collect();
    let digits = digits.filter(|digits| digits.len().is_multiple_of(2))?;
    let pairs = digits.chunks_exact(2);
    Some(pairs.map(|pair| (pair[0] * 16 + pair[1]) as u8).collect())
}
