//! Vendor methods, of hardware types and of nodes.
//!
//! They return the reply of the BMC or the agent, so all of them are listed as synchronous; clients
//! accept the 200 like Ironic's 202. The two methods for agents without token support are here too:
//! `certs/README.md` describes their risks.

mod legacy;
mod subscriptions;
#[cfg(test)]
mod tests;

use serde_json::{Value, json};
use trivet_drivers::{HardwareCapability, InterfaceKind, can, interface};
use trivet_model::node::JsonObject;
use trivet_model::order::VendorMethod;
use trivet_model::power::{RAW_BYTES_MAX, RawBytes};
use trivet_model::view::NodeView;
use trivet_model::{Node, PowerOrder, RackOrder};

use crate::ironic::nodes::capability;
use crate::table::access::Access;
use crate::table::body;
use crate::table::call::{ApiCall, order, reply};
use crate::table::error::ApiFault;
use crate::table::field::ValueShape;
use crate::table::route::{ApiArg, ApiRoute, BodySchema, ResponseSchema, arg};
use crate::{ApiOutcome, ResponsePlan};

pub(crate) use legacy::found;

/// Longest body of a vendor method, in bytes. Ours: it is in memory until the reply arrives.
const METHOD_BYTES_MAX: usize = 64 * 1024;

/// Longest name of an agent's command, in bytes. Ours.
const COMMAND_BYTES_MAX: usize = 128;

const METHOD: &[ApiArg] = &[arg("method", 1, ValueShape::Text)];

const DRIVER: &[&str] = &["v1", "drivers", "{driver}", "vendor_passthru"];
const DRIVER_METHOD: &[&str] = &["v1", "drivers", "{driver}", "vendor_passthru", "{method}"];
const NODE: &[&str] = &["v1", "nodes", "{node}", "vendor_passthru"];
const NODE_METHOD: &[&str] = &["v1", "nodes", "{node}", "vendor_passthru", "{method}"];

const fn node(method: &'static str, path: &'static [&'static str]) -> ApiRoute {
    row(method, path, of_node)
}

const fn driver(method: &'static str, path: &'static [&'static str]) -> ApiRoute {
    row(method, path, of_driver)
}

const fn row(
    method: &'static str,
    path: &'static [&'static str],
    answer: fn(&ApiCall<'_>) -> Result<ApiOutcome, ApiFault>,
) -> ApiRoute {
    ApiRoute::new(method, path, 1, "Call a vendor passthru method", answer)
        .query_args(&[METHOD])
        .body(BodySchema::Any)
        .response(ResponseSchema::Any(200))
        .for_(Access::Admin)
}

pub(crate) const ROUTES: &[ApiRoute] = &[
    ApiRoute::get(
        &["v1", "nodes", "{node}", "vendor_passthru", "methods"],
        1,
        "List vendor passthru methods",
        |call| reply(&described(methods_of(&call.this()?.node))),
    ),
    legacy::DRIVER_LOOKUP,
    legacy::NODE_LOOKUP,
    legacy::HEARTBEAT,
    node("GET", NODE),
    node("POST", NODE),
    node("PUT", NODE),
    node("PATCH", NODE),
    node("DELETE", NODE),
    node("GET", NODE_METHOD),
    node("POST", NODE_METHOD),
    node("PUT", NODE_METHOD),
    node("PATCH", NODE_METHOD),
    node("DELETE", NODE_METHOD),
    driver("GET", DRIVER),
    driver("POST", DRIVER),
    driver("PUT", DRIVER),
    driver("DELETE", DRIVER),
    driver("GET", DRIVER_METHOD),
    driver("POST", DRIVER_METHOD),
    driver("PUT", DRIVER_METHOD),
    driver("DELETE", DRIVER_METHOD),
];

/// One method.
struct PassthruMethod {
    name: &'static str,
    /// The HTTP method that calls it.
    http: &'static str,
    /// Description for clients.
    description: &'static str,
    /// Whether this node has the method.
    offered: fn(&Node) -> bool,
    answer: fn(&ApiCall<'_>, &NodeView) -> Result<ApiOutcome, ApiFault>,
}

const METHODS: [PassthruMethod; 6] = [
    PassthruMethod {
        name: "agent_command",
        http: "POST",
        description: "Give the agent a command. Arguments: 'command' (such as 'standby.sync'); \
               optional 'params' (object) and 'wait' (Boolean): answer when it has ended.",
        offered: |_| true,
        answer: agent_command,
    },
    PassthruMethod {
        name: "bmc_reset",
        http: "POST",
        description: "Reset the BMC. Argument: 'warm' (Boolean) - for warm (True) or cold (False) \
               reset.",
        offered: speaks_ipmi,
        answer: bmc_reset,
    },
    PassthruMethod {
        name: "create_subscription",
        http: "POST",
        description: "Create an event subscription in the BMC. Required argument: 'Destination' (a \
               URL); optional 'EventTypes', 'HttpHeaders' (lists), 'Context' and 'Protocol'.",
        offered: speaks_redfish,
        answer: subscriptions::create,
    },
    PassthruMethod {
        name: "delete_subscription",
        http: "DELETE",
        description: "Delete an event subscription in the BMC. Required argument: 'id', as \
               create_subscription returned it.",
        offered: speaks_redfish,
        answer: subscriptions::delete,
    },
    PassthruMethod {
        name: "heartbeat",
        http: "POST",
        description: "Heartbeat of an agent without token support. Required argument: 'agent_url'.",
        offered: Node::allows_legacy_agent,
        answer: |call, _| legacy::heartbeat(call),
    },
    PassthruMethod {
        name: "send_raw",
        http: "POST",
        description: "Send raw bytes to the BMC. Required argument: 'raw_bytes' - a string of raw \
               bytes (e.g. '0x00 0x01').",
        offered: speaks_ipmi,
        answer: send_raw,
    },
];

/// Whether the node's BMC accepts raw IPMI commands.
fn speaks_ipmi(node: &Node) -> bool {
    interface(node, InterfaceKind::Vendor) == "ipmitool"
}

/// Whether vendor methods go to a Redfish service.
fn speaks_redfish(node: &Node) -> bool {
    interface(node, InterfaceKind::Vendor) == "redfish"
}

fn methods_of(node: &Node) -> impl Iterator<Item = &'static PassthruMethod> {
    METHODS.iter().filter(move |method| (method.offered)(node))
}

fn described(methods: impl Iterator<Item = &'static PassthruMethod>) -> Value {
    let described: JsonObject = methods
        .map(|method| {
            // A heartbeat changes nothing, so it does not need the lock.
            let locks = method.name != "heartbeat";
            let metadata = metadata(method.http, method.description, locks);
            (method.name.to_owned(), metadata)
        })
        .collect();
    Value::Object(described)
}

fn metadata(http: &str, says: &str, locks: bool) -> Value {
    json!({
        "http_methods": [http],
        "async": false,
        "description": says,
        "attach": false,
        "require_exclusive_lock": locks,
    })
}

/// The methods of a hardware type that need no node.
pub(crate) fn driver_methods() -> Value {
    json!({ "lookup": metadata("POST", legacy::LOOKUP_DESCRIPTION, false) })
}

/// The method's name, from the path or the query.
fn named<'c>(call: &'c ApiCall<'_>) -> Result<&'c str, ApiFault> {
    let name = match call.segments.get(4) {
        Some(name) => name.as_str(),
        None => call.query.last("method").unwrap_or(""),
    };
    if name.is_empty() {
        return Err(ApiFault::bad("Missing mandatory parameter: method"));
    }
    Ok(name)
}

fn no_handler(name: &str) -> ApiFault {
    ApiFault::bad(format!("No handler for method {}", name.escape_debug()))
}

/// Every method has one HTTP method.
fn require_http(call: &ApiCall<'_>, name: &str, http: &str) -> Result<(), ApiFault> {
    if call.method == http {
        return Ok(());
    }
    let method = call.method.escape_debug();
    Err(ApiFault::bad(format!(
        "The method {name} does not support HTTP {method}"
    )))
}

fn of_node(call: &ApiCall<'_>) -> Result<ApiOutcome, ApiFault> {
    let view = call.this()?;
    let name = named(call)?;
    let method = methods_of(&view.node).find(|method| method.name == name);
    let method = method.ok_or_else(|| no_handler(name))?;
    require_http(call, name, method.http)?;
    if call.body.len() > METHOD_BYTES_MAX {
        return Err(ApiFault::bad(format!(
            "The body of a vendor method has at most {METHOD_BYTES_MAX} bytes."
        )));
    }
    (method.answer)(call, view)
}

fn of_driver(call: &ApiCall<'_>) -> Result<ApiOutcome, ApiFault> {
    legacy::known_driver(call)?;
    match named(call)? {
        "lookup" => {
            require_http(call, "lookup", "POST")?;
            legacy::lookup(call)
        }
        name => Err(no_handler(name)),
    }
}

fn vendor(
    view: &NodeView,
    method: VendorMethod,
    then: ResponsePlan,
) -> Result<ApiOutcome, ApiFault> {
    if matches!(method, VendorMethod::Bmc(_)) {
        capability::require_settings(view, InterfaceKind::Management)?;
    }
    let node = view.node.id;
    order(RackOrder::Vendor { node, method }, then)
}

/// `PUT .../management/inject_nmi`.
pub(crate) fn inject_nmi(call: &ApiCall<'_>) -> Result<ApiOutcome, ApiFault> {
    let view = call.this()?;
    if !can(&view.node, HardwareCapability::Nmi) {
        return Err(ApiFault::unsupported(&view.node.driver, "inject_nmi"));
    }
    let then = crate::table::call::empty(204, None);
    vendor(view, VendorMethod::Bmc(PowerOrder::Nmi), then)
}

fn send_raw(call: &ApiCall<'_>, view: &NodeView) -> Result<ApiOutcome, ApiFault> {
    let object = body::object_or_empty(call)?;
    body::only(&object, &["raw_bytes"])?;
    let text = body::text(&object, "raw_bytes")?.filter(|text| !text.trim().is_empty());
    let text = text
        .ok_or_else(|| ApiFault::bad("Parameter raw_bytes (string of bytes) was not specified."))?;
    vendor(
        view,
        VendorMethod::Bmc(raw(text)?),
        ResponsePlan::CommandReply,
    )
}

/// Network function, command and data, each byte as `0x` and one or two digits.
fn raw(text: &str) -> Result<PowerOrder, ApiFault> {
    let byte = |word: &str| {
        let digits = word.strip_prefix("0x").filter(|digits| digits.len() <= 2);
        let plain = |digits: &&str| digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        let digits = digits.filter(plain);
        digits.and_then(|digits| u8::from_str_radix(digits, 16).ok())
    };
    let words = text.split_ascii_whitespace();
    let bytes: Option<Vec<u8>> = words.take(RAW_BYTES_MAX + 3).map(byte).collect();
    let bytes = bytes.ok_or_else(|| {
        ApiFault::bad("raw_bytes must be bytes like 0x06 0x01, with spaces between them.")
    })?;
    let [netfn, command, data @ ..] = &bytes[..] else {
        return Err(ApiFault::bad(
            "raw_bytes must name a network function and a command: at least two bytes.",
        ));
    };
    if *netfn > 0x3e || netfn % 2 != 0 {
        return Err(ApiFault::bad(
            "The first of raw_bytes is a network function: an even number up to 0x3e.",
        ));
    }
    let data = RawBytes::new(data).ok_or_else(|| {
        ApiFault::bad(format!(
            "raw_bytes has at most {RAW_BYTES_MAX} bytes of data."
        ))
    })?;
    Ok(PowerOrder::Raw {
        netfn: *netfn,
        command: *command,
        data,
    })
}

fn bmc_reset(call: &ApiCall<'_>, view: &NodeView) -> Result<ApiOutcome, ApiFault> {
    let object = body::args(call, &[arg("warm", 1, ValueShape::Flag)])?;
    let warm = object.get("warm").and_then(Value::as_bool).unwrap_or(true);
    let reset = PowerOrder::BmcReset { warm };
    vendor(view, VendorMethod::Bmc(reset), ResponsePlan::CommandReply)
}

fn agent_command(call: &ApiCall<'_>, view: &NodeView) -> Result<ApiOutcome, ApiFault> {
    const ARGS: &[ApiArg] = &[
        crate::table::route::required("command", 1, ValueShape::LongText),
        arg("params", 1, ValueShape::Object),
        arg("wait", 1, ValueShape::Flag),
    ];
    let mut object = body::args(call, ARGS)?;
    let command = body::text(&object, "command")?
        .unwrap_or_default()
        .to_owned();
    let plain = |part: &str| {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        !part.is_empty() && part.bytes().all(is_allowed)
    };
    let parts = command.split_once('.');
    if command.len() > COMMAND_BYTES_MAX
        || !parts.is_some_and(|(extension, name)| plain(extension) && plain(name))
    {
        return Err(ApiFault::bad(
            "command must be an extension and a command of the agent, such as standby.sync.",
        ));
    }
    let wait = object.get("wait").and_then(Value::as_bool).unwrap_or(false);
    let params = match object.remove("params") {
        Some(Value::Object(params)) => params,
        _ => JsonObject::new(),
    };
    if params.values().map(body::depth).max().unwrap_or(0) > body::DEPTH_MAX {
        return Err(ApiFault::bad("params is nested too deeply."));
    }
    let method = VendorMethod::Agent {
        command,
        params,
        wait,
    };
    vendor(view, method, ResponsePlan::CommandReply)
}
