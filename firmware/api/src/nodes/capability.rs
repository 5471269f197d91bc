//! What a node's hardware can do; the hardware's own room knows.

use trivet_drivers::{HardwareCapability, can};
use trivet_model::view::NodeView;

use crate::error::ApiFault;

/// Refuses in Ironic's words what the node's hardware cannot do.
pub(crate) fn require(
    view: &NodeView,
    ability: HardwareCapability,
    what: &str,
) -> Result<(), ApiFault> {
    if can(&view.node, ability) {
        Ok(())
    } else {
        Err(ApiFault::unsupported(&view.node.driver, what))
    }
}
