//! Capability checks: which functions a node's hardware has, from crate `trivet-drivers`.

use trivet_drivers::{HardwareCapability, can};
use trivet_model::view::NodeView;

use crate::table::error::ApiFault;

/// Refuses functions that the node's hardware does not have, with Ironic's message.
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
