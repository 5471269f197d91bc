//! What the tests of this crate share: a directory that is removed after its test, an
//! engine on a real file, and a small HTTP client.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use trivet_board_linux::{BoxKeyFile, FileFlash};
use trivet_model::{AgentSession, ApiCaller, Node, NodeId, ProvisionState, UnixMs};
use trivet_rack::{BootLimitRule, IpmiTiming, NodeLimits, RackFilePaths, RackOutput, Settings};
use trivet_store::Store;

use crate::appliance::deliver_image_reports;
use crate::cache::{ImageCache, ImageCacheOptions};
use crate::clock::{DaemonClock, DaemonEntropy};
use crate::engine::{self, Engine, EngineError};

/// A temporary directory.
pub(crate) struct TestbedDirectory(pub(crate) PathBuf);

impl TestbedDirectory {
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("trivet-test-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).unwrap();
        Self(path.canonicalize().unwrap())
    }

    pub(crate) fn file(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        path
    }
}

impl Drop for TestbedDirectory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Settings of a box that serves `files/` and `loaders/` of a directory.
pub(crate) fn settings(directory: &Path) -> Settings {
    Settings {
        dhcp: None,
        api_url: "http://192.0.2.1:6385".to_owned(),
        http_url: "http://192.0.2.1:8080".to_owned(),
        https_url: String::new(),
        wildcard_listeners: trivet_rack::WildcardListeners::default(),
        images: trivet_images::ImageCatalogue::default(),
        cache: false,
        image_library: trivet_images::ImageLibraryOptions {
            retry_delay_ms: trivet_images::RETRY_DELAY_MS,
            ..trivet_images::ImageLibraryOptions::default()
        },
        files: RackFilePaths {
            operator: Some(directory.join("files")),
            loaders: Some(directory.join("loaders")),
            agent_from_other_server: true,
            ..RackFilePaths::default()
        },
        kernel_args: String::new(),
        heartbeat_timeout_s: 300,
        ca_key: None,
        agent_requirement: trivet_rack::CertificateRequirement::None,
        agent_addresses: trivet_rack::AgentAddresses {
            any: true,
            ..trivet_rack::AgentAddresses::default()
        },
        limits: NodeLimits::default(),
        pace: IpmiTiming::default(),
        power_sync_interval_ms: None,
        boots_at_once: BootLimitRule::default(),
        images_ahead: Vec::new(),
        hardware: vec!["ipmi".to_owned()],
        faults: Vec::new(),
    }
}

/// A store of this many KiB in a directory.
pub(crate) fn store(directory: &Path, kib: u64, segment_bytes: u32) -> Store<FileFlash> {
    let flash = FileFlash::open(&directory.join("store"), kib << 10).unwrap();
    let key = BoxKeyFile::at(directory.join("store.key"));
    Store::open_with(flash, key, segment_bytes).unwrap()
}

/// A running engine, and the receiver of the reason why it ended.
pub(crate) fn engine(
    settings: Settings,
    directory: &Path,
) -> (Engine, oneshot::Receiver<EngineError>) {
    engine_with_sink(settings, directory, |_| {})
}

/// The same, with a sink for its outputs.
pub(crate) fn engine_with_sink(
    settings: Settings,
    directory: &Path,
    carry: impl FnMut(RackOutput) + Send + 'static,
) -> (Engine, oneshot::Receiver<EngineError>) {
    let store = store(directory, 4096, 256 << 10);
    engine::start(DaemonClock::start(), settings, store, Box::new(carry)).unwrap()
}

/// A running engine with a cache that carries out its orders. Other outputs go to the sink.
pub(crate) fn engine_with_cache(
    settings: Settings,
    directory: &Path,
    mut carry: impl FnMut(RackOutput) + Send + 'static,
) -> (Engine, ImageCache) {
    let options = ImageCacheOptions::plain(DaemonClock::start());
    let (cache, reports) = ImageCache::open(&directory.join("cache"), options).unwrap();
    let images = cache.clone();
    let (engine, _why) = engine_with_sink(settings, directory, move |output| match output {
        RackOutput::Image(order) => images.execute(*order),
        other => carry(other),
    });
    tokio::spawn(deliver_image_reports(reports, engine.clone()));
    (engine, cache)
}

/// The caller of the tests' orders.
pub(crate) fn caller() -> Arc<ApiCaller> {
    let home = std::net::Ipv4Addr::LOCALHOST;
    Arc::new(ApiCaller::agent(home.into()).with_request_line("TEST", "/"))
}

/// A node in `enroll`.
pub(crate) fn node() -> Node {
    Node::new(NodeId::random(&mut DaemonEntropy::new()), "ipmi", UnixMs(1))
}

/// A node with an instance whose agent may send heartbeats.
pub(crate) fn node_with_agent(token: &str) -> Node {
    let mut node = node();
    node.provision_state = ProvisionState::Active;
    node.agent = Some(AgentSession {
        token: token.to_owned(),
        former_token: None,
        url: None,
        verify_ca: None,
        version: None,
        is_clean: false,
        ahead: None,
    });
    node
}

/// Sends these bytes and reads until the peer closes.
pub(crate) async fn raw(to: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(to).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    // A reset after the response is an end as well.
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

/// One request on a new connection: the head and the body of the response.
pub(crate) async fn http_request(
    to: SocketAddr,
    line: &str,
    headers: &str,
    body: &str,
) -> (String, String) {
    let length = body.len();
    let kind = if body.is_empty() || headers.contains("content-type") {
        ""
    } else {
        "content-type: application/json\r\n"
    };
    let request = format!(
        "{line} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {length}\r\n\
         {kind}{headers}\r\n{body}"
    );
    let answer = raw(to, &request).await;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    (head.to_ascii_lowercase(), body.to_owned())
}

/// The files of this directory are removed soon: a worker removes them beside the answer.
pub(crate) async fn expect_no_files(directory: &std::path::Path) {
    let end = tokio::time::Instant::now() + std::time::Duration::from_mins(1);
    loop {
        let names: Vec<_> = std::fs::read_dir(directory)
            .unwrap()
            .map(|file| file.unwrap().file_name())
            .collect();
        if names.is_empty() {
            return;
        }
        assert!(tokio::time::Instant::now() < end, "left: {names:?}");
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
}
