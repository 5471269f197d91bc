//! Lookups and layers at scripted registries on loopback.

use std::net::SocketAddr;
use std::path::PathBuf;

use ring::digest::{SHA256, digest};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use trivet_model::Digest;
use trivet_model::image::ImageFormat;

use super::*;
use crate::testbed::TestbedDirectory;

const LAYER: &[u8] = b"the bytes of a disk";

/// `ann:hunter2`
const LOGIN: &str = "authorization: Basic YW5uOmh1bnRlcjI=";

/// A server that replies by a function of the head of the request, in small letters.
struct ScriptedServer {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
    _task: JoinSet<()>,
}

impl ScriptedServer {
    async fn start(reply: impl Fn(&str) -> Vec<u8> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (seen, reply) = (Arc::clone(&requests), Arc::new(reply));
        let mut task = JoinSet::new();
        task.spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    let Ok(byte) = stream.read_u8().await else {
                        break;
                    };
                    head.push(byte);
                }
                let head = String::from_utf8(head).unwrap();
                let head = head.replace("Authorization", "authorization");
                seen.lock().unwrap().push(head.clone());
                let _ = stream.write_all(&reply(&head)).await;
                let _ = stream.shutdown().await;
            }
        });
        Self {
            address,
            requests,
            _task: task,
        }
    }

    fn reference(&self, object: &str) -> OciReference {
        format!("oci://{}/team/disk{object}", self.address)
            .parse()
            .unwrap()
    }

    /// How many requests have all of these words.
    fn count(&self, words: &[&str]) -> usize {
        let requests = self.requests.lock().unwrap();
        let has = |head: &&String| words.iter().all(|word| head.contains(word));
        requests.iter().filter(has).count()
    }
}

fn reply(status: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n{headers}\r\n"
    );
    [head.as_bytes(), body].concat()
}

fn sha256(bytes: &[u8]) -> Digest {
    Digest::Sha256(digest(&SHA256, bytes).as_ref().try_into().unwrap())
}

fn manifest() -> String {
    let digest = oci_digest(&sha256(LAYER));
    format!(
        "{{\"schemaVersion\": 2, \"layers\": [{{\"digest\": \"{digest}\", \"size\": {}, \
         \"mediaType\": \"application/octet-stream\"}}]}}",
        LAYER.len()
    )
}

fn query(reference: OciReference, secret: Option<&str>) -> OciQuery {
    OciQuery {
        reference,
        architecture: None,
        format: None,
        credentials: secret.and_then(RegistryCredentials::of_pull_secret),
    }
}

async fn resolve(
    origin: &Origin,
    reference: OciReference,
    secret: Option<&str>,
) -> Result<OciImage, OciError> {
    origin.resolve(&query(reference, secret)).await
}

fn layer_request() -> ImageSourceRequest {
    ImageSourceRequest {
        url: String::new(),
        from: 4,
        to: None,
        if_range: None,
        if_changed: None,
    }
}

/// A registry with tokens: its token server is at the same address. It redirects to `blobs` for
/// layers.
async fn with_tokens(blobs: Option<SocketAddr>) -> ScriptedServer {
    ScriptedServer::start(move |head| {
        let host = head.lines().find_map(|line| line.strip_prefix("host: "));
        if head.starts_with("GET /token?") {
            return if head.contains(LOGIN) {
                reply("200 OK", "", b"{\"token\": \"t1\"}")
            } else {
                reply("401 Unauthorized", "", b"")
            };
        }
        if !head.contains("authorization: Bearer t1") {
            let realm = format!("http://{}/token", host.unwrap());
            let header =
                format!("www-authenticate: Bearer realm=\"{realm}\",service=\"registry\"\r\n");
            return reply("401 Unauthorized", &header, b"");
        }
        if head.starts_with("GET /v2/team/disk/manifests/") {
            return reply("200 OK", "", manifest().as_bytes());
        }
        match blobs {
            Some(blobs) => {
                let to = format!("location: http://{blobs}/blob?signature=s\r\n");
                reply("307 Temporary Redirect", &to, b"")
            }
            None => reply("200 OK", "", LAYER),
        }
    })
    .await
}

#[tokio::test]
async fn a_lookup_gets_a_token_and_the_layer_is_requested_with_it() {
    let registry = with_tokens(None).await;
    let origin = Origin::default();
    let reference = registry.reference(":12");
    let found = resolve(&origin, reference.clone(), Some("ann:hunter2"));
    let image = found.await.unwrap();
    assert_eq!(image.layer, sha256(LAYER));
    assert_eq!(image.manifest, sha256(manifest().as_bytes()));
    assert_eq!(image.format, ImageFormat::Raw, "by its first bytes");
    assert_eq!(registry.count(&["range: bytes=0-5"]), 1);
    assert_eq!(
        registry.count(&["GET /token?service=registry&scope=repository%3Ateam%2Fdisk%3Apull"]),
        1
    );
    // The password is for the token server only.
    assert_eq!(registry.count(&[LOGIN]), 1);
    let layer = reference.with_digest(image.layer);
    let response = origin
        .request_layer(&layer, &layer_request())
        .await
        .unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(
        registry.count(&["/blobs/sha256:", "range: bytes=4-", "Bearer t1"]),
        1
    );
    assert_eq!(registry.count(&["GET /token"]), 1, "the token is kept");
}

#[tokio::test]
async fn a_wrong_password_is_reported_and_not_repeated() {
    let registry = with_tokens(None).await;
    let origin = Origin::default();
    let reference = registry.reference(":12");
    let why = resolve(&origin, reference.clone(), Some("ann:wrong"));
    let why = why.await.unwrap_err().to_string();
    assert!(
        why.contains("refused the login of user ann for repository team/disk"),
        "{why}"
    );
    assert!(why.contains("status 401 of its token server"), "{why}");
    assert_eq!(registry.count(&["GET /token"]), 1);
    let why = resolve(&origin, reference.clone(), None);
    let why = why.await.unwrap_err().to_string();
    assert!(
        why.contains("needs a login for repository team/disk"),
        "{why}"
    );
    // A layer after a restart, without and with the secret.
    let layer = reference.with_digest(sha256(LAYER));
    let why = origin.request_layer(&layer, &layer_request()).await;
    let why = why.unwrap_err();
    assert!(why.contains("does not serve it: registry"), "{why}");
    let secret = RegistryCredentials::of_pull_secret("ann:hunter2").unwrap();
    origin.registries.use_credentials(&reference, secret);
    assert!(origin.request_layer(&layer, &layer_request()).await.is_ok());
}

#[tokio::test]
async fn another_server_gets_neither_token_nor_password() {
    let blobs = ScriptedServer::start(|head| {
        if head.contains("authorization") {
            return reply("400 Bad Request", "", b"");
        }
        reply(
            "206 Partial Content",
            "content-range: bytes 4-18/19\r\n",
            &LAYER[4..],
        )
    })
    .await;
    let registry = with_tokens(Some(blobs.address)).await;
    let origin = Origin::default();
    let reference = registry.reference(":12");
    let found = resolve(&origin, reference.clone(), Some("ann:hunter2"));
    let image = found.await.unwrap();
    let layer = reference.with_digest(image.layer);
    let response = origin
        .request_layer(&layer, &layer_request())
        .await
        .unwrap();
    assert_eq!(response.status(), 206);
    assert_eq!(
        blobs.count(&["GET /blob?signature=s", "range: bytes=4-"]),
        1
    );
    assert_eq!(blobs.count(&["authorization"]), 0);
}

/// A challenge of such a server would send the password wherever it wants.
#[tokio::test]
async fn a_challenge_of_another_server_is_not_answered() {
    let blobs = ScriptedServer::start(|_| {
        let header = "www-authenticate: Basic realm=\"x\"\r\n";
        reply("401 Unauthorized", header, b"")
    })
    .await;
    let registry = with_tokens(Some(blobs.address)).await;
    let origin = Origin::default();
    let mut requested = query(registry.reference(":12"), Some("ann:hunter2"));
    requested.format = Some(ImageFormat::Raw);
    let image = origin.resolve(&requested).await.unwrap();
    let layer = requested.reference.with_digest(image.layer);
    let response = origin
        .request_layer(&layer, &layer_request())
        .await
        .unwrap();
    assert_eq!(response.status(), 401, "the fill reports it");
    assert_eq!(blobs.count(&[]), 1);
    assert_eq!(registry.count(&[LOGIN]), 1);
}

#[tokio::test]
async fn the_login_of_the_settings_is_used_without_a_secret_of_the_node() {
    let registry = ScriptedServer::start(|head| {
        if head.contains(LOGIN) {
            return reply("200 OK", "", manifest().as_bytes());
        }
        let header = "www-authenticate: Basic realm=\"Registry\"\r\n";
        reply("401 Unauthorized", header, b"")
    })
    .await;
    let directory = TestbedDirectory::new();
    let path: PathBuf = directory.0.join("password");
    let settings = RegistrySettings {
        host: registry.address.to_string(),
        is_plain: true,
        login: Some(("ann".to_owned(), path.clone())),
    };
    let origin = Origin {
        registries: Registries::new(&[settings]),
        ..Origin::default()
    };
    let mut requested = query(registry.reference(""), None);
    requested.format = Some(ImageFormat::Raw);
    let why = origin.resolve(&requested).await.unwrap_err().to_string();
    assert!(why.contains("password_file of registry"), "{why}");
    std::fs::write(&path, "hunter2\nnot this line\n").unwrap();
    assert!(origin.resolve(&requested).await.is_ok());
    std::fs::write(&path, "other\n").unwrap();
    let why = origin.resolve(&requested).await.unwrap_err().to_string();
    assert!(why.contains("refused the login of user ann"), "{why}");
    requested.credentials = RegistryCredentials::of_pull_secret("ann:hunter2");
    assert!(origin.resolve(&requested).await.is_ok());
}

#[tokio::test]
async fn a_long_or_missing_manifest_is_refused() {
    let long = ScriptedServer::start(|head| {
        if head.contains("/manifests/gone") {
            return reply("404 Not Found", "", b"{\"errors\": []}");
        }
        let body = vec![b' '; trivet_oci::MANIFEST_BYTES_MAX + 1];
        reply("200 OK", "", &body)
    })
    .await;
    let origin = Origin::default();
    let mut authorization = RegistryAuthorization::new(&long.reference(""), None, true);
    let request = OciRequest {
        path: "/v2/team/disk/manifests/latest".to_owned(),
        accept: None,
        range_bytes: None,
        bytes_max: 1000,
    };
    let reference = long.reference("");
    let response = origin.registry_request(&reference, &mut authorization, &request);
    let body = response.await.unwrap().into_body();
    assert!(read_body(body, request.bytes_max, false).await.is_err());
    let response = origin.registry_request(&reference, &mut authorization, &request);
    let body = response.await.unwrap().into_body();
    let start = read_body(body, request.bytes_max, true).await.unwrap();
    assert_eq!(start.len(), 1000);
    let why = resolve(&origin, long.reference(":gone"), None).await;
    let why = why.unwrap_err().to_string();
    assert!(
        why.contains("has no tag gone in repository team/disk"),
        "{why}"
    );
}

#[test]
fn only_registries_of_this_machine_are_reached_without_tls() {
    let section = |host: &str, is_plain: bool| RegistrySettings {
        host: host.to_owned(),
        is_plain,
        login: None,
    };
    let registries = Registries::new(&[
        section("plain.example:5000", true),
        section("127.0.0.1:5001", false),
    ]);
    for (reference, base) in [
        ("oci://h.example/a", "https://h.example"),
        ("oci://192.0.2.1:5000/a", "https://192.0.2.1:5000"),
        ("oci://127.0.0.1:5000/a", "http://127.0.0.1:5000"),
        ("oci://[::1]:5000/a", "http://[::1]:5000"),
        ("oci://127.0.0.1:5001/a", "https://127.0.0.1:5001"),
        ("oci://plain.example:5000/a", "http://plain.example:5000"),
        ("oci://plain.example/a", "https://plain.example"),
    ] {
        let reference: OciReference = reference.parse().unwrap();
        assert_eq!(registries.base_url(&reference), base);
    }
}

#[test]
fn the_number_of_kept_tokens_is_bounded() {
    let registries = Registries::default();
    for number in 0..REPOSITORIES_MAX + 10 {
        let reference: OciReference = format!("oci://h/{number}").parse().unwrap();
        let authorization = RegistryAuthorization::new(&reference, None, false);
        registries.keep(&reference, authorization);
    }
    assert_eq!(registries.authorizations().len(), REPOSITORIES_MAX);
}
