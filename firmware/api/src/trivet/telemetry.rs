//! Metrics, health and events. The rows are here for access and the API description; the daemon
//! has the values and answers [`TelemetryRequest`] itself, because events are a stream.

use trivet_model::EventTopic;

use crate::table::access::Access;
use crate::table::call::ApiCall;
use crate::table::error::ApiFault;
use crate::table::field::ValueShape;
use crate::table::percent;
use crate::table::query::Query;
use crate::table::route::{ApiArg, ApiRoute, ResponseSchema, arg};
use crate::{ApiOutcome, Request, Response};

/// A request that the daemon answers.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum TelemetryRequest {
    /// All metrics.
    Metrics,
    /// Whether the box works.
    Health,
    /// A stream of events.
    Events(EventQuery),
}

/// Which events a client wants.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct EventQuery {
    /// The last event that it has; the header `Last-Event-ID` counts before it.
    pub after: Option<String>,
    /// It wants the events that are kept, and not only new ones.
    pub with_kept: bool,
    /// It waits for new events; otherwise the response ends.
    pub follows: bool,
    /// Only events with these subjects; all where none is named.
    pub topics: Vec<EventTopic>,
    /// Only events of this node, by UUID or name.
    pub node: Option<String>,
}

const EVENT_QUERY_ARGS: &[ApiArg] = &[
    arg("after", 1, ValueShape::Text),
    arg("kept", 1, ValueShape::Flag),
    arg("follow", 1, ValueShape::Flag),
    arg("topics", 1, ValueShape::Text),
    arg("node", 1, ValueShape::Text),
];

pub(crate) const ROUTES: &[ApiRoute] = &[
    ApiRoute::get(
        &["metrics"],
        1,
        "Metrics in the text format of Prometheus",
        by_daemon,
    )
    .response(ResponseSchema::Media("text/plain")),
    ApiRoute::get(
        &["healthz"],
        1,
        "Whether Trivet works: 200, or 503 with a reason",
        by_daemon,
    )
    .for_(Access::Public)
    .response(ResponseSchema::Media("text/plain")),
    ApiRoute::get(
        &["trivet", "events"],
        1,
        "Server-sent events; Last-Event-ID or after resumes",
        by_daemon,
    )
    .query_args(&[EVENT_QUERY_ARGS])
    .response(ResponseSchema::Media("text/event-stream")),
];

fn by_daemon(_: &ApiCall<'_>) -> Result<ApiOutcome, ApiFault> {
    let sentence = "Metrics, health and events are answered by the listener of the box only.";
    Err(ApiFault::unavailable(sentence))
}

/// The request, if it is one that the daemon answers; or the response to a wrong one.
pub fn telemetry_request(request: &Request<'_>) -> Option<Result<TelemetryRequest, Response>> {
    let segments = percent::segments(request.path).ok()?;
    let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
    let reads = matches!(request.method, "GET" | "HEAD");
    match segments.as_slice() {
        ["metrics"] if reads => Some(Ok(TelemetryRequest::Metrics)),
        ["healthz"] if reads => Some(Ok(TelemetryRequest::Health)),
        ["trivet", "events"] if request.method == "GET" => {
            let query = event_query(request.query);
            Some(query.map(TelemetryRequest::Events).map_err(Response::from))
        }
        _ => None,
    }
}

fn event_query(text: &str) -> Result<EventQuery, ApiFault> {
    let query = Query::parse(text)?;
    let mut names = query.names();
    if let Some(strange) = names.find(|name| EVENT_QUERY_ARGS.iter().all(|one| one.name != *name)) {
        let sentence = format!("Unexpected arguments: {}", strange.escape_debug());
        return Err(ApiFault::bad(sentence));
    }
    let named = query.all("topics").flat_map(|text| text.split(','));
    let topics = named.map(topic).collect::<Result<_, _>>()?;
    Ok(EventQuery {
        after: query.last("after").map(str::to_owned),
        with_kept: query.flag("kept")?.unwrap_or(false),
        follows: query.flag("follow")?.unwrap_or(true),
        topics,
        node: query.last("node").map(str::to_owned),
    })
}

fn topic(text: &str) -> Result<EventTopic, ApiFault> {
    text.parse().map_err(|_| {
        let all: Vec<_> = EventTopic::ALL.iter().map(|one| one.as_str()).collect();
        ApiFault::bad(format!(
            "Invalid topic '{}': use some of {}.",
            text.escape_debug(),
            all.join(", ")
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requested_options(
        method: &str,
        path: &str,
        query: &str,
    ) -> Option<Result<TelemetryRequest, u16>> {
        let request = Request {
            method,
            path,
            query,
            host: "box",
            scheme: "http",
            version: None,
            openstack_version: None,
            body: &[],
            request_id: "req",
        };
        telemetry_request(&request).map(|found| found.map_err(|response| response.status))
    }

    #[test]
    fn metrics_and_health_are_read_only() {
        let metrics = || Some(Ok(TelemetryRequest::Metrics));
        assert_eq!(requested_options("GET", "/metrics", ""), metrics());
        assert_eq!(requested_options("HEAD", "/metrics", "x=1"), metrics());
        assert_eq!(requested_options("POST", "/metrics", ""), None);
        let health = Some(Ok(TelemetryRequest::Health));
        assert_eq!(requested_options("GET", "/healthz", ""), health);
        assert_eq!(requested_options("GET", "/v1/healthz", ""), None);
        assert_eq!(requested_options("HEAD", "/trivet/events", ""), None);
    }

    #[test]
    fn a_client_selects_events() {
        let all = EventQuery {
            after: None,
            with_kept: false,
            follows: true,
            topics: Vec::new(),
            node: None,
        };
        let of = |query| requested_options("GET", "/trivet/events", query);
        assert_eq!(of(""), Some(Ok(TelemetryRequest::Events(all.clone()))));
        let some = EventQuery {
            after: Some("a-1".to_owned()),
            with_kept: true,
            follows: false,
            topics: vec![EventTopic::Fault, EventTopic::State],
            node: Some("n1".to_owned()),
        };
        let query = "after=a-1&kept=true&follow=no&topics=fault,state&node=n1";
        assert_eq!(of(query), Some(Ok(TelemetryRequest::Events(some))));
        for wrong in ["topics=faults", "kept=maybe", "since=1", "topics="] {
            assert_eq!(of(wrong), Some(Err(400)), "{wrong}");
        }
    }

    #[test]
    fn only_health_needs_no_credentials() {
        assert_eq!(crate::access("GET", "/healthz"), Access::Public);
        assert_eq!(crate::access("GET", "/metrics"), Access::Reader);
        assert_eq!(crate::access("GET", "/trivet/events"), Access::Reader);
    }
}
