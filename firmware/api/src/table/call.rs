//! One request with its context: the decoded path and query, its version, the snapshot, and the
//! base of links.

use std::sync::Arc;

use serde::ser::{Serialize, SerializeMap as _, SerializeSeq as _, Serializer};
use serde_json::{Value, json};
use trivet_model::view::NodeView;
use trivet_model::{NodeId, RackOrder, RackView, UnixMs};
use uuid::Uuid;

use crate::table::error::ApiFault;
use crate::table::path_forms;
use crate::table::query::Query;
use crate::{ApiFacts, ApiOutcome, Request, Response, ResponsePlan, Version};

/// A request in progress.
pub(crate) struct ApiCall<'a> {
    pub(crate) method: &'a str,
    pub(crate) segments: Vec<String>,
    pub(crate) query: Query,
    pub(crate) body: &'a [u8],
    pub(crate) version: Version,
    pub(crate) view: &'a RackView,
    pub(crate) facts: &'a ApiFacts,
    pub(crate) now: UnixMs,
    /// The beginning of links, such as `http://box:6385`.
    pub(crate) base: String,
    new_uuid: Uuid,
}

impl<'a> ApiCall<'a> {
    pub(crate) fn new(
        request: &Request<'a>,
        version: Version,
        view: &'a RackView,
        facts: &'a ApiFacts,
        now: UnixMs,
        fresh: Uuid,
    ) -> Result<Self, ApiFault> {
        let mut segments = path_forms::segments(request.path)?;
        let mut query = Query::parse(request.query)?;
        // Ironic reads this one header here, and takes the suffix for a name without it.
        if request.version.is_some() {
            path_forms::drop_suffix(&mut segments, version.0, view);
        }
        path_forms::take_node(&mut segments, &mut query);
        Ok(Self {
            method: request.method,
            segments,
            query,
            body: request.body,
            version,
            view,
            facts,
            now,
            base: base(request, facts),
            new_uuid: fresh,
        })
    }

    /// Whether the request's version has what `1.<since>` introduced.
    pub(crate) fn has(&self, since: u16) -> bool {
        self.version >= Version(since)
    }

    /// The UUID of the record that this call creates.
    pub(crate) fn new_id(&self) -> Uuid {
        self.new_uuid
    }

    /// The segment of the path at this index.
    pub(crate) fn word(&self, at: usize) -> &str {
        self.segments.get(at).map_or("", String::as_str)
    }

    /// The last segment of the path.
    pub(crate) fn last(&self) -> &str {
        self.segments.last().map_or("", String::as_str)
    }

    /// The node in the path: `/v1/nodes/<ident>`.
    pub(crate) fn this(&self) -> Result<&'a Arc<NodeView>, ApiFault> {
        self.node(self.word(2))
    }

    /// The node with this UUID or name. Ironic's versions before 1.5 have no names.
    pub(crate) fn node(&self, ident: &str) -> Result<&'a Arc<NodeView>, ApiFault> {
        let ironic = self.word(0) == "v1";
        let named = !ironic || self.has(5) || ident.parse::<NodeId>().is_ok();
        let found = named.then(|| self.view.node(ident)).flatten();
        found.ok_or_else(|| ApiFault::no_node(ident))
    }

    /// The pair of links that every record has.
    pub(crate) fn links(&self, path: &str) -> Value {
        json!(self.record_links(path))
    }

    /// The same, built during serialization.
    pub(crate) fn record_links<'p>(&'p self, path: &'p str) -> RecordLinks<'p> {
        let base = self.base.as_str();
        RecordLinks { base, path }
    }

    /// The URL of a record.
    pub(crate) fn location(&self, path: &str) -> String {
        format!("{}/v1/{path}", self.base)
    }
}

/// The pair of links of a record.
pub(crate) struct RecordLinks<'p> {
    base: &'p str,
    path: &'p str,
}

struct RecordLink<'p> {
    to: core::fmt::Arguments<'p>,
    rel: &'static str,
}

impl Serialize for RecordLinks<'_> {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        let Self { base, path } = self;
        let mut list = out.serialize_seq(Some(2))?;
        list.serialize_element(&RecordLink {
            to: format_args!("{base}/v1/{path}"),
            rel: "self",
        })?;
        list.serialize_element(&RecordLink {
            to: format_args!("{base}/{path}"),
            rel: "bookmark",
        })?;
        list.end()
    }
}

impl Serialize for RecordLink<'_> {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        let mut map = out.serialize_map(Some(2))?;
        map.serialize_entry("href", &self.to)?;
        map.serialize_entry("rel", self.rel)?;
        map.end()
    }
}

/// Links use the request's `Host`, because clients behind port forwards follow them; an invalid
/// `Host` is not repeated.
fn base(request: &Request<'_>, facts: &ApiFacts) -> String {
    if let Some(endpoint) = &facts.public_endpoint {
        return endpoint.trim_end_matches('/').to_owned();
    }
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte);
    let host = if !request.host.is_empty() && request.host.bytes().all(plain) {
        request.host
    } else {
        facts.hostname.as_str()
    };
    let scheme = if request.scheme == "https" {
        "https"
    } else {
        "http"
    };
    format!("{scheme}://{host}")
}

/// An order and the plan of its response.
#[expect(clippy::unnecessary_wraps, reason = "the last word of every handler")]
pub(crate) fn order(order: RackOrder, then: ResponsePlan) -> Result<ApiOutcome, ApiFault> {
    Ok(ApiOutcome::Order { order, then })
}

/// A response without a body, after the order.
pub(crate) fn empty(status: u16, location: Option<String>) -> ResponsePlan {
    ResponsePlan::Empty { status, location }
}

/// A response without an order.
#[expect(clippy::unnecessary_wraps, reason = "the last word of every handler")]
pub(crate) fn reply(value: &impl Serialize) -> Result<ApiOutcome, ApiFault> {
    Ok(ApiOutcome::Reply(Response::json(200, value)))
}

impl Response {
    pub(crate) fn json(status: u16, value: &impl Serialize) -> Self {
        Self {
            status,
            headers: vec![("Content-Type", "application/json".to_owned())],
            body: serde_json::to_vec(value).expect("keys are texts and nothing else can fail"),
        }
    }

    /// Without a content type: clients would try to parse the empty body.
    pub(crate) fn empty(status: u16) -> Self {
        Self {
            status,
            headers: Vec::new(),
            body: Vec::new(),
        }
    }

    pub(crate) fn with_location(mut self, location: Option<String>) -> Self {
        if let Some(location) = location {
            self.headers.push(("Location", location));
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{ApiBench, get};

    #[test]
    fn links_follow_the_host_of_the_request() {
        let mut request = get("/v1");
        (request.host, request.scheme) = ("[::1]:16385", "https");
        let body = ApiBench::new().reply(&request).value();
        assert_eq!(body["nodes"][0]["href"], "https://[::1]:16385/v1/nodes/");
    }

    #[test]
    fn a_host_that_is_no_host_is_not_repeated() {
        let mut request = get("/v1");
        request.host = "evil/\r\nSet-Cookie: x";
        let body = ApiBench::new().reply(&request).value();
        assert_eq!(body["nodes"][0]["href"], "http://box/v1/nodes/");
    }

    #[test]
    fn a_public_endpoint_wins() {
        let mut bench = ApiBench::new();
        bench.facts.public_endpoint = Some("https://rack.example/".into());
        let body = bench.reply(&get("/v1")).value();
        assert_eq!(body["nodes"][0]["href"], "https://rack.example/v1/nodes/");
    }
}
