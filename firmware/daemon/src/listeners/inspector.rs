//! The inspector's address: its API for clients, and the endpoint where older agents
//! send their data. The crate `firmware/api` decides the responses.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use hyper::body::Incoming;
use hyper::header::{RETRY_AFTER, WWW_AUTHENTICATE};
use hyper::{Request, Response};
use trivet_api::{Access, ApiOutcome, inspector};
use trivet_model::RefusalKind;

use super::api::{self, ApiService};
use super::browser;
use super::http::{self, HttpHandler, HttpResponseBody, HttpResponseFuture};
use crate::clock::DaemonEntropy;

/// The handler for the inspector's address. Unless `allow_remote` is set, clients on other
/// machines may only use the requests of agents.
pub(crate) fn handler(api: Arc<ApiService>, allow_remote: bool) -> HttpHandler {
    Arc::new(
        move |peer: SocketAddr, secure, request| -> HttpResponseFuture {
            let api = Arc::clone(&api);
            Box::pin(async move {
                let answer = answer(&api, peer.ip(), (allow_remote, secure), request).await;
                api::response(answer)
            })
        },
    )
}

async fn answer(
    api: &ApiService,
    peer: IpAddr,
    (allow_remote, secure): (bool, bool),
    request: Request<Incoming>,
) -> trivet_api::Response {
    let (head, body) = request.into_parts();
    let header = |name: &str| head.headers.get(name).and_then(|value| value.to_str().ok());
    let request_id = format!(
        "req-{}",
        trivet_model::NodeId::random(&mut DaemonEntropy::new())
    );
    let mut request = trivet_api::Request {
        method: head.method.as_str(),
        path: head.uri.path(),
        query: head.uri.query().unwrap_or_default(),
        host: header("host").unwrap_or("localhost"),
        scheme: if secure { "https" } else { "http" },
        version: header("x-openstack-ironic-inspector-api-version"),
        openstack_version: None,
        body: &[],
        request_id: &request_id,
    };
    if let Err(refused) = api.check_browser(&head.headers) {
        return inspector::refused(refused.status, &refused.message);
    }
    let access = inspector::access(request.method, request.path);
    if access > Access::Agent && !allow_remote && !peer.to_canonical().is_loopback() {
        let sentence = "From your address only data of agents is accepted: the API has no \
                        authentication. Set api.auth, or api.allow_open, in the settings.";
        return inspector::refused(403, sentence);
    }
    let caller = match api.caller(&request, access, &head.headers, peer).await {
        Ok((caller, _)) => Arc::new(caller),
        Err(denied) => return denial_response(&denied),
    };
    let body = match http::read(body, trivet_api::BODY_BYTES_MAX).await {
        Ok(body) => body,
        Err(error) => {
            let (status, sentence) = error.answer(trivet_api::BODY_BYTES_MAX);
            api.note_refused(&request, peer, &sentence);
            return inspector::refused(status.as_u16(), &sentence);
        }
    };
    if let Some(progress) = head.extensions.get::<http::RequestProgress>() {
        progress.serving(true);
    }
    if access > Access::Agent
        && let Err(refused) = browser::check_json(&head.headers, &body)
    {
        return inspector::refused(refused.status, &refused.message);
    }
    request.body = &body;
    let now = api.clock.now().wall;
    match inspector::handle(&request, &api.engine.view(), &api.facts, now) {
        ApiOutcome::Reply(response) => {
            if response.status >= 400 {
                api.note_refused(&request, peer, &message(&response));
            }
            response
        }
        ApiOutcome::Order { order, then } => {
            let result = api.engine.order(caller, order).await;
            if let Err(refusal) = &result
                && refusal.kind == RefusalKind::Unavailable
            {
                api.note_refused(&request, peer, &refusal.sentence);
            }
            inspector::finish(&then, result)
        }
        ApiOutcome::Logs { .. } => inspector::refused(404, "The inspector has no logs."),
    }
}

/// The message in a body of the inspector's errors.
fn message(response: &trivet_api::Response) -> String {
    let body: serde_json::Value = serde_json::from_slice(&response.body).unwrap_or_default();
    let message = body["error"]["message"].as_str();
    message.unwrap_or_default().to_owned()
}

/// The API's response to a refused caller, in the inspector's form.
fn denial_response(denied: &Response<HttpResponseBody>) -> trivet_api::Response {
    let status = denied.status().as_u16();
    let sentence = match status {
        401 => "Authorization required, or the credentials are wrong.",
        403 => "Your role may not do this; ask an admin of this box.",
        _ => "Too many wrong credentials; try again later.",
    };
    let mut answer = inspector::refused(status, sentence);
    for (name, shown) in [
        (WWW_AUTHENTICATE, "WWW-Authenticate"),
        (RETRY_AFTER, "Retry-After"),
    ] {
        for value in denied.headers().get_all(name) {
            let value = value.to_str().unwrap_or_default();
            answer.headers.push((shown, value.to_owned()));
        }
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::Authenticator;
    use crate::clock::DaemonClock;
    use crate::testbed::{self, TestbedDirectory, caller, http_request, node};
    use serde_json::{Value, json};
    use tokio::net::TcpListener;
    use trivet_model::{ProvisionState, RackOrder};

    async fn served(
        auth: Authenticator,
        allow_remote: bool,
    ) -> (Arc<ApiService>, SocketAddr, TestbedDirectory) {
        let scratch = TestbedDirectory::new();
        let settings = testbed::settings(&scratch.0);
        let (engine, cache) = testbed::engine_with_cache(settings, &scratch.0, |_| {});
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let clock = DaemonClock::start();
        let api = Arc::new(ApiService {
            cache,
            any_agent_address: true,
            hosts: browser::HostNames::default(),
            authority: None,
            refusals: crate::listeners::api::RefusalLog::new(clock.now().tick),
            observed: crate::listeners::api::ApiTelemetry::new(false),
            logs: crate::agent_logs::AgentLogStore::at(scratch.0.join("logs")),
            engine,
            facts: trivet_api::ApiFacts::default(),
            auth,
            clock,
        });
        let handler = handler(Arc::clone(&api), allow_remote);
        let mut tasks = tokio::task::JoinSet::new();
        let places = http::ConnectionLimit::new(64);
        let waits = http::ClientTimeouts::default();
        http::serve(&mut tasks, vec![listener], None, (&places, waits), &handler);
        tasks.detach_all();
        (api, address, scratch)
    }

    #[track_caller]
    fn check((head, body): &(String, String), status: &str) -> Value {
        assert!(
            head.starts_with(&format!("http/1.1 {status}")),
            "{head} {body}"
        );
        assert!(
            head.contains("inspector-api-maximum-version: 1.18"),
            "{head}"
        );
        serde_json::from_str(body).unwrap()
    }

    #[tokio::test]
    async fn data_of_unknown_machines_and_nonsense_are_refused_in_json() {
        let (api, address, _scratch) = served(Authenticator::Open, true).await;
        let unknown = json!({"inventory": {"interfaces": [
            {"name": "eth0", "mac_address": "52:54:00:00:00:01"}]}});
        for (line, body, status) in [
            ("GET /", "", "200"),
            ("POST /v1/continue", "{", "400"),
            ("POST /v1/continue", &unknown.to_string(), "404"),
            ("GET /v1/continue", "", "405"),
        ] {
            check(&http_request(address, line, "", body).await, status);
        }
        api.engine.stop().await;
        let late = http_request(address, "POST /v1/continue", "", &unknown.to_string()).await;
        check(&late, "503");
    }

    #[tokio::test]
    async fn an_introspection_starts_and_is_seen() {
        let (api, address, _scratch) = served(Authenticator::Open, true).await;
        let mut node = node();
        node.provision_state = ProvisionState::Manageable;
        node.driver_info
            .insert("ipmi_address".to_owned(), json!("192.0.2.9"));
        let id = node.id;
        let order = RackOrder::CreateNode(Box::new(node));
        api.engine.order(caller(), order).await.unwrap();
        let path = format!("/v1/introspection/{id}");
        check(
            &http_request(address, &format!("GET {path}"), "", "").await,
            "404",
        );
        check(
            &http_request(address, &format!("POST {path}"), "", "").await,
            "202",
        );
        let status = check(
            &http_request(address, &format!("GET {path}"), "", "").await,
            "200",
        );
        assert_eq!(status["finished"], false);
        let list = check(
            &http_request(address, "GET /v1/introspection", "", "").await,
            "200",
        );
        assert_eq!(list["introspection"][0]["uuid"], id.to_string());
        let again = http_request(address, &format!("POST {path}"), "", "").await;
        let message = check(&again, "400")["error"]["message"].clone();
        assert!(
            message.as_str().unwrap().contains("inspecting"),
            "{message}"
        );
    }

    #[tokio::test]
    async fn operators_prove_themselves_and_agents_need_not() {
        let scratch = TestbedDirectory::new();
        let users = scratch.file("users", b"");
        let authenticator = Authenticator::from_files(Some(&users), None, DaemonClock::start());
        let (_api, address, _other) = served(authenticator, true).await;
        check(
            &http_request(address, "GET /v1/introspection", "", "").await,
            "401",
        );
        check(
            &http_request(address, "POST /v1/introspection/x/abort", "", "").await,
            "401",
        );
        check(&http_request(address, "GET /v1", "", "").await, "200");
        check(
            &http_request(address, "POST /v1/continue", "", "{}").await,
            "400",
        );
    }
}
