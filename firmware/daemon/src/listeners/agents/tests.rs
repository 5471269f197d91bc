//! Tests of calls to agents on loopback, plain and pinned.

use super::*;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use trivet_certs_authority::Authority;
use trivet_net_tls::server_config;

const SECRET: &str = "a-token-that-nobody-else-may-see";

fn request(timeout_ms: u64) -> AgentHttpRequest {
    AgentHttpRequest {
        method: trivet_rack::AgentHttpMethod::Post,
        path_and_query: format!("/v1/commands/?agent_token={SECRET}"),
        body: Some(b"{}".to_vec()),
        timeout_ms,
    }
}

/// An agent that sends one response; the request that it received is returned.
async fn agent(answer: &'static str, tls: Option<TlsAcceptor>) -> (SocketAddr, AgentTask) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let task = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        match tls {
            None => answer_once(stream, answer).await,
            Some(acceptor) => match acceptor.accept(stream).await {
                Ok(stream) => answer_once(stream, answer).await,
                Err(_) => String::new(),
            },
        }
    });
    (address, task)
}

type AgentTask = tokio::task::JoinHandle<String>;

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

const FINE: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";

#[tokio::test]
async fn a_plain_call_carries_path_and_body() {
    let (address, agent) = agent(FINE, None).await;
    let answer = call(&format!("http://{address}"), None, None, &request(5000)).await;
    assert_eq!(answer, Ok((200, b"{}".to_vec())));
    let seen = agent.await.unwrap();
    let line = format!("POST /v1/commands/?agent_token={SECRET} HTTP/1.1\r\n");
    assert!(seen.starts_with(&line), "{seen}");
    assert!(seen.contains(&format!("host: {address}\r\n")), "{seen}");
}

#[tokio::test]
async fn a_redirect_is_an_answer_and_is_not_followed() {
    let moved = "HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n";
    let (address, _agent) = agent(moved, None).await;
    let answer = call(&format!("http://{address}"), None, None, &request(5000)).await;
    assert_eq!(answer, Ok((302, Vec::new())));
}

/// A self-signed certificate and a TLS acceptor with it.
fn certified() -> (String, TlsAcceptor) {
    let now_s = crate::clock::DaemonClock::start().now().wall.0 / 1000;
    let authority = Authority::create(now_s, "agent").unwrap();
    let ip = IpAddr::from([127, 0, 0, 1]);
    let (chain, key) = authority.server_certificate(&[], &[ip], now_s).unwrap();
    let end = "-----END CERTIFICATE-----\n";
    let leaf = chain[..chain.find(end).unwrap() + end.len()].to_owned();
    let config = server_config(&chain, &key).unwrap();
    (leaf, TlsAcceptor::from(Arc::new(config)))
}

#[tokio::test]
async fn an_agent_with_the_certificate_it_sent_is_called() {
    let (pin, acceptor) = certified();
    let (address, agent) = agent(FINE, Some(acceptor)).await;
    let answer = call(
        &format!("https://{address}"),
        Some(&pin),
        None,
        &request(5000),
    )
    .await;
    assert_eq!(answer, Ok((200, b"{}".to_vec())));
    assert!(agent.await.unwrap().contains(SECRET));
}

#[tokio::test]
async fn an_agent_with_another_certificate_or_none_receives_no_token() {
    let (other, _) = certified();
    for pin in [Some(other.as_str()), None, Some("no certificate")] {
        let (_, acceptor) = certified();
        let (address, agent) = agent(FINE, Some(acceptor)).await;
        let answer = call(&format!("https://{address}"), pin, None, &request(5000)).await;
        let reply = answer.unwrap_err();
        assert!(!reply.contains(SECRET), "{reply}");
        if pin == Some(other.as_str()) {
            assert_eq!(agent.await.unwrap(), "");
        }
    }
}

#[tokio::test]
async fn an_agent_that_is_silent_gone_or_endless_is_an_error_without_the_token() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let reply = call(&url, None, None, &request(50)).await.unwrap_err();
    assert_eq!(reply, "no answer within 50 ms");
    drop(silent);
    let gone = call(&url, None, None, &request(5000)).await.unwrap_err();
    let endless = "HTTP/1.1 200 OK\r\ncontent-length: 99999999\r\n\r\n";
    let (address, _agent) = agent(endless, None).await;
    let long = call(&format!("http://{address}"), None, None, &request(5000)).await;
    for reply in [gone, long.unwrap_err()] {
        assert!(!reply.contains(SECRET), "{reply}");
    }
}

#[test]
fn only_ip_addresses_are_endpoints() {
    let place = |address: &str, secure| {
        let address = address.parse().unwrap();
        Ok(AgentEndpoint { address, secure })
    };
    assert_eq!(
        AgentEndpoint::of("http://192.0.2.9:9999"),
        place("192.0.2.9:9999", false)
    );
    assert_eq!(
        AgentEndpoint::of("https://192.0.2.9/"),
        place("192.0.2.9:443", true)
    );
    assert_eq!(
        AgentEndpoint::of("https://[2001:db8::9]:9999"),
        place("[2001:db8::9]:9999", true)
    );
    for url in [
        "",
        "http://",
        "http://localhost:9999",
        "http://internal.example",
        "ftp://192.0.2.9",
        "192.0.2.9:9999",
        "http://192.0.2.9:99999",
        "http://0x7f000001/",
        "http://user@192.0.2.9:9999",
    ] {
        assert!(AgentEndpoint::of(url).is_err(), "{url}");
    }
}

#[test]
fn the_box_is_not_sent_to_loopback_link_local_or_its_own_addresses() {
    for url in ["http://192.0.2.9:9999", "https://[2001:db8::9]:9999"] {
        assert_eq!(check_callback(url, false), Ok(()), "{url}");
    }
    let local = [
        "http://127.0.0.1:6385",
        "http://127.77.1.1:9999",
        "http://[::1]:6385",
        "http://[::ffff:127.0.0.1]:6385",
        "http://169.254.169.254",
        "http://[fe80::1]:80",
    ];
    for url in local {
        assert!(check_callback(url, false).is_err(), "{url}");
        // The agents of tests and of the demo are there.
        assert_eq!(check_callback(url, true), Ok(()), "{url}");
    }
    for url in [
        "http://0.0.0.0:6385",
        "http://255.255.255.255",
        "http://224.0.0.1",
        "http://box.example:6385",
    ] {
        for any in [false, true] {
            assert!(check_callback(url, any).is_err(), "{url}");
        }
    }
}

#[test]
fn the_boxs_own_addresses_are_those_that_can_be_bound() {
    assert!(is_own(IpAddr::from([127, 0, 0, 1])));
    assert!(is_own(IpAddr::from([127, 99, 1, 2])));
    // For documentation only (RFC 5737): no interface has it.
    assert!(!is_own(IpAddr::from([192, 0, 2, 9])));
}
