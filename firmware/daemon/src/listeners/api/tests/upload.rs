//! Tests of uploads over loopback: as curl sends them, and with failures.

use super::*;
use crate::testbed::expect_no_files;

const MIB: usize = 1 << 20;

fn image() -> Vec<u8> {
    (0..3 * MIB + 77).map(|at| (at * 31 % 253) as u8).collect()
}

fn sha256(bytes: &[u8]) -> String {
    let sum = ring::digest::digest(&ring::digest::SHA256, bytes);
    trivet_model::Digest::Sha256(sum.as_ref().try_into().unwrap()).to_string()
}

impl ServedApi {
    async fn catalogue(&self, name: &str, sum: &str) {
        let body = json!({"name": name, "checksum": sum}).to_string();
        let (head, body) = http_request(self.address, "POST /trivet/images", JSON, &body).await;
        assert!(head.starts_with("http/1.1 201"), "{head} {body}");
    }

    /// The status and the body of the response.
    async fn put(&self, name: &str, fields: &str, bytes: &[u8]) -> (u16, Value) {
        let mut stream = tokio::net::TcpStream::connect(self.address).await.unwrap();
        let head = format!(
            "PUT /trivet/images/{name}/data HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
             {fields}\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        // A refused client may be disconnected while it sends.
        let _ = stream.write_all(bytes).await;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        let status = head.split(' ').nth(1).unwrap_or("0").parse().unwrap();
        (status, serde_json::from_str(body).unwrap_or(Value::Null))
    }

    async fn shown(&self, name: &str) -> Value {
        let line = format!("GET /trivet/images/{name}");
        let (_, body) = http_request(self.address, &line, JSON, "").await;
        serde_json::from_str(&body).unwrap()
    }
}

fn length(bytes: &[u8]) -> String {
    format!("content-length: {}\r\n", bytes.len())
}

#[tokio::test]
async fn an_upload_is_visible_with_its_response() {
    let one = served_api(|_| Authenticator::Open).await;
    let image = image();
    one.catalogue("up.raw", &sha256(&image)).await;
    let (status, shown) = one.put("up.raw", &length(&image), &image).await;
    assert_eq!(status, 200, "{shown}");
    assert_eq!(
        (&shown["state"], &shown["here"], &shown["size"]),
        (&json!("complete"), &json!(image.len()), &json!(image.len()))
    );
    let (status, why) = one.put("up.raw", &length(&image), &image).await;
    assert_eq!(status, 409, "{why}");
    one.engine.stop().await;
}

#[tokio::test]
async fn an_interrupted_upload_continues_at_the_same_offset() {
    let one = served_api(|_| Authenticator::Open).await;
    let image = image();
    one.catalogue("up.raw", &sha256(&image)).await;
    let cut = 2 * MIB + 5000;
    let mut stream = tokio::net::TcpStream::connect(one.address).await.unwrap();
    let fields = length(&image);
    let head =
        format!("PUT /trivet/images/up.raw/data HTTP/1.1\r\nhost: localhost\r\n{fields}\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(&image[..cut]).await.unwrap();
    drop(stream);
    let shown = loop {
        let shown = one.shown("up.raw").await;
        if shown["state"] == "failed" {
            break shown;
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(shown["here"], json!(2 * MIB), "{shown}");
    assert!(
        shown["fault"]
            .as_str()
            .unwrap()
            .contains("Continue the upload"),
        "{shown}"
    );
    let range = |from: usize| {
        let (last, size) = (image.len() - 1, image.len());
        let rest = length(&image[from..]);
        format!("{rest}content-range: bytes {from}-{last}/{size}\r\n")
    };
    let (status, why) = one.put("up.raw", &range(MIB), &image[MIB..]).await;
    assert_eq!(status, 409);
    assert!(why.to_string().contains("has 2097152 bytes here"), "{why}");
    let (status, shown) = one.put("up.raw", &range(2 * MIB), &image[2 * MIB..]).await;
    assert_eq!(
        (status, &shown["state"]),
        (200, &json!("complete")),
        "{shown}"
    );
    one.engine.stop().await;
}

#[tokio::test]
async fn other_bytes_are_dropped_and_both_digests_reported() {
    let one = served_api(|_| Authenticator::Open).await;
    let (image, sum) = (image(), sha256(b"another"));
    one.catalogue("up.raw", &sum).await;
    let (status, why) = one.put("up.raw", &length(&image), &image).await;
    assert_eq!(status, 422, "{why}");
    for part in [&sum, &sha256(&image)] {
        assert!(why.to_string().contains(part), "{why}");
    }
    expect_no_files(&one.scratch.0.join("cache")).await;
    one.engine.stop().await;
}

#[tokio::test]
async fn an_invalid_upload_is_refused_before_its_body() {
    let one = served_api(file_auth).await;
    let (status, _) = one.put("up.raw", "content-length: 3\r\n", b"abc").await;
    assert_eq!(status, 401);
    let one = served_api(|_| Authenticator::Open).await;
    let (status, _) = one.put("none.raw", "content-length: 3\r\n", b"abc").await;
    assert_eq!(status, 404);
    one.catalogue("up.raw", &sha256(b"abc")).await;
    let chunked = "transfer-encoding: chunked\r\n";
    let (status, _) = one.put("up.raw", chunked, b"3\r\nabc\r\n0\r\n\r\n").await;
    assert_eq!(status, 411);
    let fields = "content-length: 3\r\ncontent-range: bytes 1-3/3\r\n";
    let (status, _) = one.put("up.raw", fields, b"abc").await;
    assert_eq!(status, 400);
    one.engine.stop().await;
}
