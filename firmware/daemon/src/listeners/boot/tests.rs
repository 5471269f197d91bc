//! Tests of boot files over loopback, with a real engine and real files.

mod parts;
mod secure;

use super::*;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::symlink;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use trivet_certs_authority::Authority;
use trivet_model::{Digest, ProvisionState, RackOrder, Verb};
use trivet_model::{Lease, MacAddr, NoteKind, Port, PortId, UnixMs};
use trivet_rack::{RackOutput, Settings, StoreChange};

use crate::clock::DaemonEntropy;
use crate::testbed::{self, TestbedDirectory, http_request, raw};

/// A box with `files/` and `loaders/` of a scratch directory, and a node whose address
/// is that of this machine.
struct ServedBootFiles {
    scratch: TestbedDirectory,
    engine: Engine,
    address: SocketAddr,
    /// The address of the same service over TLS, and the CA certificate.
    tls_address: SocketAddr,
    authority: Authority,
    connections: ConnectionLimit,
    notes: UnboundedReceiver<NoteKind>,
    _listeners: JoinSet<()>,
}

async fn served_boot_files() -> ServedBootFiles {
    served_with_timeouts(ClientTimeouts::default()).await
}

async fn served_with_timeouts(waits: ClientTimeouts) -> ServedBootFiles {
    let scratch = TestbedDirectory::new();
    let settings = testbed::settings(&scratch.0);
    enrol(&scratch);
    served_with_settings(scratch, settings, waits).await
}

async fn served_with_settings(
    scratch: TestbedDirectory,
    settings: Settings,
    waits: ClientTimeouts,
) -> ServedBootFiles {
    scratch.file("files/hello", b"0123456789");
    scratch.file("loaders/snponly.efi", b"a loader");
    let (reported, notes) = unbounded_channel();
    let (engine, cache) = testbed::engine_with_cache(settings, &scratch.0, move |output| {
        if let RackOutput::Note { note, .. } = output {
            let _ = reported.send(note.kind);
        }
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let over_tls = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let secure = over_tls.local_addr().unwrap();
    let mut tasks = JoinSet::new();
    let places = ConnectionLimit::new(64);
    let (limits, clock) = ((&places, waits), DaemonClock::start());
    let sources = (&engine, &cache);
    serve(&mut tasks, (vec![listener], None), limits, sources, clock);
    let authority = Authority::create(clock.now().wall.0 / 1000, "box").unwrap();
    let same = Authority::load(authority.certificate_pem(), &authority.key_pem()).unwrap();
    let ours = vec![Ipv4Addr::LOCALHOST.into()];
    let tls = crate::tls_identity::ServerCertificate::new(same, Vec::new(), ours, clock.now());
    let tls = tls.unwrap().tls();
    let listening = (vec![over_tls], Some(&tls));
    serve(&mut tasks, listening, limits, sources, clock);
    ServedBootFiles {
        scratch,
        engine,
        address,
        tls_address: secure,
        authority,
        connections: places,
        notes,
        _listeners: tasks,
    }
}

fn enrol(scratch: &TestbedDirectory) {
    let (node, mac) = (testbed::node(), MacAddr([2, 0, 0, 0, 0, 1]));
    let port = Port {
        id: PortId::random(&mut DaemonEntropy::new()),
        revision: 0,
        serial: 1,
        node: node.id,
        address: mac,
        pxe_enabled: true,
        extra: trivet_model::node::JsonObject::default(),
        attributes: trivet_model::attributes::PortAttributes::default(),
        created_at: UnixMs(1),
        updated_at: None,
    };
    let changes = [
        StoreChange::PutNode(Arc::new(node)),
        StoreChange::PutPort(Arc::new(port)),
        StoreChange::PutLease(Lease {
            mac,
            address: Ipv4Addr::LOCALHOST,
        }),
    ];
    testbed::store(&scratch.0, 4096, 256 << 10)
        .commit(&changes)
        .unwrap();
}

impl ServedBootFiles {
    /// The next transfer that ended: its path, bytes sent and bytes requested.
    async fn sent(&mut self) -> (String, u64, u64) {
        loop {
            if let Some(NoteKind::FileSent {
                path,
                sent,
                requested,
                ..
            }) = self.notes.recv().await
            {
                return (path, sent, requested);
            }
        }
    }

    async fn connect(&self) -> BootTestClient {
        let stream = TcpStream::connect(self.address).await.unwrap();
        BootTestClient { stream }
    }
}

/// A client that sends several requests on one connection.
struct BootTestClient<S = TcpStream> {
    stream: S,
}

impl<S: AsyncRead + AsyncWrite + Unpin> BootTestClient<S> {
    async fn send(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).await.unwrap();
    }

    /// The head of a response, in lower case, and a body of the announced length.
    async fn answer(&mut self) -> (String, Vec<u8>) {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(self.stream.read_u8().await.unwrap());
        }
        let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "))
            .map_or(0, |length| length.parse().unwrap());
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).await.unwrap();
        (head, body)
    }
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: box\r\n\r\n")
}

const SHORT: ClientTimeouts = ClientTimeouts {
    head: Duration::from_millis(300),
    handshake: Duration::from_millis(300),
    stall: Duration::from_millis(300),
};

#[tokio::test]
async fn a_file_comes_whole_and_in_ranges() {
    let one = served_boot_files().await;
    let (head, body) = http_request(one.address, "GET /files/hello", "", "").await;
    assert!(head.starts_with("http/1.1 200"), "{head}");
    assert!(head.contains("content-length: 10") && head.contains("accept-ranges: bytes"));
    assert_eq!(body, "0123456789");
    let (head, body) =
        http_request(one.address, "GET /files/hello", "range: bytes=3-5\r\n", "").await;
    assert!(head.starts_with("http/1.1 206"), "{head}");
    assert!(head.contains("content-range: bytes 3-5/10"), "{head}");
    assert_eq!(body, "345");
    let (head, _) = http_request(one.address, "GET /files/hello", "range: bytes=10-\r\n", "").await;
    assert!(head.starts_with("http/1.1 416"), "{head}");
    assert!(head.contains("content-range: bytes */10"), "{head}");
    one.engine.stop().await;
}

#[tokio::test]
async fn a_range_of_another_version_is_the_whole_file() {
    let one = served_boot_files().await;
    let headers = "range: bytes=3-5\r\nif-range: \"v1\"\r\n";
    let (head, body) = http_request(one.address, "GET /files/hello", headers, "").await;
    assert!(head.starts_with("http/1.1 200"), "{head}");
    assert_eq!(body, "0123456789");
    one.engine.stop().await;
}

#[tokio::test]
async fn a_head_request_says_the_size_and_knows_no_ranges() {
    let one = served_boot_files().await;
    for headers in ["", "range: bytes=3-5\r\n"] {
        let (head, body) = http_request(one.address, "HEAD /files/hello", headers, "").await;
        assert!(head.starts_with("http/1.1 200"), "{head}");
        assert!(head.contains("content-length: 10"), "{head}");
        assert_eq!(body, "");
    }
    one.engine.stop().await;
}

#[tokio::test]
async fn nothing_outside_the_directory_and_no_other_method_is_served() {
    let one = served_boot_files().await;
    symlink("/etc/passwd", one.scratch.0.join("files/link")).unwrap();
    let paths = [
        "/files/../store",
        "/files/%2e%2e/store",
        "/files/link",
        "/files",
        "/store",
        "/",
    ];
    for path in paths {
        let (head, _) = http_request(one.address, &format!("GET {path}"), "", "").await;
        assert!(head.starts_with("http/1.1 404"), "{path}: {head}");
    }
    let (head, _) = http_request(one.address, "PUT /files/hello", "", "x").await;
    assert!(head.starts_with("http/1.1 405"), "{head}");
    one.engine.stop().await;
}

#[tokio::test]
async fn a_large_file_comes_as_it_is() {
    let mut one = served_boot_files().await;
    let content: Vec<u8> = (0..3_000_017_u32).map(|n| b'a' + (n % 26) as u8).collect();
    one.scratch.file("files/large", &content);
    let (head, body) = http_request(one.address, "GET /files/large", "", "").await;
    assert!(head.starts_with("http/1.1 200"), "{head}");
    assert!(body.as_bytes() == content);
    let whole = ("/files/large".to_owned(), 3_000_017, 3_000_017);
    assert_eq!(one.sent().await, whole);
    one.engine.stop().await;
}

#[tokio::test]
async fn a_file_that_shrinks_is_a_broken_answer_and_not_a_whole_one() {
    let mut one = served_boot_files().await;
    let path = one.scratch.file("files/shrinking", &vec![b'x'; 64 << 20]);
    let mut client = one.connect().await;
    client.send(&get("/files/shrinking")).await;
    let mut first = [0; 1000];
    client.stream.read_exact(&mut first).await.unwrap();
    std::fs::OpenOptions::new()
        .write(true)
        .open(path)
        .and_then(|file| file.set_len(100))
        .unwrap();
    let mut rest = Vec::new();
    let end = client.stream.read_to_end(&mut rest).await;
    assert!(rest.len() < 64 << 20);
    assert!(end.is_err(), "it does not look like an end either");
    let (_, sent, requested) = one.sent().await;
    assert!(
        sent < requested && requested == 64 << 20,
        "{sent} of {requested}"
    );
    one.engine.stop().await;
}

#[tokio::test]
async fn one_connection_serves_request_after_request_and_several_at_once() {
    let one = served_boot_files().await;
    let mut client = one.connect().await;
    for _ in 0..3 {
        client.send(&get("/files/hello")).await;
        let (head, body) = client.answer().await;
        assert!(head.starts_with("http/1.1 200") && !head.contains("connection:"));
        assert_eq!(body, b"0123456789");
    }
    let put = "PUT /files/hello HTTP/1.1\r\nhost: box\r\ncontent-length: 3\r\n\r\nGET";
    let head = "HEAD /files/hello HTTP/1.1\r\nhost: box\r\n\r\n";
    let all = [&get("/files/nothing"), put, head, &get("/files/hello")].concat();
    client.send(&all).await;
    assert!(client.answer().await.0.starts_with("http/1.1 404"));
    assert!(client.answer().await.0.starts_with("http/1.1 405"));
    // The body that a HEAD response announces does not follow.
    let mut announced = vec![0; 4096];
    let (mut length, end) = (0, b"0123456789");
    while !announced[..length].ends_with(end) {
        length += client.stream.read(&mut announced[length..]).await.unwrap();
    }
    let text = String::from_utf8_lossy(&announced[..length]).into_owned();
    assert_eq!(text.matches("HTTP/1.1 200").count(), 2, "{text}");
    assert_eq!(text.matches("0123456789").count(), 1, "{text}");
    one.engine.stop().await;
}

#[tokio::test]
async fn http_1_0_gets_one_answer_and_an_end_unless_it_asks() {
    let one = served_boot_files().await;
    let answer = raw(one.address, "GET /files/hello HTTP/1.0\r\n\r\n").await;
    assert!(answer.contains("\r\nConnection: close\r\n"), "{answer}");
    assert!(answer.ends_with("\r\n\r\n0123456789"), "{answer}");
    let mut client = one.connect().await;
    for _ in 0..2 {
        client
            .send("GET /files/hello HTTP/1.0\r\nconnection: keep-alive\r\n\r\n")
            .await;
        assert_eq!(client.answer().await.1, b"0123456789");
    }
    one.engine.stop().await;
}

#[tokio::test]
async fn a_client_that_shuts_its_half_still_gets_its_answer() {
    let one = served_boot_files().await;
    let mut client = one.connect().await;
    client.send(&get("/files/hello")).await;
    client.stream.shutdown().await.unwrap();
    assert_eq!(client.answer().await.1, b"0123456789");
    assert_eq!(client.stream.read(&mut [0; 1]).await.unwrap(), 0);
    one.engine.stop().await;
}

#[tokio::test]
async fn a_file_is_not_sent_again_until_it_changes() {
    let mut one = served_boot_files().await;
    let tag_of = |head: &str| {
        let line = head.lines().find_map(|line| line.strip_prefix("etag: "));
        line.unwrap().to_owned()
    };
    let (head, _) = http_request(one.address, "GET /files/hello", "", "").await;
    assert!(head.contains("\r\nlast-modified: ") && head.contains("\r\ndate: "));
    let tag = tag_of(&head);
    one.sent().await;
    let fields = format!("if-none-match: {tag}\r\n");
    let (head, body) = http_request(one.address, "GET /files/hello", &fields, "").await;
    assert!(
        head.starts_with("http/1.1 304") && body.is_empty(),
        "{head}"
    );
    let fields = format!("range: bytes=3-5\r\nif-range: {tag}\r\n");
    let (_, body) = http_request(one.address, "GET /files/hello", &fields, "").await;
    assert_eq!(body, "345");
    assert_eq!(one.sent().await.2, 3, "what was not sent is no transfer");

    // The same size and the same date: still another file.
    let file = std::fs::File::open(one.scratch.0.join("files/hello")).unwrap();
    let date = file.metadata().unwrap().modified().unwrap();
    let path = one.scratch.file("files/hello", b"9876543210");
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    file.set_modified(date).unwrap();
    let (head, body) = http_request(one.address, "GET /files/hello", &fields, "").await;
    assert!(head.starts_with("http/1.1 200"), "{head}");
    assert_eq!(body, "9876543210");
    assert_ne!(tag_of(&head), tag);
    let fields = format!("if-match: {tag}\r\n");
    let (head, _) = http_request(one.address, "GET /files/hello", &fields, "").await;
    assert!(head.starts_with("http/1.1 412"), "{head}");
    one.engine.stop().await;
}

#[tokio::test]
async fn firmware_finds_loaders_and_scripts() {
    let mut one = served_boot_files().await;
    let (head, body) = http_request(one.address, "GET /boot/loaders/snponly.efi", "", "").await;
    assert!(head.contains("content-type: application/efi"), "{head}");
    assert_eq!(body, "a loader");
    one.sent().await;
    let script = "/boot/02:00:00:00:00:01/script";
    let (head, body) = http_request(one.address, &format!("GET {script}"), "", "").await;
    assert!(head.contains("content-type: text/plain"), "{head}");
    assert!(head.contains("cache-control: no-store"), "{head}");
    assert!(body.starts_with("#!ipxe\n"), "{body}");
    let length = body.len() as u64;
    assert_eq!(one.sent().await, (script.to_owned(), length, length));
    one.engine.stop().await;
}

/// A small response is sent in one segment: firmware reads it in one call.
#[tokio::test]
async fn head_and_body_of_a_small_file_leave_together() {
    let one = served_boot_files().await;
    for path in ["/files/hello", "/boot/02:00:00:00:00:01/script"] {
        let mut client = one.connect().await;
        client.send(&get(path)).await;
        client.stream.readable().await.unwrap();
        let mut all = [0; 4096];
        let length = client.stream.read(&mut all).await.unwrap();
        let text = String::from_utf8_lossy(&all[..length]).into_owned();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("Content-Length: {}", body.len())));
    }
    one.engine.stop().await;
}

#[tokio::test]
async fn nonsense_is_answered_and_the_connection_closed() {
    let one = served_boot_files().await;
    for (text, status) in [
        ("hello\r\n\r\n", "400"),
        ("GET /files/hello HTTP/1.1\r\n\r\n", "400"),
        ("GET /files/hello HTTP/3.0\r\n\r\n", "505"),
        (&"x".repeat(32 << 10), "431"),
    ] {
        // Returns because the box closes the connection.
        let mut client = one.connect().await;
        client.send(text).await;
        client.stream.shutdown().await.unwrap();
        let mut answer = String::new();
        let _ = client.stream.read_to_string(&mut answer).await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "{answer}"
        );
    }
    one.engine.stop().await;
}

#[tokio::test]
async fn a_body_that_we_do_not_read_ends_the_connection_after_the_answer() {
    let one = served_boot_files().await;
    let mut client = one.connect().await;
    client
        .send(
            "GET /files/hello HTTP/1.1\r\nhost: box\r\ncontent-length: 5\r\n\
             expect: 100-continue\r\n\r\n",
        )
        .await;
    let (head, body) = client.answer().await;
    assert!(head.contains("\r\nconnection: close\r\n"), "{head}");
    assert_eq!(body, b"0123456789");
    let chunks = "5\r\n01234\r\n".repeat(20_000);
    let put = "PUT /x HTTP/1.1\r\nhost: box\r\ntransfer-encoding: chunked\r\n\r\n";
    let mut client = one.connect().await;
    client.send(&format!("{put}{chunks}0\r\n\r\n")).await;
    let (head, _) = client.answer().await;
    assert!(head.starts_with("http/1.1 405"), "{head}");
    one.engine.stop().await;
}

#[tokio::test]
async fn a_head_that_never_ends_and_a_silent_client_lose_their_connections() {
    let one = served_with_timeouts(SHORT).await;
    let begun = "GET /files/hello HTTP/1.1\r\nhost: x\r\n";
    let body = "GET /files/hello HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n1234";
    for request in [begun, body, ""] {
        // Returns because the box closes the connection.
        assert_eq!(raw(one.address, request).await, "");
    }
    let answer = raw(one.address, &get("/files/hello")).await;
    assert!(answer.ends_with("0123456789"), "{answer}");
    one.engine.stop().await;
}

#[tokio::test]
async fn a_client_that_never_reads_loses_its_connection_and_its_file_is_short() {
    let mut one = served_with_timeouts(SHORT).await;
    one.scratch.file("files/large", &vec![b'x'; 64 << 20]);
    let mut client = one.connect().await;
    client.send(&get("/files/large")).await;
    let mut first = [0; 16];
    client.stream.read_exact(&mut first).await.unwrap();
    let (path, sent, requested) = one.sent().await;
    assert_eq!((path.as_str(), requested), ("/files/large", 64 << 20));
    assert!(sent > 0 && sent < requested, "{sent} of {requested}");
    while one.connections.shared.available_permits() < 64 {
        tokio::task::yield_now().await;
    }
    one.engine.stop().await;
}

/// The whole file fits into the kernel's buffers, and no byte was read: only bytes that
/// the client acknowledged count.
#[tokio::test]
async fn a_client_that_goes_away_has_a_short_file() {
    let mut one = served_boot_files().await;
    one.scratch.file("files/medium", &vec![b'x'; 1 << 20]);
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let stream = socket.connect(one.address).await.unwrap();
    let mut client = BootTestClient { stream };
    client.send(&get("/files/medium")).await;
    let mut first = [0; 1000];
    client.stream.read_exact(&mut first).await.unwrap();
    drop(client);
    let (_, sent, requested) = one.sent().await;
    assert!(
        sent < requested && requested == 1 << 20,
        "{sent} of {requested}"
    );
    one.engine.stop().await;
}

/// Slow clients block no threads: there are more of them than threads for reading, and
/// the next client is still served.
#[test]
fn clients_that_do_not_read_leave_threads_for_others() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(2)
        .build()
        .unwrap();
    runtime.block_on(async {
        let one = served_boot_files().await;
        one.scratch.file("files/large", &vec![b'x'; 16 << 20]);
        let mut slow = Vec::new();
        for _ in 0..4 {
            let mut stream = TcpStream::connect(one.address).await.unwrap();
            let request = b"GET /files/large HTTP/1.1\r\nhost: x\r\n\r\n";
            stream.write_all(request).await.unwrap();
            let mut first = [0; 12];
            stream.read_exact(&mut first).await.unwrap();
            slow.push(stream);
        }
        let (head, _) = http_request(one.address, "GET /files/hello", "", "").await;
        assert!(head.starts_with("http/1.1 200"), "{head}");
        one.engine.stop().await;
    });
}

/// A node whose image is being written. Its source is a local file, which passes
/// through the cache like any other. Returns the path of its image.
async fn deploying(one: &ServedBootFiles, image: &[u8], digest: &str) -> String {
    one.scratch.file("files/origin.raw", image);
    let mut node = testbed::node();
    let id = node.id;
    node.provision_state = ProvisionState::Available;
    let bmc = &mut node.driver_info;
    bmc.insert("ipmi_address".to_owned(), "192.0.2.9".into());
    let source = format!("http://{}/files/origin.raw", one.address);
    let info = &mut node.instance_info;
    info.insert("image_source".to_owned(), source.into());
    info.insert("image_checksum".to_owned(), digest.into());
    let order = RackOrder::CreateNode(Box::new(node));
    one.engine.order(testbed::caller(), order).await.unwrap();
    let order = RackOrder::Provision {
        node: id,
        based_on: None,
        verb: Verb::Active,
        args: trivet_model::order::VerbArgs::default(),
    };
    one.engine.order(testbed::caller(), order).await.unwrap();
    let view = one.engine.view();
    let node = &view.nodes.get(&id).unwrap().node;
    let url = node.deployment().unwrap().image.url(id);
    url.strip_prefix("http://192.0.2.1:8080")
        .unwrap()
        .to_owned()
}

async fn with_cache() -> ServedBootFiles {
    let scratch = TestbedDirectory::new();
    let settings = Settings {
        cache: true,
        ..testbed::settings(&scratch.0)
    };
    served_with_settings(scratch, settings, ClientTimeouts::default()).await
}

fn sha256(bytes: &[u8]) -> String {
    let sum = ring::digest::digest(&ring::digest::SHA256, bytes);
    Digest::Sha256(sum.as_ref().try_into().unwrap()).to_string()
}

#[tokio::test]
async fn an_image_from_elsewhere_comes_through_the_cache() {
    let one = with_cache().await;
    let image: Vec<u8> = (0..3_000_017_u32).map(|n| b'a' + (n % 26) as u8).collect();
    let path = deploying(&one, &image, &sha256(&image)).await;
    for _ in 0..2 {
        let (head, body) = http_request(one.address, &format!("GET {path}"), "", "").await;
        assert!(head.starts_with("http/1.1 200"), "{head}");
        assert!(head.contains(&format!("etag: \"sha256-{}\"", sha256(&image))));
        assert!(body.as_bytes() == image);
    }
    let fields = "range: bytes=2000000-2000009\r\n";
    let (head, body) = http_request(one.address, &format!("GET {path}"), fields, "").await;
    assert!(head.starts_with("http/1.1 206"), "{head}");
    assert_eq!(body.as_bytes(), &image[2_000_000..2_000_010]);
    let (head, body) = http_request(one.address, &format!("HEAD {path}"), "", "").await;
    assert!(head.contains("content-length: 3000017") && body.is_empty());
    // Two chunks and a bit: the state after each but the last.
    let (head, _) = http_request(one.address, &format!("HEAD {path}.chunks"), "", "").await;
    assert!(head.contains("content-length: 64"), "{head}");
    let other = path.replace("/nodes/", "/nodes/x");
    for none in [format!("GET {path}.chunk"), format!("GET {other}.chunks")] {
        let (head, _) = http_request(one.address, &none, "", "").await;
        assert!(head.starts_with("http/1.1 404"), "{none}: {head}");
    }
    one.engine.stop().await;
}

#[tokio::test]
async fn a_boot_file_is_refused_for_now_until_the_box_has_fetched_it() {
    let one = with_cache().await;
    let image = b"an image to boot".repeat(1000);
    one.scratch.file("files/live.iso", &image);
    let url = format!("http://{}/files/live.iso", one.address);
    let mut node = testbed::node();
    let path = httpboot::node_boot_path(node.id, "boot_iso");
    node.provision_state = ProvisionState::Active;
    node.attributes.interfaces.deploy = Some(trivet_model::interface::DeployInterface::Ramdisk);
    let info = &mut node.instance_info;
    info.insert("boot_iso".to_owned(), url.clone().into());
    let order = RackOrder::CreateNode(Box::new(node));
    one.engine.order(testbed::caller(), order).await.unwrap();
    let (head, body) = http_request(one.address, &format!("GET {path}"), "", "").await;
    assert!(head.starts_with("http/1.1 503"), "{head}");
    assert!(head.contains("retry-after: 10"), "{head}");
    assert!(body.contains(&url), "{body}");
    let (head, body) = loop {
        let (head, body) = http_request(one.address, &format!("GET {path}"), "", "").await;
        if !head.starts_with("http/1.1 503") {
            break (head, body);
        }
    };
    assert!(head.starts_with("http/1.1 200"), "{head}");
    assert!(body.as_bytes() == image);
    one.engine.stop().await;
}

#[tokio::test]
async fn a_wrong_image_is_cut_short_and_then_refused_with_the_reason() {
    let one = with_cache().await;
    let image: Vec<u8> = (0..3_000_017_u32).map(|n| b'a' + (n % 26) as u8).collect();
    let path = deploying(&one, &image, &sha256(b"another")).await;
    let mut client = one.connect().await;
    client.send(&get(&path)).await;
    let mut all = Vec::new();
    let end = client.stream.read_to_end(&mut all).await;
    assert!(all.len() < image.len(), "{} bytes", all.len());
    let text = String::from_utf8_lossy(&all[..all.len().min(500)]).into_owned();
    if text.starts_with("HTTP/1.1 200") {
        assert!(end.is_err(), "it does not look like an end either");
    }
    // The job has ended, and its URL with it; the catalogue has the image, too.
    let id = trivet_model::ResourceId::random(&mut crate::clock::DaemonEntropy::new());
    let kind = trivet_model::ResourceKind::Image;
    let mut record = trivet_model::Resource::new(id, kind, trivet_model::UnixMs(1));
    record.name = Some("web".to_owned());
    let source = format!("http://{}/files/origin.raw", one.address);
    let fields = &mut record.fields;
    fields.insert("sources".to_owned(), vec![source].into());
    fields.insert("checksum".to_owned(), sha256(b"another").into());
    let order = RackOrder::CreateResource(Box::new(record));
    one.engine.order(testbed::caller(), order).await.unwrap();
    let (head, body) = http_request(one.address, "GET /images/web", "", "").await;
    assert!(head.starts_with("http/1.1 404"), "{head}");
    for part in ["origin.raw", &sha256(b"another"), &sha256(&image)] {
        assert!(body.contains(part), "{part}: {body}");
    }
    one.engine.stop().await;
}
