//! Requests to servers on loopback that this file starts.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::Request;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use trivet_certs_authority::{Authority, CLOCK_FLOOR_UNIX_S};
use trivet_net_tls::{server_config, trusting_client_config};

use crate::{HttpClient, HttpError, HttpServer, HttpTimeouts};

/// Long enough for a busy machine.
const LONG: Duration = Duration::from_mins(2);
const SHORT: Duration = Duration::from_millis(50);

const HELLO: &str = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello";

fn client() -> HttpClient {
    HttpClient::new(HttpTimeouts {
        connect: LONG,
        total: LONG,
    })
}

fn request(path: &str) -> Request<Full<Bytes>> {
    let request = Request::builder().uri(path).header("host", "box");
    request.body(Full::new(Bytes::new())).unwrap()
}

/// The head of the request and the address of the client.
type Received = JoinHandle<(String, SocketAddr)>;

/// A server that answers one request with these bytes and then waits for the client to close.
async fn server(answer: &'static str) -> (SocketAddr, Received) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let task = tokio::spawn(async move {
        let (mut stream, client) = listener.accept().await.unwrap();
        let head = read_head(&mut stream).await;
        stream.write_all(answer.as_bytes()).await.unwrap();
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest).await;
        (head, client)
    });
    (address, task)
}

async fn read_head(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap()
}

fn plain(address: SocketAddr) -> HttpServer {
    HttpServer::plain(&address.ip().to_string(), address.port())
}

#[tokio::test]
async fn a_response_comes_whole_and_the_connection_is_closed_after_it() {
    let (address, received) = server(HELLO).await;
    let request = request("/a?b");
    let response = client().exchange(&plain(address), request, 5).await;
    let response = response.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(response.body(), "hello");
    let (head, _) = received.await.unwrap();
    assert!(
        head.starts_with("GET /a?b HTTP/1.1\r\nhost: box\r\n"),
        "{head}"
    );
}

#[tokio::test]
async fn a_body_over_the_limit_is_an_error() {
    let (address, received) = server(HELLO).await;
    let error = client().exchange(&plain(address), request("/"), 4).await;
    assert!(matches!(error, Err(HttpError::TooLong { bytes_max: 4 })));
    received.await.unwrap();
}

#[tokio::test]
async fn a_body_is_read_piece_by_piece_and_dropping_it_closes_the_connection() {
    let endless = "HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\nhello";
    let (address, received) = server(endless).await;
    let response = client().send(&plain(address), request("/")).await.unwrap();
    let mut body = response.into_body();
    assert_eq!(body.next().await.unwrap().unwrap(), "hello");
    drop(body);
    received.await.unwrap();
}

#[tokio::test]
async fn a_body_that_is_cut_short_is_an_error() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        read_head(&mut stream).await;
        let cut = "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhello";
        stream.write_all(cut.as_bytes()).await.unwrap();
    });
    let error = client().exchange(&plain(address), request("/"), 100).await;
    let error = error.unwrap_err();
    assert!(matches!(error, HttpError::Disconnected(_)), "{error}");
}

#[tokio::test]
async fn a_server_that_does_not_answer_or_does_not_end_its_answer_is_given_up() {
    let client = HttpClient::new(HttpTimeouts {
        connect: LONG,
        total: SHORT,
    });
    for answer in ["", "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhello"] {
        let (address, received) = server(answer).await;
        let error = client.exchange(&plain(address), request("/"), 9).await;
        assert!(
            matches!(error, Err(HttpError::ResponseTimedOut)),
            "{error:?}"
        );
        received.await.unwrap();
    }
}

#[tokio::test]
async fn a_port_without_a_listener_is_named_as_such() {
    let address = {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        listener.local_addr().unwrap()
    };
    let error = client().send(&plain(address), request("/")).await;
    let error = error.unwrap_err();
    assert!(matches!(error, HttpError::Connect(_)), "{error}");
    assert!(error.to_string().starts_with("cannot be reached: "));
    assert!(error.cause().starts_with("Connection refused"));
}

#[tokio::test]
async fn the_address_of_the_client_can_be_chosen() {
    let local = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 77));
    let (address, received) = server(HELLO).await;
    let client = client().from_address(local);
    client
        .exchange(&plain(address), request("/"), 5)
        .await
        .unwrap();
    assert_eq!(received.await.unwrap().1.ip(), local);
    // An address of the other family, or none, leaves the choice to the system.
    for local in ["::1", "0.0.0.0"] {
        let (address, received) = server(HELLO).await;
        let client = client.clone().from_address(local.parse().unwrap());
        client
            .exchange(&plain(address), request("/"), 5)
            .await
            .unwrap();
        received.await.unwrap();
    }
}

fn authority() -> Authority {
    Authority::create(CLOCK_FLOOR_UNIX_S, "test").unwrap()
}

/// Accepts one TLS connection and answers one request.
async fn answer_secure(authority: &Authority, stream: impl AsyncRead + AsyncWrite + Unpin) {
    let names = ["box.example".to_owned()];
    let chain = authority.server_certificate(&names, &[], CLOCK_FLOOR_UNIX_S);
    let (chain, key) = chain.unwrap();
    let config = server_config(&chain, &key).unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    // A client that does not trust the server ends the handshake.
    if let Ok(mut stream) = acceptor.accept(stream).await {
        read_head(&mut stream).await;
        stream.write_all(HELLO.as_bytes()).await.unwrap();
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest).await;
    }
}

#[tokio::test]
async fn only_a_trusted_server_with_the_right_name_gets_the_request() {
    let ours = Arc::new(authority());
    let theirs = authority();
    for (trusted, name, good) in [
        (&*ours, "localhost", false),
        (&theirs, "127.0.0.1", false),
        (&*ours, "127.0.0.1", true),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let signing = Arc::clone(&ours);
        let task = tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            let ips = [IpAddr::V4(Ipv4Addr::LOCALHOST)];
            let chain = signing.server_certificate(&[], &ips, CLOCK_FLOOR_UNIX_S);
            let (chain, key) = chain.unwrap();
            let config = server_config(&chain, &key).unwrap();
            if let Ok(mut stream) = TlsAcceptor::from(Arc::new(config)).accept(stream).await {
                read_head(&mut stream).await;
                stream.write_all(HELLO.as_bytes()).await.unwrap();
            }
        });
        let config = trusting_client_config(trusted.certificate_pem()).unwrap();
        let server = HttpServer::secure(name, port, Arc::new(config));
        let response = client().exchange(&server, request("/"), 5).await;
        match response {
            Ok(response) => assert!(good && response.body() == "hello", "{name}"),
            Err(error) => assert!(!good && error.tls_error().is_some(), "{name}: {error}"),
        }
        task.await.unwrap();
    }
}

#[tokio::test]
async fn a_name_that_no_certificate_can_have_is_refused() {
    let config = trusting_client_config(authority().certificate_pem()).unwrap();
    let server = HttpServer::secure("a b", 443, Arc::new(config));
    let error = client().send(&server, request("/")).await.unwrap_err();
    assert!(matches!(error, HttpError::InvalidName), "{error}");
}

#[tokio::test]
async fn a_proxy_gets_whole_urls() {
    let (proxy, received) = server(HELLO).await;
    let client = client().through_proxy(Some(proxy.to_string()));
    let server = HttpServer::plain("[2001:db8::1]", 8080);
    client.exchange(&server, request("/a?b"), 5).await.unwrap();
    let (head, _) = received.await.unwrap();
    let first = head.lines().next().unwrap();
    assert_eq!(first, "GET http://[2001:db8::1]:8080/a?b HTTP/1.1");
}

#[tokio::test]
async fn tls_goes_through_a_tunnel_of_the_proxy() {
    let authority = Arc::new(authority());
    let config = trusting_client_config(authority.certificate_pem()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = listener.local_addr().unwrap();
    let task = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let head = read_head(&mut stream).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
        answer_secure(&authority, stream).await;
        head
    });
    let client = client().through_proxy(Some(proxy.to_string()));
    let server = HttpServer::secure("box.example", 443, Arc::new(config));
    let response = client.exchange(&server, request("/"), 5).await.unwrap();
    assert_eq!(response.body(), "hello");
    let head = task.await.unwrap();
    assert!(
        head.starts_with("CONNECT box.example:443 HTTP/1.1\r\n"),
        "{head}"
    );
}

#[tokio::test]
async fn the_refusal_of_a_proxy_is_named() {
    let config = trusting_client_config(authority().certificate_pem()).unwrap();
    let server_at = HttpServer::secure("box.example", 443, Arc::new(config));
    let (proxy, received) = server("HTTP/1.1 403 Forbidden\r\n\r\n").await;
    let client = client().through_proxy(Some(proxy.to_string()));
    let error = client.send(&server_at, request("/")).await.unwrap_err();
    let wanted = "is refused by the proxy: HTTP/1.1 403 Forbidden";
    assert_eq!(error.to_string(), wanted);
    received.await.unwrap();
}
