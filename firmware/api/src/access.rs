//! Who may ask for what, as the rows of the route table say.

use crate::{percent, route};

/// Whom a request needs to come from.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Access {
    /// Anybody: what clients discover us by.
    Public,
    /// An agent, which its token and the node's state prove.
    Agent,
    /// Somebody who may look.
    Reader,
    /// Somebody who may change.
    Operator,
    /// Somebody who may do what can harm the box or a machine for good.
    Admin,
}

/// Whom a request needs to come from. What does not exist may be asked for by
/// readers, so that strangers do not learn what does.
pub fn access(method: &str, path: &str) -> Access {
    let Ok(segments) = percent::segments(path) else {
        return Access::Reader;
    };
    let row = route::find(method, &segments);
    row.map_or(Access::Reader, |row| row.access)
}
