//! The inspector's address: agents of older set-ups send their data here.

use std::sync::Arc;

use hyper::body::Incoming;
use hyper::{Method, Request, Response, StatusCode};
use serde_json::{Value, json};
use trivet_model::{Caller, Done, Order, RefusalKind};

use super::http::{self, Answer, Body, Handler};
use crate::engine::Engine;

/// Longest inspection document.
const DOCUMENT_BYTES_MAX: usize = 8 * 1024 * 1024;

/// The handler for the inspector's address.
pub(crate) fn handler(engine: Engine) -> Handler {
    Arc::new(move |peer, _secure, request| -> Answer {
        let engine = engine.clone();
        let caller = Arc::new(Caller::agent(peer.ip()));
        Box::pin(async move { answer(&engine, caller, request).await })
    })
}

async fn answer(
    engine: &Engine,
    caller: Arc<Caller>,
    request: Request<Incoming>,
) -> Response<Body> {
    match (request.method(), request.uri().path()) {
        (&Method::GET, "/" | "/v1" | "/v1/") => {
            let version = json!({"id": "1.18", "status": "CURRENT", "links": []});
            said(StatusCode::OK, &json!({"versions": [version]}))
        }
        (&Method::POST, "/v1/continue") => take(engine, caller, request).await,
        _ => failed(
            StatusCode::NOT_FOUND,
            "this address takes POST /v1/continue and no more yet",
        ),
    }
}

async fn take(engine: &Engine, caller: Arc<Caller>, request: Request<Incoming>) -> Response<Body> {
    let body = match http::read(request.into_body(), DOCUMENT_BYTES_MAX).await {
        Ok(body) => body,
        Err(error) => {
            let (status, sentence) = error.answer(DOCUMENT_BYTES_MAX);
            return failed(status, &sentence);
        }
    };
    let Ok(document) = serde_json::from_slice(&body) else {
        return failed(StatusCode::BAD_REQUEST, "the body is not JSON");
    };
    match engine.order(caller, Order::Inventory { document }).await {
        Ok(Done::Inspected(node)) => said(StatusCode::OK, &json!({"uuid": node.to_string()})),
        Ok(_) => failed(StatusCode::INTERNAL_SERVER_ERROR, "the box lost its thread"),
        Err(refusal) => {
            let status = match refusal.kind {
                RefusalKind::NotFound => StatusCode::NOT_FOUND,
                RefusalKind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
                _ => StatusCode::BAD_REQUEST,
            };
            failed(status, &refusal.sentence)
        }
    }
}

fn failed(status: StatusCode, sentence: &str) -> Response<Body> {
    said(status, &json!({"error": {"message": sentence}}))
}

fn said(status: StatusCode, body: &Value) -> Response<Body> {
    let mut response = Response::new(http::full(body.to_string()));
    *response.status_mut() = status;
    let json = hyper::header::HeaderValue::from_static("application/json");
    response
        .headers_mut()
        .insert(hyper::header::CONTENT_TYPE, json);
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testbed::{self, Scratch, ask};
    use tokio::net::TcpListener;

    #[tokio::test]
    async fn data_of_strangers_and_nonsense_are_refused_in_json() {
        let scratch = Scratch::new();
        let (engine, _why) = testbed::engine(testbed::settings(&scratch.0), &scratch.0);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut doors = tokio::task::JoinSet::new();
        let places = http::Places::new(64);
        let waits = http::Waits::default();
        let handler = handler(engine.clone());
        http::serve(&mut doors, vec![listener], None, (&places, waits), &handler);
        let stranger = json!({"inventory": {"interfaces": [
            {"name": "eth0", "mac_address": "52:54:00:00:00:01"}]}});
        for (line, body, status) in [
            ("GET /", "", "200"),
            ("POST /v1/continue", "{", "400"),
            ("POST /v1/continue", &stranger.to_string(), "404"),
            ("GET /v1/continue", "", "404"),
        ] {
            let (head, body) = ask(address, line, "", body).await;
            assert!(
                head.starts_with(&format!("http/1.1 {status}")),
                "{line}: {head} {body}"
            );
            let _: Value = serde_json::from_str(&body).unwrap();
        }
        engine.stop().await;
        let (head, _) = ask(address, "POST /v1/continue", "", &stranger.to_string()).await;
        assert!(head.starts_with("http/1.1 503"), "{head}");
    }
}
