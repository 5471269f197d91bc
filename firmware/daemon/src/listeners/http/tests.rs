//! Tests of connections over loopback, with short timeouts.

use super::*;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::JoinSet;

use crate::testbed::{http_request, raw};

const SHORT: ClientTimeouts = ClientTimeouts {
    head: Duration::from_millis(50),
    handshake: Duration::from_millis(50),
    stall: Duration::from_millis(50),
};

/// Responds with the length of the body, or with very many bytes.
fn echo() -> HttpHandler {
    Arc::new(|_, _, request| {
        Box::pin(async move {
            if request.uri().path() == "/much" {
                return Response::new(full(vec![0; 64 << 20]));
            }
            if request.uri().path() == "/events" {
                let mut answer = Response::new(EndlessHttpBody.boxed());
                let kind = hyper::header::HeaderValue::from_static("text/event-stream");
                let headers = answer.headers_mut();
                headers.insert(hyper::header::CONTENT_TYPE, kind);
                return answer;
            }
            let slow = request.uri().path() == "/slow";
            let wait = Duration::from_millis(if slow { 60_000 } else { 50 });
            match read_within(wait, request.into_body(), 10).await {
                Ok(body) => text(StatusCode::OK, &format!("{} bytes", body.len())),
                Err(error) => {
                    let (status, sentence) = error.answer(10);
                    text(status, &sentence)
                }
            }
        })
    })
}

/// A body that never ends.
struct EndlessHttpBody;

impl hyper::body::Body for EndlessHttpBody {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<hyper::body::Frame<Bytes>, std::io::Error>>> {
        std::task::Poll::Pending
    }
}

struct TestHttpService {
    address: SocketAddr,
    connections: ConnectionLimit,
    _listeners: JoinSet<()>,
}

async fn service(connections_max: usize, waits: ClientTimeouts) -> TestHttpService {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut tasks = JoinSet::new();
    let places = ConnectionLimit::new(connections_max);
    serve(&mut tasks, vec![listener], None, (&places, waits), &echo());
    TestHttpService {
        address,
        connections: places,
        _listeners: tasks,
    }
}

#[tokio::test]
async fn a_body_is_taken_up_to_its_bound() {
    let service = service(64, ClientTimeouts::default()).await;
    let (head, body) = http_request(service.address, "POST /", "", "0123456789").await;
    assert!(head.starts_with("http/1.1 200"), "{head}");
    assert_eq!(body, "10 bytes\n");
    let (head, body) = http_request(service.address, "POST /", "", "0123456789a").await;
    assert!(head.starts_with("http/1.1 413"), "{head}");
    assert!(body.contains("longer than 10 bytes"), "{body}");
}

/// A body without a declared length is too long only once it exceeds the limit.
#[tokio::test]
async fn a_body_in_chunks_has_the_same_bound() {
    let service = service(64, ClientTimeouts::default()).await;
    let head = "POST / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\
                transfer-encoding: chunked\r\n\r\n";
    let fits = format!("{head}5\r\n01234\r\n5\r\n56789\r\n0\r\n\r\n");
    let answer = raw(service.address, &fits).await;
    assert!(answer.ends_with("10 bytes\n"), "{answer}");
    let over = format!("{head}5\r\n01234\r\n6\r\n56789a\r\n0\r\n\r\n");
    let answer = raw(service.address, &over).await;
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
}

/// The response is sent before any byte of the body arrives.
#[tokio::test]
async fn a_body_that_says_it_is_too_long_is_not_waited_for() {
    let service = service(64, ClientTimeouts::default()).await;
    let mut stream = TcpStream::connect(service.address).await.unwrap();
    let head = "POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 11\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut start = [0; 12];
    stream.read_exact(&mut start).await.unwrap();
    assert_eq!(&start, b"HTTP/1.1 413");
}

#[tokio::test]
async fn a_body_that_never_ends_is_not_waited_for() {
    let service = service(64, ClientTimeouts::default()).await;
    let request = "POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\n12";
    let answer = raw(service.address, request).await;
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
}

#[tokio::test]
async fn a_head_that_never_ends_and_a_silent_client_lose_their_connections() {
    let service = service(64, SHORT).await;
    for request in ["GET / HTTP/1.1\r\nhost: x\r\n", ""] {
        // Returns because the box closes the connection.
        let answer = raw(service.address, request).await;
        assert!(!answer.contains("200 OK"), "{answer}");
    }
    // The same timeout applies after a request that was served.
    let answer = raw(service.address, "GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert!(answer.contains("0 bytes"), "{answer}");
}

#[tokio::test]
async fn a_client_that_never_reads_loses_its_connection_and_its_permit() {
    let service = service(64, SHORT).await;
    let mut stream = TcpStream::connect(service.address).await.unwrap();
    let request = b"GET /much HTTP/1.1\r\nhost: x\r\n\r\n";
    stream.write_all(request).await.unwrap();
    let mut first = [0; 16];
    stream.read_exact(&mut first).await.unwrap();
    assert_eq!(service.connections.shared.available_permits(), 63);
    while service.connections.shared.available_permits() < 64 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn one_peer_takes_its_share_of_connections_and_no_more() {
    let service = service(8, ClientTimeouts::default()).await;
    let mut held = Vec::new();
    // A quarter of all, and four of this service.
    for _ in 0..2 + 4 {
        let mut stream = TcpStream::connect(service.address).await.unwrap();
        let request = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n";
        stream.write_all(request).await.unwrap();
        let mut first = [0; 12];
        stream.read_exact(&mut first).await.unwrap();
        assert_eq!(&first, b"HTTP/1.1 200");
        held.push(stream);
    }
    let refused = raw(service.address, "").await;
    assert_eq!(refused, "", "closed at once");
    let other = tokio::net::TcpSocket::new_v4().unwrap();
    other.bind("127.77.99.1:0".parse().unwrap()).unwrap();
    let mut other = other.connect(service.address).await.unwrap();
    let request = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n";
    other.write_all(request).await.unwrap();
    let mut first = [0; 12];
    other.read_exact(&mut first).await.unwrap();
    assert_eq!(&first, b"HTTP/1.1 200");
}

#[test]
fn no_service_gets_the_last_connections() {
    for (all, service) in [(1, 1), (4, 3), (1024, 768)] {
        assert_eq!(ConnectionLimit::new(all).service_max, service);
    }
}

/// Opens a connection from this source address and sends this.
async fn from(address: [u8; 4], to: SocketAddr, text: &[u8]) -> TcpStream {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::from((address, 0))).unwrap();
    let mut stream = socket.connect(to).await.unwrap();
    stream.write_all(text).await.unwrap();
    stream
}

#[tokio::test]
async fn half_sent_requests_from_many_addresses_do_not_block_a_service() {
    let service = service(16, ClientTimeouts::default()).await;
    // 12 shared and 4 reserved connections, a quarter of 16 for each address: all are
    // taken by requests that never end, of which some have a complete head.
    let half: [&[u8]; 2] = [
        b"GET / HTTP/1.1\r\nhost: x\r\n",
        b"POST /slow HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\n012",
    ];
    let mut held = Vec::new();
    for number in 0..24 {
        let address = [127, 77, 98, number / 4 + 1];
        held.push(from(address, service.address, half[usize::from(number % 2)]).await);
    }
    for number in 0..8 {
        let whole = b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
        let mut client = from([127, 77, 97, number + 1], service.address, whole).await;
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
}

/// Complete requests from eight addresses, each of which gets a response.
async fn eight_more(service: &TestHttpService) {
    for number in 0..8 {
        let whole = b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
        let mut client = from([127, 77, 96, number + 1], service.address, whole).await;
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
}

async fn is_closed(stream: &mut TcpStream) -> bool {
    let mut rest = Vec::new();
    // A reset counts as an end too.
    let read = tokio::time::timeout(Duration::from_secs(20), stream.read_to_end(&mut rest));
    read.await.is_ok()
}

#[tokio::test]
async fn under_pressure_a_slow_reader_stays_and_a_half_sent_request_is_closed() {
    let service = service(16, ClientTimeouts::default()).await;
    // The oldest connection: its response does not fit into the buffers of its socket.
    let much = b"GET /much HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    let mut slow = from([127, 77, 95, 1], service.address, much).await;
    let mut start = [0; 16];
    slow.read_exact(&mut start).await.unwrap();
    let mut held = Vec::new();
    for number in 0..24 {
        let half = b"GET / HTTP/1.1\r\nhost: x\r\n";
        let address = [127, 77, 94, number / 4 + 1];
        held.push(from(address, service.address, half).await);
    }
    eight_more(&service).await;
    assert!(is_closed(&mut held[0]).await);
    let mut rest = Vec::new();
    slow.read_to_end(&mut rest).await.unwrap();
    assert!(rest.len() >= 64 << 20, "{} bytes", rest.len());
}

/// The page reconnects to its event stream by itself.
#[tokio::test]
async fn under_pressure_a_stream_of_events_is_closed() {
    let service = service(16, ClientTimeouts::default()).await;
    let events = b"GET /events HTTP/1.1\r\nhost: x\r\n\r\n";
    let mut held = Vec::new();
    for number in 0..16 {
        let address = [127, 77, 93, number / 4 + 1];
        let mut stream = from(address, service.address, events).await;
        let mut start = [0; 12];
        stream.read_exact(&mut start).await.unwrap();
        assert_eq!(&start, b"HTTP/1.1 200");
        held.push(stream);
    }
    eight_more(&service).await;
    assert!(is_closed(&mut held[0]).await);
}
