//! Tests of files that are read in ranges on one connection.

use super::*;

fn part(path: &str, from: usize, to: usize) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: box\r\nrange: bytes={from}-{to}\r\n\r\n")
}

fn content(bytes: u32) -> Vec<u8> {
    (0..bytes).map(|n| (n % 251) as u8).collect()
}

#[tokio::test]
async fn parts_of_a_file_on_one_connection_are_one_transfer() {
    let mut one = served_boot_files().await;
    let all = content(3_000_017);
    one.scratch.file("files/disk.iso", &all);
    let mut client = one.connect().await;
    let mut requested = 0;
    // Some fit behind the head of their response, and some do not.
    for (from, to) in [(0, 0), (5, 4100), (100_000, 165_535), (7, 200_006), (9, 9)] {
        client.send(&part("/files/disk.iso", from, to)).await;
        let (head, body) = client.answer().await;
        assert!(head.starts_with("http/1.1 206"), "{head}");
        assert!(body == all[from..=to], "{from} to {to}");
        requested += body.len() as u64;
    }
    client.send(&get("/files/hello")).await;
    assert_eq!(client.answer().await.1, b"0123456789");
    let parts = ("/files/disk.iso".to_owned(), requested, requested);
    assert_eq!(one.sent().await, parts);
    assert_eq!(one.sent().await, ("/files/hello".to_owned(), 10, 10));
    one.engine.stop().await;
}

#[tokio::test]
async fn a_part_and_the_whole_file_after_it_are_two_transfers() {
    let mut one = served_boot_files().await;
    let mut client = one.connect().await;
    client.send(&part("/files/hello", 0, 3)).await;
    assert_eq!(client.answer().await.1, b"0123");
    // The If-Range version is not the current one: the client gets the whole file.
    let request = "GET /files/hello HTTP/1.1\r\nhost: box\r\nrange: bytes=4-\r\n";
    client
        .send(&format!("{request}if-range: \"old\"\r\n\r\n"))
        .await;
    assert_eq!(client.answer().await.1, b"0123456789");
    assert_eq!(one.sent().await, ("/files/hello".to_owned(), 4, 4));
    assert_eq!(one.sent().await, ("/files/hello".to_owned(), 10, 10));
    one.engine.stop().await;
}

#[tokio::test]
async fn ranges_are_reported_when_no_other_follows_and_at_a_disconnect() {
    let mut one = served_boot_files().await;
    let mut client = one.connect().await;
    for (from, to) in [(0, 3), (2, 3)] {
        client.send(&part("/files/hello", from, to)).await;
        client.answer().await;
    }
    // The connection stays open and idle.
    assert_eq!(one.sent().await, ("/files/hello".to_owned(), 6, 6));
    client.send(&part("/files/hello", 1, 1)).await;
    assert_eq!(client.answer().await.1, b"1");
    drop(client);
    assert_eq!(one.sent().await, ("/files/hello".to_owned(), 1, 1));
    one.engine.stop().await;
}

#[tokio::test]
async fn the_rack_is_consulted_again_for_ranges_when_the_grant_expires() {
    let one = served_boot_files().await;
    let mut client = one.connect().await;
    client.send(&part("/files/hello", 0, 0)).await;
    assert_eq!(client.answer().await.1, b"0");
    // A client may read further ranges while its grant is valid, and not longer.
    std::fs::remove_file(one.scratch.0.join("files/hello")).unwrap();
    let began = Instant::now();
    loop {
        client.send(&part("/files/hello", 1, 1)).await;
        let (head, body) = client.answer().await;
        if head.starts_with("http/1.1 404") {
            break;
        }
        assert_eq!(body, b"1");
        assert!(began.elapsed() < Duration::from_mins(1), "{head}");
    }
    one.engine.stop().await;
}

#[tokio::test]
async fn a_file_that_changes_between_two_parts_has_another_tag() {
    let one = served_boot_files().await;
    let mut client = one.connect().await;
    client.send(&part("/files/hello", 0, 1)).await;
    let tag = |head: &str| {
        head.lines()
            .find(|line| line.starts_with("etag"))
            .map(str::to_owned)
    };
    let (head, _) = client.answer().await;
    let first = tag(&head).unwrap();
    std::fs::write(one.scratch.0.join("files/hello"), b"another content").unwrap();
    client.send(&part("/files/hello", 0, 1)).await;
    let (head, body) = client.answer().await;
    assert_ne!(tag(&head).unwrap(), first);
    assert!(head.contains("bytes 0-1/15"), "{head}");
    assert_eq!(body, b"an");
    one.engine.stop().await;
}

#[tokio::test]
async fn a_client_that_goes_away_between_parts_has_what_it_took() {
    let mut one = served_with_timeouts(SHORT).await;
    one.scratch.file("files/large", &content(64 << 20));
    let mut client = one.connect().await;
    client.send(&part("/files/large", 0, 999)).await;
    assert_eq!(client.answer().await.1.len(), 1000);
    // It never reads the second range, and the connection times out.
    client.send(&part("/files/large", 0, (64 << 20) - 1)).await;
    let (_, sent, requested) = one.sent().await;
    assert_eq!(requested, 1000 + (64 << 20));
    assert!((1000..requested).contains(&sent), "{sent} of {requested}");
    one.engine.stop().await;
}

#[tokio::test]
async fn a_client_that_resets_the_connection_after_a_part_is_let_go_at_once() {
    let mut one = served_boot_files().await;
    one.scratch.file("files/large", &content(4 << 20));
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let stream = socket.connect(one.address).await.unwrap();
    let mut client = BootTestClient { stream };
    client.send(&part("/files/large", 0, 60_000)).await;
    let mut first = [0; 100];
    client.stream.read_exact(&mut first).await.unwrap();
    client.stream.set_zero_linger().unwrap();
    drop(client);
    // The stall timeout is a minute; a broken connection is not waited for.
    let reported = tokio::time::timeout(Duration::from_secs(20), one.sent()).await;
    let (_, sent, requested) = reported.unwrap();
    assert!(
        sent <= requested && requested == 60_001,
        "{sent} of {requested}"
    );
    one.engine.stop().await;
}
