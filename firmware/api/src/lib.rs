//! Ironic's REST API as a function from request and view to answer or order.
//!
//! [`handle`] reads a snapshot and either answers at once or names the one order
//! that carries the request out; [`finish`] makes the answer once that order is
//! on flash. Both are pure, so a request may be handled again with a fresh view
//! when the record it was based on has changed meanwhile. This room knows
//! nothing of sockets, of authentication beyond [`access`], or of how an
//! order is carried out.

mod access;
mod agent;
mod agent_artifacts;
mod bmc_requests;
mod body;
mod call;
mod drivers;
mod error;
mod events;
mod field;
mod images;
pub mod inspector;
mod lan;
mod list;
mod nodes;
mod openapi;
mod passthru;
mod patch;
mod percent;
mod ports;
mod progress;
mod query;
mod resources;
mod root;
mod route;
mod version;

#[cfg(test)]
mod testing;

use trivet_model::node::JsonObject;
use trivet_model::{
    Entropy, NodeId, OrderOutcome, OrderRefusal, PortId, RackOrder, RackView, RefusalKind,
    ResourceId, ResourceKind, UnixMs,
};
use uuid::Uuid;

pub use access::{Access, access, access_of};
pub use agent::agent_call;
use call::ApiCall;
use error::ApiFault;
pub use images::{LocalImage, upload_range, upload_target};
pub use version::{VERSION_MAX, VERSION_MIN, Version};

/// Longest request body. Ours: inspection data with its logs is the largest
/// thing an honest client sends.
pub const BODY_BYTES_MAX: usize = 8 * 1024 * 1024;

/// One request, as the shell read it.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// Method, in capitals.
    pub method: &'a str,
    /// Path, still percent-encoded.
    pub path: &'a str,
    /// What follows the question mark, still percent-encoded.
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
    /// What this request is called in logs, such as `req-<uuid>`.
    pub request_id: &'a str,
}

/// One answer, for the shell to write.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Response {
    /// HTTP status.
    pub status: u16,
    /// Headers; a content type is among them when there is a body.
    pub headers: Vec<(&'static str, String)>,
    /// Body; empty for 202 and 204.
    pub body: Vec<u8>,
}

/// What became of a request.
#[derive(Clone, Debug, PartialEq)]
pub enum ApiOutcome {
    /// Answer this now.
    Reply(Response),
    /// Carry this out, then call [`finish`].
    Order {
        /// What to carry out.
        order: RackOrder,
        /// What the answer will be made of.
        then: ResponsePlan,
    },
    /// Answer with this bundle of logs.
    Logs {
        /// Of which node's agent.
        node: NodeId,
        /// What it is called.
        name: String,
    },
}

/// What [`finish`] answers when the order went well.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ResponsePlan {
    /// Show the node.
    Node {
        /// Which.
        id: NodeId,
        /// It is new: 201 with its location.
        created: bool,
    },
    /// Show the port.
    Port {
        /// Which.
        id: PortId,
        /// It is new: 201 with its location.
        created: bool,
    },
    /// Show the resource.
    Resource {
        /// Of which kind.
        kind: ResourceKind,
        /// Which.
        id: ResourceId,
        /// It is new: 201 with its location.
        created: bool,
    },
    /// Show the image, which is new.
    Image {
        /// Its name.
        name: String,
    },
    /// An answer without a body.
    Empty {
        /// 202 or 204.
        status: u16,
        /// Where to look for the result.
        location: Option<String>,
    },
    /// What the agent needs to know of its node.
    Lookup,
    /// The same for an agent from before tokens.
    LegacyLookup,
    /// Whose inspection data it was.
    Inspected,
    /// What the BMC or the agent said.
    CommandReply,
    /// The drives that a BMC listed.
    Media,
    /// What each interface lacks; a deployment may lack more.
    Validated(JsonObject),
}

/// What the box says of itself.
#[derive(Clone, Debug, Default)]
pub struct ApiFacts {
    /// Name of the box: Ironic's `conductor`.
    pub hostname: String,
    /// Enabled hardware types.
    pub drivers: Vec<String>,
    /// Base of links, such as `https://box.example`; none: from the request.
    pub public_endpoint: Option<String>,
    /// The inspector's API is on, at an address of its own.
    pub inspector: bool,
    /// Agents may be called back over plain HTTP.
    pub agent_http_allowed: bool,
    /// The box has no kernel and ramdisk of the agent.
    pub agent_missing: bool,
    /// Images of the box itself: they need no digest from the operator.
    pub images: Vec<LocalImage>,
    /// When the box started.
    pub started_at: UnixMs,
}

/// Answers a request from the snapshot, or says what has to be carried out.
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
        .and_then(|call| route::route(&call));
    match outcome {
        Ok(ApiOutcome::Reply(response)) => {
            ApiOutcome::Reply(with_version_headers(request, Some(version), response))
        }
        Ok(order) => order,
        Err(fault) => ApiOutcome::Reply(with_version_headers(request, Some(version), fault.into())),
    }
}

/// The answer to a request whose order was carried out or refused. `view` is
/// the snapshot after the commit.
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

/// The answer to a request that the shell refuses before it is handled.
pub fn refuse(request: &Request<'_>, status: u16, sentence: &str) -> Response {
    let version = version::negotiate(request).ok();
    with_version_headers(
        request,
        version,
        ApiFault::of_shell(status, sentence).into(),
    )
}

/// The answer to a request that was handled so often. One that was right at first and
/// is wrong on a newer snapshot met somebody faster: a conflict and no mistake.
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
        (ResponsePlan::LegacyLookup, OrderOutcome::Found(found)) => {
            Ok(passthru::found(call, &found))
        }
        (ResponsePlan::CommandReply, OrderOutcome::Reply(said)) => Ok(Response::json(200, &said)),
        (ResponsePlan::Media, OrderOutcome::Reply(said)) => {
            Ok(Response::json(200, &nodes::ironic_media(&said)))
        }
        (ResponsePlan::Validated(results), OrderOutcome::Checked(lacks)) => {
            Ok(nodes::validated(results.clone(), lacks))
        }
        (
            ResponsePlan::Lookup
            | ResponsePlan::LegacyLookup
            | ResponsePlan::Inspected
            | ResponsePlan::CommandReply
            | ResponsePlan::Media
            | ResponsePlan::Validated(_),
            _,
        ) => Err(ApiFault::server(
            "the order was carried out but brought no answer; this is a fault of the box",
        )),
    }
}

fn refused(call: &ApiCall<'_>, then: &ResponsePlan, refusal: OrderRefusal) -> ApiFault {
    let OrderRefusal { kind, sentence } = refusal;
    // One sentence for "unknown" and "not now", so that strangers cannot probe
    // which nodes exist.
    let stranger = matches!(
        then,
        ResponsePlan::Lookup | ResponsePlan::LegacyLookup | ResponsePlan::Inspected
    );
    if kind == RefusalKind::NotFound && stranger {
        return ApiFault::not_found("Resource could not be found.");
    }
    match kind {
        RefusalKind::Invalid => ApiFault::bad(sentence),
        RefusalKind::NotFound => ApiFault::not_found(sentence),
        RefusalKind::Conflict | RefusalKind::Stale => ApiFault::conflict(sentence),
        RefusalKind::Forbidden => ApiFault::forbidden(sentence),
        // Where Ironic has no path its 500 need not be kept: the box itself is fine.
        RefusalKind::Failed if call.word(0) == "trivet" => ApiFault::of_shell(502, &sentence),
        RefusalKind::Failed => ApiFault::server(sentence),
        RefusalKind::Unavailable => ApiFault::unavailable(sentence),
    }
}

/// Adds what every answer carries.
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
    headers.push(("x-openstack-request-id", request.request_id.to_owned()));
    response
}

#[cfg(test)]
mod tests;
