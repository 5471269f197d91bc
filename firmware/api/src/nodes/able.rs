//! What a node's hardware can do, one question each. The interfaces it has decide.

use trivet_model::view::NodeView;

use super::fields::interface;
use crate::call::Call;
use crate::error::Fault;

fn has(call: &Call<'_>, view: &NodeView, field: &'static str, names: &[&str]) -> bool {
    let chosen = interface(view, call, field);
    chosen
        .as_str()
        .is_some_and(|chosen| names.contains(&chosen))
}

fn is_there(call: &Call<'_>, view: &NodeView, field: &'static str) -> bool {
    let chosen = interface(view, call, field);
    chosen
        .as_str()
        .is_some_and(|chosen| !chosen.starts_with("no-"))
}

/// The sentence for what it cannot do.
pub(crate) fn or_refuse(can: bool, view: &NodeView, what: &str) -> Result<(), Fault> {
    if can {
        Ok(())
    } else {
        Err(Fault::unsupported(&view.node.driver, what))
    }
}

/// It has RAID of its own.
pub(crate) fn raid(call: &Call<'_>, view: &NodeView) -> bool {
    is_there(call, view, "raid_interface")
}

/// Its console can be switched on.
pub(crate) fn console(call: &Call<'_>, view: &NodeView) -> bool {
    is_there(call, view, "console_interface")
}

/// Its boot mode and secure boot can be set.
pub(crate) fn boot_mode(call: &Call<'_>, view: &NodeView) -> bool {
    has(call, view, "management_interface", &["fake"])
}

/// It has lights.
pub(crate) fn lights(call: &Call<'_>, view: &NodeView) -> bool {
    has(call, view, "management_interface", &["fake"])
}

/// Images can be inserted.
pub(crate) fn media(call: &Call<'_>, view: &NodeView) -> bool {
    has(call, view, "management_interface", &["fake"])
}
