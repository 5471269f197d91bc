//! What a caller has to be for a request.
//!
//! Reads need a reader, changes an operator. Raw commands to service processors
//! and agents, and what runs steps on many nodes later on (templates, runbooks,
//! rules), need an admin. What agents call needs no credentials at all: the
//! agent's token and the state of its node protect it.

use core::fmt;

use crate::{percent, route};

/// What a request needs, least first.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Access {
    /// Nothing: the documents that clients discover the API by.
    Public,
    /// Nothing here: what agents call.
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

/// What a request needs, as its row of the route table says. What does not exist
/// needs what any other path does, so that strangers do not learn what does.
pub fn access(method: &str, path: &str) -> Access {
    let segments = percent::segments(path).ok();
    let row = segments.and_then(|segments| route::find(method, &segments));
    match (row, method) {
        (Some(row), _) => row.access,
        (None, "GET" | "HEAD" | "OPTIONS") => Access::Reader,
        (None, _) => Access::Operator,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn needs(want: Access, requests: &[(&str, &str)]) {
        for (method, path) in requests {
            assert_eq!(access(method, path), want, "{method} {path}");
        }
    }

    #[test]
    fn only_discovery_and_the_agents_doors_need_no_credentials() {
        needs(
            Access::Public,
            &[("GET", "/"), ("GET", "/v1"), ("GET", "/v1/")],
        );
        needs(
            Access::Agent,
            &[
                ("GET", "/v1/lookup"),
                ("POST", "/v1/heartbeat/node-1"),
                ("POST", "/v1/continue_inspection"),
            ],
        );
    }

    #[test]
    fn reads_need_a_reader() {
        needs(
            Access::Reader,
            &[
                ("GET", "/v1/nodes"),
                ("HEAD", "/v1/nodes/x"),
                ("OPTIONS", "/v1/nodes"),
                ("GET", "/v1/runbooks"),
                ("GET", "/v1/lookup/../nodes"),
                ("GET", "/v1//nodes"),
                ("GET", "/v1/heartbeat/node-1"),
                ("GET", "/v1/nodes/x/vendor_passthru/methods"),
                ("GET", "/%zz"),
                ("GET", "/v1/%6eodes"),
            ],
        );
    }

    #[test]
    fn changes_need_an_operator() {
        needs(
            Access::Operator,
            &[
                ("POST", "/v1/nodes"),
                ("DELETE", "/v1/nodes/x"),
                ("PATCH", "/v1/nodes/x"),
                ("PUT", "/v1/nodes/x/states/provision"),
                ("POST", "/v1"),
                ("POST", "/v1/heartbeat/a/b"),
                ("POST", "/v1/lookup"),
                ("BREW", "/v1/nodes"),
                ("POST", "/%zz"),
            ],
        );
    }

    #[test]
    fn raw_commands_and_what_runs_later_need_an_admin() {
        needs(
            Access::Admin,
            &[
                ("POST", "/v1/nodes/x/vendor_passthru"),
                ("POST", "/v1/nodes/x/vendor_passthru/send_raw"),
                ("GET", "/v1/nodes/x/vendor_passthru/read"),
                ("GET", "/v1/nodes/x/vendor_passthru/heartbeat"),
                ("POST", "/v1/nodes/x/%76endor_passthru"),
                ("PUT", "/v1/drivers/ipmi/vendor_passthru/anything"),
            ],
        );
    }
}
