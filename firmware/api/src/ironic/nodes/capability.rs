//! Which functions a node's hardware has, and whether its record has what they need, from crate
//! `trivet-drivers`.

use trivet_drivers::{HardwareCapability, InterfaceKind, can, check};
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

/// Refuses functions of a BMC whose address is unknown, or whose other settings are wrong.
pub(crate) fn require_settings(view: &NodeView, kind: InterfaceKind) -> Result<(), ApiFault> {
    let wrong = check(&view.node, kind, &|_| true);
    wrong.map_or(Ok(()), |why| Err(ApiFault::bad(sentence(why))))
}

fn sentence(mut why: String) -> String {
    if !why.ends_with('.') {
        why.push('.');
    }
    why
}
