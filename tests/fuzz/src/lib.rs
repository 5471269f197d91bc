//! Fuzz targets for everything that reads what strangers send.
//!
//! A target is a function of bytes that panics when something is wrong, and seeds: inputs
//! that lead the fuzzer to where it gets interesting. `tests/run fuzz` builds `src/bin`
//! with the compiler's own coverage counters and runs every target for a while; under
//! `cargo test` each runs over its seeds, over seeds with bytes changed, and over the
//! inputs that broke it once, which stand here as hex.

mod bootfiles;
mod dhcp;
mod input;
mod ipmi;
mod link;
mod redfish;
mod tftp;
mod unpack;

/// One target.
#[derive(Clone, Copy, Debug)]
pub struct FuzzTarget {
    /// As the command line names it.
    pub name: &'static str,
    /// Runs one input; panics when something is wrong.
    pub run: fn(&[u8]),
    /// Where to begin.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Inputs that broke it once, as hex.
    pub regressions: &'static [&'static str],
}

/// All targets.
pub const TARGETS: [FuzzTarget; 18] = [
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
    redfish::ANSWERS,
    redfish::SESSION,
    unpack::QCOW2,
    unpack::STREAMS,
];

/// The target of this name.
pub fn find(name: &str) -> Option<FuzzTarget> {
    TARGETS.into_iter().find(|target| target.name == name)
}

/// Bytes of hex digits; none where there is anything else.
pub fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<_>> = text.chars().map(|digit| digit.to_digit(16)).collect();
    let digits = digits.filter(|digits| digits.len().is_multiple_of(2))?;
    let pairs = digits.chunks_exact(2);
    Some(pairs.map(|pair| (pair[0] * 16 + pair[1]) as u8).collect())
}
