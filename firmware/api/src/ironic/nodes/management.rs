//! `/v1/nodes/<ident>/management`: boot device, NMI, indicators.

use serde_json::{Value, json};
use trivet_drivers::InterfaceKind;
use trivet_model::view::NodeView;
use trivet_model::{BootDevice, RackOrder};

use super::{capability, unlocked};
use crate::ApiOutcome;
use crate::ironic::passthru;
use crate::table::body;
use crate::table::call::{ApiCall, empty, order, reply};
use crate::table::error::ApiFault;
use crate::table::field::ValueShape;
use crate::table::route::{ApiArg, ApiRoute, BodySchema, arg, required};

pub(crate) const ROUTES: &[ApiRoute] = &[
    ApiRoute::get(
        &["v1", "nodes", "{node}", "management", "boot_device"],
        1,
        "Show its boot device",
        |call| boot_device(call.this()?),
    ),
    ApiRoute::new(
        "PUT",
        &["v1", "nodes", "{node}", "management", "boot_device"],
        1,
        "Set its boot device",
        |call| set_boot_device(call, call.this()?),
    )
    .body(BodySchema::Args(BOOT_DEVICE)),
    ApiRoute::get(
        &[
            "v1",
            "nodes",
            "{node}",
            "management",
            "boot_device",
            "supported",
        ],
        1,
        "List its supported boot devices",
        |call| {
            let driver = &call.this()?.node.driver;
            reply(&json!({ "supported_boot_devices": supported(driver) }))
        },
    ),
    ApiRoute::new(
        "PUT",
        &["v1", "nodes", "{node}", "management", "inject_nmi"],
        29,
        "Send a non-maskable interrupt (NMI)",
        passthru::inject_nmi,
    ),
];

const BOOT_DEVICE: &[ApiArg] = &[
    required("boot_device", 1, ValueShape::Text),
    arg("persistent", 1, ValueShape::Flag),
];

const FAKE: &str = "fake-hardware";

fn supported(driver: &str) -> &'static [BootDevice] {
    if driver == FAKE {
        &[BootDevice::Pxe]
    } else {
        BootDevice::ALL
    }
}

/// The boot device that was last set or read, from the node's record. Ironic returns null if it is
/// unknown, and clients show that.
fn boot_device(view: &NodeView) -> Result<ApiOutcome, ApiFault> {
    capability::require_settings(view, InterfaceKind::Management)?;
    let info = &view.node.driver_internal_info;
    let device = info.get("boot_device").and_then(Value::as_str);
    if device.is_none() && view.node.driver == FAKE {
        // What Ironic's fake hardware always answers.
        return reply(&json!({"boot_device": BootDevice::Pxe, "persistent": false}));
    }
    let persistent = device.map(|_| info.get("boot_device_persistent") == Some(&json!(true)));
    reply(&json!({"boot_device": device, "persistent": persistent}))
}

fn set_boot_device(call: &ApiCall<'_>, view: &NodeView) -> Result<ApiOutcome, ApiFault> {
    let object = body::args(call, BOOT_DEVICE)?;
    let named = body::text(&object, "boot_device")?;
    let named = named.ok_or_else(|| ApiFault::bad("boot_device is required."))?;
    capability::require_settings(view, InterfaceKind::Management)?;
    let device = named.parse().ok();
    let device = device.filter(|device| supported(&view.node.driver).contains(device));
    let device = device.ok_or_else(|| {
        let named = named.escape_debug();
        ApiFault::bad(format!("Invalid boot device {named} specified."))
    })?;
    let persistent = object.get("persistent") == Some(&json!(true));
    unlocked(call, &view.node)?;
    order(
        RackOrder::SetBoot {
            node: view.node.id,
            device,
            persistent,
        },
        empty(204, None),
    )
}
