//! What is sent to BMCs and received from them: the one output and the one input of all
//! protocols.

use std::net::SocketAddr;

use trivet_model::{NodeId, UndeliveredReason};

use crate::http::{BmcHttpError, BmcHttpRequest, BmcHttpResponse, BmcHttpTarget};
use crate::ssh_host::{SshCommandOutput, SshHost};

/// Something to send.
#[derive(Debug)]
pub enum BmcTransmit {
    /// A datagram.
    Datagram {
        /// The destination; a broadcast address where a machine that is off has no other.
        to: SocketAddr,
        /// The datagram's payload.
        bytes: Vec<u8>,
    },
    /// An HTTP request. It always ends with [`BmcMessage::HttpAnswered`], within
    /// [`crate::http::HTTP_REQUEST_TIMEOUT_MS`].
    Http(Box<BmcHttpCall>),
    /// A command for the shell of an SSH host. It always ends with [`BmcMessage::SshAnswered`],
    /// within [`crate::ssh_host::SSH_RUN_TIMEOUT_MS`].
    Ssh(Box<BmcSshRun>),
}

/// An HTTP request to send.
#[derive(Debug)]
pub struct BmcHttpCall {
    /// The node that the request is for.
    pub node: NodeId,
    /// The number of the request.
    pub call: u64,
    /// The BMC, and how to verify its certificate.
    pub target: BmcHttpTarget,
    /// The request.
    pub request: BmcHttpRequest,
}

/// A command to run on an SSH host.
#[derive(Debug)]
pub struct BmcSshRun {
    /// The node that the command is for.
    pub node: NodeId,
    /// The number of the run.
    pub run: u64,
    /// The host, and how to log in.
    pub host: SshHost,
    /// The command line for the host's shell.
    pub command: String,
}

/// Something that was received.
#[derive(Debug)]
pub enum BmcMessage {
    /// A datagram.
    Datagram {
        /// The sender.
        from: SocketAddr,
        /// The datagram's payload.
        bytes: Vec<u8>,
    },
    /// The network reports that a datagram did not get to its destination.
    Undelivered {
        /// The destination.
        to: SocketAddr,
        /// What the network reports.
        reason: UndeliveredReason,
    },
    /// The response to an HTTP request, or why there is none.
    HttpAnswered {
        /// The node that the request is for.
        node: NodeId,
        /// The number of the request.
        call: u64,
        /// The response, or why there is none.
        result: Result<BmcHttpResponse, BmcHttpError>,
    },
    /// A command on an SSH host has ended, or could not be run.
    SshAnswered {
        /// The node that the command is for.
        node: NodeId,
        /// The number of the run.
        run: u64,
        /// Its output, or why it did not run.
        result: Result<SshCommandOutput, String>,
    },
}
