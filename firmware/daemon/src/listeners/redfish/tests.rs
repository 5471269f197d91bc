//! Tests of requests to BMCs on loopback, plain and over TLS.

use std::net::SocketAddr;

use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use trivet_bmc_redfish::RedfishTarget;
use trivet_certs_authority::Authority;
use trivet_net_tls::server_config;
use trivet_rack::bmc::http::{BmcHttpCredentials, BmcHttpMethod};

use super::*;
use crate::testbed::TestbedDirectory;

const PASSWORD: &str = "hunter2";
const FINE: &str = "HTTP/1.1 201 Created\r\nX-Auth-Token: t0ken\r\nLocation: /s/1\r\n\
                    ETag: \"7\"\r\nRetry-After: 9\r\nContent-Length: 2\r\n\r\n{}";

/// A BMC that sends one response; the request that it received is returned.
async fn bmc(
    answer: impl Into<String>,
    tls: Option<TlsAcceptor>,
) -> (SocketAddr, JoinHandle<String>) {
    let answer = answer.into();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let task = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        match tls {
            None => answer_once(stream, &answer).await,
            Some(acceptor) => match acceptor.accept(stream).await {
                Ok(stream) => answer_once(stream, &answer).await,
                Err(_) => String::new(),
            },
        }
    });
    (address, task)
}

async fn answer_once(mut stream: impl AsyncRead + AsyncWrite + Unpin, answer: &str) -> String {
    let mut seen = Vec::new();
    while !seen.ends_with(b"\r\n\r\n{}") {
        let mut byte = [0];
        if stream.read(&mut byte).await.unwrap_or(0) == 0 {
            break;
        }
        seen.push(byte[0]);
    }
    let _ = stream.write_all(answer.as_bytes()).await;
    let _ = stream.shutdown().await;
    String::from_utf8(seen).unwrap()
}

fn target(scheme: &str, address: SocketAddr, more: Value) -> BmcHttpTarget {
    let mut info = json!({"redfish_address": format!("{scheme}://{address}")});
    for (key, value) in more.as_object().unwrap() {
        info[key] = value.clone();
    }
    let target = RedfishTarget::of(info.as_object().unwrap()).unwrap();
    target.http_target()
}

fn request() -> BmcHttpRequest {
    BmcHttpRequest {
        method: BmcHttpMethod::Post,
        path: "/redfish/v1/x?a=b".to_owned(),
        credentials: Some(BmcHttpCredentials::Basic(SecretText::new(format!(
            "root:{PASSWORD}"
        )))),
        if_match: Some("\"6\"".to_owned()),
        body: Some(SecretText::new("{}")),
    }
}

async fn send(target: &BmcHttpTarget) -> Result<BmcHttpResponse, BmcHttpError> {
    RedfishHttpClient::new(None)
        .unwrap()
        .send(target, &request())
        .await
}

/// The certificate of a CA, and a listener with a certificate for 127.0.0.1 that it
/// signed.
fn signed() -> (String, TlsAcceptor) {
    let now_unix_s = 1_795_000_000;
    let authority = Authority::create(now_unix_s, "site").unwrap();
    let ip = "127.0.0.1".parse().unwrap();
    let (chain, key) = authority
        .server_certificate(&[], &[ip], now_unix_s)
        .unwrap();
    let config = server_config(&chain, &key).unwrap();
    let pem = authority.certificate_pem().to_owned();
    (pem, TlsAcceptor::from(Arc::new(config)))
}

#[tokio::test]
async fn a_request_carries_everything_and_so_does_its_answer() {
    let (address, seen) = bmc(FINE, None).await;
    let answer = send(&target("http", address, json!({}))).await.unwrap();
    assert_eq!((answer.status, answer.body), (201, b"{}".to_vec()));
    assert_eq!(answer.token, Some(SecretText::new("t0ken")));
    assert_eq!(answer.location.as_deref(), Some("/s/1"));
    assert_eq!(answer.etag.as_deref(), Some("\"7\""));
    assert_eq!(answer.retry_after_s, Some(9));
    let seen = seen.await.unwrap().to_lowercase();
    for part in [
        "post /redfish/v1/x?a=b http/1.1\r\n",
        &format!("host: {address}\r\n"),
        "authorization: basic cm9vddpodw50zxiy\r\n",
        "if-match: \"6\"\r\n",
        "odata-version: 4.0\r\n",
        "content-type: application/json\r\n",
    ] {
        assert!(seen.contains(part), "{part:?} in {seen}");
    }
}

#[tokio::test]
async fn a_bmc_with_an_untrusted_certificate_receives_nothing_and_its_fingerprint_is_reported() {
    for more in [json!({}), json!({"redfish_pin": "ab".repeat(32)})] {
        let (_, acceptor) = signed();
        let (address, seen) = bmc(FINE, Some(acceptor)).await;
        let error = send(&target("https", address, more)).await.unwrap_err();
        let BmcHttpError::Untrusted { fingerprint, .. } = error else {
            panic!("{error:?}");
        };
        let digits = fingerprint.unwrap();
        assert_eq!(digits.len(), 64);
        assert_eq!(seen.await.unwrap(), "");
    }
}

#[tokio::test]
async fn the_reported_fingerprint_is_the_one_to_pin() {
    let (_, acceptor) = signed();
    let (address, _) = bmc(FINE, Some(acceptor.clone())).await;
    let Err(BmcHttpError::Untrusted { fingerprint, .. }) =
        send(&target("https", address, json!({}))).await
    else {
        panic!("it was trusted");
    };
    let (address, seen) = bmc(FINE, Some(acceptor)).await;
    let pinned = json!({"redfish_pin": fingerprint.unwrap()});
    assert_eq!(
        send(&target("https", address, pinned))
            .await
            .unwrap()
            .status,
        201
    );
    assert!(seen.await.unwrap().contains("/redfish/v1/x"));
}

#[tokio::test]
async fn authorities_are_the_sites_or_the_nodes_own() {
    let scratch = TestbedDirectory::new();
    let (pem, acceptor) = signed();
    let file = scratch.file("ca.pem", pem.as_bytes());
    let path = file.to_str().unwrap();
    for more in [
        json!({"redfish_verify_ca": pem}),
        json!({"redfish_verify_ca": path}),
    ] {
        let (address, _) = bmc(FINE, Some(acceptor.clone())).await;
        assert_eq!(
            send(&target("https", address, more)).await.unwrap().status,
            201
        );
    }
    let (address, _) = bmc(FINE, Some(acceptor.clone())).await;
    let client = RedfishHttpClient::new(Some(&file)).unwrap();
    let answer = client
        .send(&target("https", address, json!({})), &request())
        .await;
    assert_eq!(answer.unwrap().status, 201);
    let (address, _) = bmc(FINE, Some(acceptor)).await;
    let anybody = json!({"redfish_verify_ca": false});
    assert_eq!(
        send(&target("https", address, anybody))
            .await
            .unwrap()
            .status,
        201
    );
    // A missing file is reported.
    let (address, _) = bmc(FINE, None).await;
    let gone = json!({"redfish_verify_ca": "/nowhere/ca.pem"});
    let error = send(&target("https", address, gone)).await.unwrap_err();
    assert!(
        format!("{error:?}").contains("/nowhere/ca.pem"),
        "{error:?}"
    );
    assert!(RedfishHttpClient::new(Some(Path::new("/nowhere/ca.pem"))).is_err());
    assert!(RedfishHttpClient::new(Some(&scratch.file("empty.pem", b"x"))).is_err());
}

#[tokio::test]
async fn a_plain_server_is_not_taken_for_a_secure_one() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let refusal = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n";
        let _ = stream.write_all(refusal).await;
        let _ = stream.read(&mut [0; 1024]).await;
    });
    let error = send(&target("https", address, json!({})))
        .await
        .unwrap_err();
    let BmcHttpError::Untrusted {
        fingerprint,
        message,
    } = error
    else {
        panic!("{error:?}");
    };
    assert!(fingerprint.is_none() && !message.is_empty());
}

#[tokio::test]
async fn a_request_that_was_not_sent_is_distinguished_from_one_that_may_have_been() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let error = send(&target("http", address, json!({}))).await.unwrap_err();
    assert!(
        matches!(error, BmcHttpError::Unreachable { .. }),
        "{error:?}"
    );
    for answer in [
        "",
        "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}",
        "nonsense\r\n\r\n",
    ] {
        let (address, _) = bmc(answer, None).await;
        let error = send(&target("http", address, json!({}))).await.unwrap_err();
        assert!(matches!(error, BmcHttpError::Lost { .. }), "{error:?}");
        assert!(!format!("{error:?}").contains(PASSWORD));
    }
}

#[tokio::test]
async fn a_body_without_end_is_not_read_to_it() {
    let body = "x".repeat(HTTP_BODY_BYTES_MAX + 1);
    let answer = format!("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{body}");
    let (address, _) = bmc(answer, None).await;
    let answer = send(&target("http", address, json!({}))).await;
    assert_eq!(answer, Err(BmcHttpError::TooLong));
}

#[tokio::test]
async fn a_request_to_a_silent_bmc_times_out() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let client = RedfishHttpClient {
        client: HttpClient::new(HttpTimeouts {
            connect: CONNECT_TIMEOUT,
            total: Duration::from_millis(500),
        }),
        ..RedfishHttpClient::new(None).unwrap()
    };
    let target = target("http", address, json!({}));
    let answer = client.send(&target, &request()).await;
    assert_eq!(answer, Err(BmcHttpError::Silent));
}
