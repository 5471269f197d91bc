//! Facts that are counted and are in no timeline: exchanges with machines of no node, and single
//! requests to BMCs. They leave the rack after the commit, as notes do.

/// One fact to count. All texts are constants of the code, so the number of counters is bounded
/// whatever machines and BMCs send.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Measurement {
    /// A DHCP message was handled.
    DhcpMessage {
        /// Its message type, such as `DISCOVER`; none where it could not be decoded.
        request: Option<&'static str>,
        /// The message type of the reply; none where there was none.
        reply: Option<&'static str>,
        /// The name of the reason why there was no reply.
        dropped: Option<&'static str>,
    },
    /// A request to a BMC has ended.
    BmcRequest {
        /// The protocol, such as `ipmi`.
        protocol: &'static str,
        /// The kind of the failure, see [`crate::PowerError::kind`]; none where it succeeded.
        failure: Option<&'static str>,
        /// The time from the request to its end, queue and repetitions included, in ms.
        took_ms: u64,
    },
}
