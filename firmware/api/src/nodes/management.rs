//! `/v1/nodes/<ident>/management`: boot device, NMI, indicators.

use serde_json::{Value, json};
use trivet_model::view::NodeView;
use trivet_model::{BootDevice, Order};

use super::unlocked;
use crate::call::{Call, empty, order, reply};
use crate::error::Fault;
use crate::route::get;
use crate::{Outcome, body};

pub(crate) fn route(call: &Call<'_>, view: &NodeView, rest: &[&str]) -> Result<Outcome, Fault> {
    let driver = view.node.driver.as_str();
    match (rest, call.method) {
        (["boot_device"], "GET") => boot_device(view),
        (["boot_device"], "PUT") => set_boot_device(call, view),
        (["boot_device", "supported"], _) => get(call, |_| {
            reply(&json!({ "supported_boot_devices": supported(driver) }))
        }),
        (["inject_nmi"], "PUT") => {
            call.exists_since(29)?;
            Err(Fault::unsupported(driver, "inject_nmi"))
        }
        (["indicators"], _) => {
            call.exists_since(63)?;
            crate::route::empty_list(call, "indicators")
        }
        (["indicators", name], "GET" | "PUT") => {
            call.exists_since(63)?;
            let name = name.escape_debug();
            Err(Fault::not_found(format!(
                "Indicator {name} could not be found."
            )))
        }
        (["boot_device" | "inject_nmi"] | ["indicators", _], other) => Err(Fault::no_method(other)),
        _ => Err(Fault::no_path()),
    }
}

fn supported(driver: &str) -> &'static [BootDevice] {
    if driver == "fake-hardware" {
        &[BootDevice::Pxe]
    } else {
        BootDevice::ALL
    }
}

/// What was last set or read, which the machine keeps among its own fields. Ironic
/// answers null where a device is not known, and clients show that.
fn boot_device(view: &NodeView) -> Result<Outcome, Fault> {
    let info = &view.node.driver_internal_info;
    let device = info.get("boot_device").and_then(Value::as_str);
    let persistent = device.map(|_| info.get("boot_device_persistent") == Some(&json!(true)));
    reply(&json!({"boot_device": device, "persistent": persistent}))
}

fn set_boot_device(call: &Call<'_>, view: &NodeView) -> Result<Outcome, Fault> {
    let object = body::object(call)?;
    body::only(&object, &["boot_device", "persistent"])?;
    let named = body::text(&object, "boot_device")?;
    let named = named.ok_or_else(|| Fault::bad("boot_device is required."))?;
    let device = named.parse().ok();
    let device = device.filter(|device| supported(&view.node.driver).contains(device));
    let device = device.ok_or_else(|| {
        let named = named.escape_debug();
        Fault::bad(format!("Invalid boot device {named} specified."))
    })?;
    let persistent = match object.get("persistent") {
        None | Some(Value::Null) => false,
        Some(Value::Bool(persistent)) => *persistent,
        Some(Value::String(text)) => crate::query::truth(text)
            .ok_or_else(|| Fault::bad("persistent must be true or false."))?,
        Some(_) => return Err(Fault::bad("persistent must be true or false.")),
    };
    unlocked(call, &view.node)?;
    order(
        Order::SetBoot {
            node: view.node.id,
            device,
            persistent,
        },
        empty(204, None),
    )
}
