//! What a node's hardware can do; the hardware's own room knows.

use trivet_hardware::{Ability, can};
use trivet_model::view::NodeView;

use crate::error::Fault;

/// Refuses in Ironic's words what the node's hardware cannot do.
pub(crate) fn or_refuse(view: &NodeView, ability: Ability, what: &str) -> Result<(), Fault> {
    if can(&view.node, ability) {
        Ok(())
    } else {
        Err(Fault::unsupported(&view.node.driver, what))
    }
}
