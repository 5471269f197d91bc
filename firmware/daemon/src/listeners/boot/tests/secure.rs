//! Tests of boot files over TLS, with a client that trusts the box's own CA.

use rustls_pki_types::ServerName;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::*;

type BootTlsTestClient = BootTestClient<TlsStream<TcpStream>>;

impl ServedBootFiles {
    async fn connect_secure(&self) -> BootTlsTestClient {
        let stream = TcpStream::connect(self.tls_address).await.unwrap();
        self.handshake(stream).await
    }

    async fn handshake(&self, stream: TcpStream) -> BootTlsTestClient {
        let authority = self.authority.certificate_pem();
        let config = trivet_net_tls::trusting_client_config(authority).unwrap();
        let name = ServerName::try_from("127.0.0.1").unwrap();
        let connector = TlsConnector::from(Arc::new(config));
        let stream = connector.connect(name, stream).await.unwrap();
        BootTestClient { stream }
    }
}

fn text_bytes(bytes: u32) -> Vec<u8> {
    (0..bytes).map(|n| b'a' + (n % 26) as u8).collect()
}

#[tokio::test]
async fn whole_files_ranges_and_heads_come_over_one_connection() {
    let mut one = served_boot_files().await;
    let content = text_bytes(3_000_017);
    one.scratch.file("files/large", &content);
    let mut client = one.connect_secure().await;
    let version = client.stream.get_ref().1.protocol_version();
    assert_eq!(version, Some(rustls::ProtocolVersion::TLSv1_3));
    client.send(&get("/files/large")).await;
    let (head, body) = client.answer().await;
    assert!(head.starts_with("http/1.1 200"), "{head}");
    assert!(body == content);
    let whole = ("/files/large".to_owned(), 3_000_017, 3_000_017);
    assert_eq!(one.sent().await, whole);
    // Neither end of the range is the end of a record.
    let fields = "range: bytes=20000-1048580\r\n\r\n";
    let request = get("/files/large").replace("\r\n\r\n", &format!("\r\n{fields}"));
    client.send(&request).await;
    let (head, body) = client.answer().await;
    assert!(head.starts_with("http/1.1 206"), "{head}");
    assert!(body == content[20_000..=1_048_580]);
    assert_eq!(one.sent().await.1, 1_028_581);
    let sent_request = "HEAD /files/large HTTP/1.1\r\nhost: box\r\n\r\n";
    client
        .send(&[sent_request, &get("/files/hello")].concat())
        .await;
    let mut both = vec![0; 4096];
    let mut length = 0;
    while !both[..length].ends_with(b"0123456789") {
        length += client.stream.read(&mut both[length..]).await.unwrap();
    }
    let text = String::from_utf8_lossy(&both[..length]).into_owned();
    assert!(text.contains("Content-Length: 3000017\r\n"), "{text}");
    assert_eq!(text.matches("HTTP/1.1 200").count(), 2, "{text}");
    one.engine.stop().await;
}

#[tokio::test]
async fn an_end_is_signalled_with_close_notify() {
    let one = served_boot_files().await;
    let mut client = one.connect_secure().await;
    client.send("GET /files/hello HTTP/1.0\r\n\r\n").await;
    let mut all = String::new();
    // An end without close_notify would be an error here.
    client.stream.read_to_string(&mut all).await.unwrap();
    assert!(all.ends_with("\r\n\r\n0123456789"), "{all}");
    one.engine.stop().await;
}

#[tokio::test]
async fn a_wrong_image_is_cut_short_over_tls_too() {
    let one = with_cache().await;
    let image = text_bytes(3_000_017);
    let path = deploying(&one, &image, &sha256(b"another")).await;
    let mut client = one.connect_secure().await;
    client.send(&get(&path)).await;
    let mut all = Vec::new();
    let end = client.stream.read_to_end(&mut all).await;
    assert!(all.len() < image.len(), "{} bytes", all.len());
    if all.starts_with(b"HTTP/1.1 200") {
        assert!(end.is_err(), "it does not look like an end either");
    }
    let mut client = one.connect_secure().await;
    client.send(&get(&path)).await;
    let (head, _) = client.answer().await;
    assert!(head.starts_with("http/1.1 404"), "{head}");
    one.engine.stop().await;
}

#[tokio::test]
async fn a_right_image_comes_whole_over_tls() {
    let one = with_cache().await;
    let image = text_bytes(3_000_017);
    let path = deploying(&one, &image, &sha256(&image)).await;
    let mut client = one.connect_secure().await;
    for _ in 0..2 {
        client.send(&get(&path)).await;
        let (head, body) = client.answer().await;
        assert!(head.starts_with("http/1.1 200"), "{head}");
        assert!(body == image);
    }
    one.engine.stop().await;
}

#[tokio::test]
async fn a_file_that_shrinks_is_cut_short_over_tls_too() {
    let mut one = served_boot_files().await;
    let path = one.scratch.file("files/shrinking", &vec![b'x'; 64 << 20]);
    let mut client = one.connect_secure().await;
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

/// Only bytes that the client acknowledged count, and a partial record counts as
/// nothing.
#[tokio::test]
async fn a_disconnected_client_has_whole_records_of_a_short_file() {
    let mut one = served_boot_files().await;
    one.scratch.file("files/medium", &vec![b'x'; 1 << 20]);
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let stream = socket.connect(one.tls_address).await.unwrap();
    let mut client = one.handshake(stream).await;
    client.send(&get("/files/medium")).await;
    let mut first = [0; 1000];
    client.stream.read_exact(&mut first).await.unwrap();
    drop(client);
    // The head of the response is in the first record, before the file.
    let end = first.windows(4).position(|four| four == b"\r\n\r\n");
    let head = end.unwrap() as u64 + 4;
    let (_, sent, requested) = one.sent().await;
    assert!(
        sent < requested && requested == 1 << 20,
        "{sent} of {requested}"
    );
    assert_eq!((head + sent) % (16 << 10), 0, "{sent}");
    one.engine.stop().await;
}

#[tokio::test]
async fn a_client_without_tls_is_disconnected() {
    let one = served_with_timeouts(SHORT).await;
    let answer = |text: &'static str| {
        let address = one.tls_address;
        async move {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(text.as_bytes()).await.unwrap();
            let mut all = Vec::new();
            // Returns because the box closes the connection.
            let _ = stream.read_to_end(&mut all).await;
            all
        }
    };
    let reply = answer("GET /files/hello HTTP/1.0\r\n\r\n").await;
    assert!(!reply.windows(10).any(|part| part == b"0123456789"));
    assert_eq!(answer("").await, b"");
    let mut client = one.connect_secure().await;
    client.send(&get("/files/hello")).await;
    assert_eq!(client.answer().await.1, b"0123456789");
    one.engine.stop().await;
}

#[tokio::test]
async fn a_client_that_never_reads_over_tls_loses_its_connection() {
    let mut one = served_with_timeouts(SHORT).await;
    one.scratch.file("files/large", &vec![b'x'; 64 << 20]);
    let mut client = one.connect_secure().await;
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
