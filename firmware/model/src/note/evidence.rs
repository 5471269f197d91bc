//! Facts that the diagnosis of a job reads and that no other note has.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr};

use crate::{EventTopic, MacAddr};

/// The most hardware addresses of a lookup in a note. Ours.
pub const LOOKUP_MACS_NOTED_MAX: usize = 8;

/// A fact about the machine or the job of a node.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum EvidenceNote {
    /// The machine requested an address on a link where the box sends nothing.
    DhcpNotServed {
        /// The interface.
        link: String,
        /// The hardware address of the machine.
        mac: MacAddr,
    },
    /// The machine chose the offer of another DHCP server.
    OtherServerChosen {
        /// The interface.
        link: String,
        /// The hardware address of the machine.
        mac: MacAddr,
        /// The address that it gets there.
        address: Ipv4Addr,
        /// The server identifier in its REQUEST.
        server: Ipv4Addr,
    },
    /// The agent sends heartbeats and cannot be called.
    AgentUnreachable {
        /// Its callback URL.
        url: String,
        /// The error of the connection.
        error: String,
    },
    /// The agent looked its node up by hardware addresses that are not those of one node.
    LookupUnmatched {
        /// The address it called from.
        from: IpAddr,
        /// The hardware addresses, at most [`LOOKUP_MACS_NOTED_MAX`].
        macs: Vec<MacAddr>,
        /// How many nodes have one of them.
        nodes: usize,
    },
    /// The BMC failed a request of a power change, which repeats it.
    BmcRequestRepeated {
        /// The kind of the error, see `PowerError::kind`.
        kind: &'static str,
        /// The whole error message.
        message: String,
    },
    /// The BMC answers again in the same power change.
    BmcAnswersAgain,
    /// The agent found no disk that fits the hints.
    DiskNotFound {
        /// The hints, as in the record.
        hints: String,
        /// The disks of the inventory.
        disks: String,
    },
    /// The job ends because of its image.
    ImageUnusable {
        /// What is wrong with it.
        problem: ImageProblem,
        /// Its name.
        image: String,
        /// The whole error message.
        why: String,
    },
}

/// What is wrong with an image.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ImageProblem {
    /// The source has something else than the record says.
    Different,
    /// It cannot be fetched.
    Unavailable,
    /// It is larger than where it is written.
    TooLarge,
}

impl EvidenceNote {
    /// The subject of the event.
    pub const fn topic(&self) -> EventTopic {
        match self {
            Self::DhcpNotServed { .. } | Self::OtherServerChosen { .. } => EventTopic::Network,
            Self::AgentUnreachable { .. } | Self::LookupUnmatched { .. } => EventTopic::Agent,
            Self::BmcRequestRepeated { .. } | Self::BmcAnswersAgain => EventTopic::Power,
            Self::DiskNotFound { .. } => EventTopic::Job,
            Self::ImageUnusable { .. } => EventTopic::Image,
        }
    }

    /// The name of the event for programs.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::DhcpNotServed { .. } => "dhcp_not_served",
            Self::OtherServerChosen { .. } => "other_server_chosen",
            Self::AgentUnreachable { .. } => "agent_unreachable",
            Self::LookupUnmatched { .. } => "lookup_unmatched",
            Self::BmcRequestRepeated { .. } => "bmc_request_repeated",
            Self::BmcAnswersAgain => "bmc_answers_again",
            Self::DiskNotFound { .. } => "disk_not_found",
            Self::ImageUnusable { .. } => "image_unusable",
        }
    }
}

impl fmt::Display for EvidenceNote {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DhcpNotServed { link, mac } => {
                write!(
                    out,
                    "{mac} requests an address on {link}, where this box sends nothing"
                )
            }
            Self::OtherServerChosen {
                link,
                mac,
                address,
                server,
            } => write!(
                out,
                "{mac} chose {address} of another DHCP server, {server}, on {link}"
            ),
            Self::AgentUnreachable { url, error } => {
                write!(
                    out,
                    "the agent sends heartbeats, but {url} cannot be called: {error}"
                )
            }
            Self::LookupUnmatched { from, macs, nodes } => {
                write!(out, "the agent at {from} named the hardware addresses ")?;
                for (index, mac) in macs.iter().enumerate() {
                    let comma = if index > 0 { ", " } else { "" };
                    write!(out, "{comma}{mac}")?;
                }
                match nodes {
                    0 => write!(out, "; no node has one of them"),
                    nodes => write!(out, "; {nodes} nodes have one of them"),
                }
            }
            Self::BmcRequestRepeated { message, .. } => {
                write!(out, "{message}; the request is repeated")
            }
            Self::BmcAnswersAgain => out.write_str("the BMC answers again"),
            Self::DiskNotFound { hints, disks } => {
                write!(
                    out,
                    "no disk fits the hints {hints}; inspection found {disks}"
                )
            }
            Self::ImageUnusable { why, .. } => out.write_str(why),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);

    #[track_caller]
    fn check(note: &EvidenceNote, want: &str) {
        assert_eq!(note.to_string(), want);
    }

    #[test]
    fn each_fact_is_a_sentence() {
        let link = || "eth1".to_owned();
        check(
            &EvidenceNote::DhcpNotServed {
                link: link(),
                mac: MAC,
            },
            "02:00:00:00:00:01 requests an address on eth1, where this box sends nothing",
        );
        check(
            &EvidenceNote::OtherServerChosen {
                link: link(),
                mac: MAC,
                address: [192, 0, 2, 59].into(),
                server: [192, 0, 2, 254].into(),
            },
            "02:00:00:00:00:01 chose 192.0.2.59 of another DHCP server, 192.0.2.254, on eth1",
        );
        let lookup = |macs: &[MacAddr], nodes| EvidenceNote::LookupUnmatched {
            from: [192, 0, 2, 9].into(),
            macs: macs.to_vec(),
            nodes,
        };
        check(
            &lookup(&[MAC, MAC], 0),
            "the agent at 192.0.2.9 named the hardware addresses 02:00:00:00:00:01, \
             02:00:00:00:00:01; no node has one of them",
        );
        check(
            &lookup(&[MAC], 2),
            "the agent at 192.0.2.9 named the hardware addresses 02:00:00:00:00:01; 2 nodes have \
             one of them",
        );
    }

    #[test]
    fn facts_of_the_agent_have_its_url_and_the_hints() {
        check(
            &EvidenceNote::AgentUnreachable {
                url: "https://192.0.2.9:9999".to_owned(),
                error: "connection refused".to_owned(),
            },
            "the agent sends heartbeats, but https://192.0.2.9:9999 cannot be called: connection \
             refused",
        );
        check(
            &EvidenceNote::BmcRequestRepeated {
                kind: "unreachable",
                message: "the BMC did not answer within 2000 ms".into(),
            },
            "the BMC did not answer within 2000 ms; the request is repeated",
        );
        check(&EvidenceNote::BmcAnswersAgain, "the BMC answers again");
        check(
            &EvidenceNote::DiskNotFound {
                hints: "{}".to_owned(),
                disks: "no disks".to_owned(),
            },
            "no disk fits the hints {}; inspection found no disks",
        );
    }
}
