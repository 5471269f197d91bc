//! The role that a request needs.
//!
//! Reads need a reader, changes an operator. Raw commands to BMCs and agents, and resources that
//! run steps on many nodes later (templates, runbooks, rules), need an admin. Requests of agents
//! need no credentials: the agent's token and the state of its node protect them.

use core::fmt;

/// The role that a request needs, lowest first.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Access {
    /// None: the documents by which clients discover the API.
    Public,
    /// None: requests of agents.
    Agent,
    /// The role of a reader.
    Reader,
    /// The role of an operator.
    Operator,
    /// The role of an admin.
    Admin,
}

impl fmt::Display for Access {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Public => "public",
            Self::Agent => "agent",
            Self::Reader => "reader",
            Self::Operator => "operator",
            Self::Admin => "admin",
        })
    }
}
