//! Ironic's REST API as a function from request and view to response or order.
//!
//! [`handle`] reads a snapshot and either responds at once or returns the order to execute;
//! [`finish`] builds the response once that order is on flash. Both are pure, so a request can be
//! handled again with a newer view if the record it was based on has changed meanwhile. This crate
//! does not handle sockets, authentication beyond `access`, or the execution of orders.

pub mod inspector;
mod ironic;
mod routes;
mod table;
mod trivet;

#[cfg(test)]
mod testing;

use trivet_model::node::JsonObject;
use trivet_model::{
    Entropy, NodeId, OrderOutcome, OrderRefusal, PortId, RackOrder, RackView, RefusalKind,
    ResourceId, ResourceKind, UnixMs,
};
use uuid::Uuid;

pub use ironic::agent::{agent_call, node_of_path};
pub use ironic::ssh_access::access_of;
use ironic::{agent, nodes, passthru, ports, resources};
pub use routes::access;
pub use table::access::Access;
use table::call::ApiCall;
use table::error::ApiFault;
use table::version;
pub use table::version::{VERSION_MAX, VERSION_MIN, Version};
pub use trivet::images::{LocalImage, upload_range, upload_target};
pub use trivet::telemetry::{EventQuery, TelemetryRequest, telemetry_request};
use trivet::{enrolment, images};

/// Longest request body in bytes. Ours: inspection data with its logs is the largest body of a
/// correct client.
pub const BODY_BYTES_MAX: usize = 8 * 1024 * 1024;

/// One request, as the daemon parsed it.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// Method, in capitals.
    pub method: &'a str,
    /// Path, still percent-encoded.
    pub path: &'a str,
    /// The query after the question mark, still percent-encoded.
    pub query: &'a str,
    /// The `Host` header.
    pub host: &'a str,
    /// `http` or `https`.
    pub scheme: &'a str,
    /// `X-OpenStack-Ironic-API-Version`.
    pub version: Option<&'a str>,
    /// `OpenStack-API-Version`.
    pub openstack_version: Option<&'a str>,
    /// The body.
    pub body: &'a [u8],
    /// Identifier of this request in logs, such as `req-<uuid>`.
    pub request_id: &'a str,
}

/// One response, for the daemon to send.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Response {
    /// HTTP status.
    pub status: u16,
    /// Headers; with a content type if there is a body.
    pub headers: Vec<(&'static str, String)>,
    /// Body; empty for 202 and 204.
    pub body: Vec<u8>,
}

/// The result of [`handle`].
#[derive(Clone, Debug, PartialEq)]
pub enum ApiOutcome {
    /// Send this response.
    Reply(Response),
    /// Execute this order, then call [`finish`].
    Order {
        /// The order to execute.
        order: RackOrder,
        /// How [`finish`] builds the response.
        then: ResponsePlan,
    },
    /// Send this log archive.
    Logs {
        /// The node of the agent.
        node: NodeId,
        /// Name of the archive.
        name: String,
    },
}

/// The response that [`finish`] builds when the order succeeded.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ResponsePlan {
    /// The node.
    Node {
        /// UUID of the node.
        id: NodeId,
        /// It is new: 201 with its location.
        created: bool,
    },
    /// The port.
    Port {
        /// UUID of the port.
        id: PortId,
        /// It is new: 201 with its location.
        created: bool,
    },
    /// The resource.
    Resource {
        /// Its kind.
        kind: ResourceKind,
        /// UUID of the resource.
        id: ResourceId,
        /// It is new: 201 with its location.
        created: bool,
    },
    /// The image, which is new.
    Image {
        /// Its name.
        name: String,
    },
    /// A response without a body.
    Empty {
        /// 202 or 204.
        status: u16,
        /// URL of the result.
        location: Option<String>,
    },
    /// The lookup response for an agent.
    Lookup,
    /// The lookup response for an agent without token support.
    LegacyLookup,
    /// The node for which an agent gets a certificate.
    Enrolled,
    /// The node that the inspection data belongs to.
    Inspected,
    /// The reply of the BMC or the agent.
    CommandReply,
    /// The virtual drives that a BMC listed.
    Media,
    /// The errors of each interface; the deployment check can add more.
    Validated(JsonObject),
}

/// Facts about the box that are in responses.
#[derive(Clone, Debug, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact of the box of its own"
)]
pub struct ApiFacts {
    /// Name of the box: Ironic's `conductor`.
    pub hostname: String,
    /// Enabled hardware types.
    pub drivers: Vec<String>,
    /// Base of links, such as `https://box.example`; `None`: from the request.
    pub public_endpoint: Option<String>,
    /// The inspector's API is on, with its own listener.
    pub inspector: bool,
    /// Callback URLs of agents can be plain HTTP.
    pub agent_http_allowed: bool,
    /// The box has no kernel and ramdisk of the agent.
    pub agent_missing: bool,
    /// The box has an ISO image of the agent.
    pub agent_iso: bool,
    /// Images of the box itself: they need no digest from the operator.
    pub images: Vec<LocalImage>,
    /// When the box started.
    pub started_at: UnixMs,
}

/// Responds to a request from the snapshot, or returns the order to execute.
pub fn handle(
    request: &Request<'_>,
    view: &RackView,
    facts: &ApiFacts,
    now: UnixMs,
    entropy: &mut dyn Entropy,
) -> ApiOutcome {
    let version = match version::negotiate(request) {
        Ok(version) => version,
        Err(fault) => return ApiOutcome::Reply(with_version_headers(request, None, fault.into())),
    };
    let fresh = match request.method {
        "POST" => NodeId::random(entropy).0,
        _ => Uuid::nil(),
    };
    let outcome = ApiCall::new(request, version, view, facts, now, fresh)
        .and_then(|call| routes::route(&call));
    match outcome {
        Ok(ApiOutcome::Reply(response)) => {
            ApiOutcome::Reply(with_version_headers(request, Some(version), response))
        }
        Ok(order) => order,
        Err(fault) => ApiOutcome::Reply(with_version_headers(request, Some(version), fault.into())),
    }
}

/// The response to a request whose order was executed or refused. `view` is the snapshot after the
/// commit.
pub fn finish(
    request: &Request<'_>,
    then: &ResponsePlan,
    result: Result<OrderOutcome, OrderRefusal>,
    view: &RackView,
    facts: &ApiFacts,
) -> Response {
    let version = version::negotiate(request).unwrap_or(VERSION_MIN);
    let now = UnixMs::default();
    let answer =
        ApiCall::new(request, version, view, facts, now, Uuid::nil()).and_then(
            |call| match result {
                Ok(done) => finished(&call, then, done),
                Err(refusal) => Err(refused(&call, then, refusal)),
            },
        );
    with_version_headers(
        request,
        Some(version),
        answer.unwrap_or_else(Response::from),
    )
}

/// The response to a request that the daemon refuses before it is handled.
pub fn refuse(request: &Request<'_>, status: u16, sentence: &str) -> Response {
    let version = version::negotiate(request).ok();
    with_version_headers(
        request,
        version,
        ApiFault::of_shell(status, sentence).into(),
    )
}

/// The response to a request that was handled this many times. A request that was valid at first
/// and is invalid on a newer snapshot lost a race with another client: this is a conflict (409).
pub fn conflict_after_retry(tries: u32, mut response: Response) -> Response {
    if tries > 1 && response.status == 400 {
        response.status = 409;
    }
    response
}

fn finished(
    call: &ApiCall<'_>,
    then: &ResponsePlan,
    done: OrderOutcome,
) -> Result<Response, ApiFault> {
    match (then, done) {
        (ResponsePlan::Node { id, created }, _) => {
            let node = call
                .view
                .nodes
                .get(id)
                .ok_or_else(|| ApiFault::no_node(&id.to_string()))?;
            Ok(nodes::show::whole(call, node, *created))
        }
        (ResponsePlan::Port { id, created }, _) => {
            let port = call
                .view
                .ports
                .get(id)
                .ok_or_else(|| ApiFault::no_port(&id.to_string()))?;
            Ok(ports::whole(call, port, *created))
        }
        (ResponsePlan::Resource { kind, id, created }, _) => {
            let spec = resources::ResourceSpec::of_kind(*kind).ok_or_else(ApiFault::no_path)?;
            let resource = call.view.resources.get(&(*kind, *id));
            let resource = resource.ok_or_else(|| spec.missing(&id.to_string()))?;
            Ok(spec.whole(call, resource, *created))
        }
        (ResponsePlan::Image { name }, _) => images::whole(call, name),
        (ResponsePlan::Empty { status, location }, _) => {
            Ok(Response::empty(*status).with_location(location.clone()))
        }
        (ResponsePlan::Lookup, OrderOutcome::Found(found)) => Ok(agent::found(call, &found)),
        (ResponsePlan::Inspected, OrderOutcome::Inspected(id)) => Ok(agent::inspected(id)),
        (ResponsePlan::Enrolled, OrderOutcome::Enrolled(id)) => Ok(enrolment::enrolled(id)),
        (ResponsePlan::LegacyLookup, OrderOutcome::Found(found)) => {
            Ok(passthru::found(call, &found))
        }
        (ResponsePlan::CommandReply, OrderOutcome::Reply(reply)) => Ok(Response::json(200, &reply)),
        (ResponsePlan::Media, OrderOutcome::Reply(reply)) => {
            Ok(Response::json(200, &nodes::ironic_media(&reply)))
        }
        (ResponsePlan::Validated(results), OrderOutcome::Checked(lacks)) => {
            Ok(nodes::validated(results.clone(), lacks))
        }
        (
            ResponsePlan::Lookup
            | ResponsePlan::LegacyLookup
            | ResponsePlan::Inspected
            | ResponsePlan::Enrolled
            | ResponsePlan::CommandReply
            | ResponsePlan::Media
            | ResponsePlan::Validated(_),
            _,
        ) => Err(ApiFault::server(
            "the order was executed but returned no reply; this is a bug in the box",
        )),
    }
}

fn refused(call: &ApiCall<'_>, then: &ResponsePlan, refusal: OrderRefusal) -> ApiFault {
    let OrderRefusal { kind, sentence } = refusal;
    // The same error for "unknown" and "not now", so that unauthenticated clients cannot find out
    // which nodes exist.
    let unknown = matches!(
        then,
        ResponsePlan::Lookup | ResponsePlan::LegacyLookup | ResponsePlan::Inspected
    );
    if kind == RefusalKind::NotFound && unknown {
        return ApiFault::not_found("Resource could not be found.");
    }
    match kind {
        RefusalKind::Invalid => ApiFault::bad(sentence),
        RefusalKind::NotFound => ApiFault::not_found(sentence),
        RefusalKind::Conflict | RefusalKind::Stale => ApiFault::conflict(sentence),
        RefusalKind::Forbidden => ApiFault::forbidden(sentence),
        // Outside `/v1` there is no Ironic client that expects 500: the box itself has not failed.
        RefusalKind::Failed if call.word(0) == "trivet" => ApiFault::of_shell(502, &sentence),
        RefusalKind::Failed => ApiFault::server(sentence),
        RefusalKind::Unavailable => ApiFault::unavailable(sentence),
    }
}

/// Adds the headers that every response has.
fn with_version_headers(
    request: &Request<'_>,
    version: Option<Version>,
    mut response: Response,
) -> Response {
    let headers = &mut response.headers;
    headers.push((
        "X-OpenStack-Ironic-API-Minimum-Version",
        VERSION_MIN.to_string(),
    ));
    headers.push((
        "X-OpenStack-Ironic-API-Maximum-Version",
        VERSION_MAX.to_string(),
    ));
    if let Some(version) = version {
        headers.push(("X-OpenStack-Ironic-API-Version", version.to_string()));
        if request.openstack_version.is_some() {
            headers.push(("OpenStack-API-Version", format!("baremetal {version}")));
        }
    }
    headers.extend(request_id_headers(request.request_id));
    response
}

/// The identifier of a request, under its present and its former name: Ironic's clients read both.
pub fn request_id_headers(id: &str) -> [(&'static str, String); 2] {
    ["x-openstack-request-id", "openstack-request-id"].map(|name| (name, id.to_owned()))
}

#[cfg(test)]
mod tests;
