//! The sources of images: servers over http and https, and local files.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use http_body_util::Empty;
use hyper::header::{
    ACCEPT, AUTHORIZATION, CONTENT_LENGTH, CONTENT_RANGE, ETAG, HOST, HeaderMap, HeaderName,
    IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, LAST_MODIFIED, LOCATION, RANGE, USER_AGENT,
};
use hyper::{Request, Response, Uri};
use rustls::ClientConfig;
use tokio::sync::mpsc;
use tokio::time::timeout;
use trivet_config::RegistrySettings;
use trivet_images::{ImageSourceHead, ImageSourceRequest};
use trivet_model::OciReference;
use trivet_model::secret::SecretText;
use trivet_net_http::{HttpBody, HttpClient, HttpServer, HttpTimeouts};
use trivet_net_tls::{bundled_client_config, system_authorities};

use super::registry::Registries;

/// How long a server may take until its response starts.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// The same for each of the servers that one redirects to.
const TIMEOUTS: HttpTimeouts = HttpTimeouts {
    connect: HEAD_TIMEOUT,
    total: HEAD_TIMEOUT,
};

/// How many redirects are followed.
const REDIRECTS_MAX: usize = 5;

/// Bytes of a local file per read, and how many such pieces may be queued.
const FILE_PIECE_BYTES: usize = 256 * 1024;
const FILE_PIECES_MAX: usize = 8;

/// How servers are reached.
#[derive(Clone, Default)]
pub(crate) struct Origin {
    /// The trusted authorities; without them https is refused.
    pub(crate) tls: Option<Arc<ClientConfig>>,
    /// A proxy, as `host:port`.
    pub(crate) proxy: Option<String>,
    pub(super) registries: Registries,
}

/// What a request has beside the range of bytes.
#[derive(Clone, Copy, Default)]
pub(super) struct OriginHeaders<'a> {
    pub(super) accept: Option<&'static str>,
    /// For the first server only, not for others that it redirects to.
    pub(super) authorization: Option<&'a SecretText>,
}

/// The response at the end of all redirects.
pub(super) struct FollowedResponse {
    pub(super) response: Response<HttpBody>,
    /// It comes from the server of the first request.
    pub(super) is_first_server: bool,
}

impl Origin {
    /// Trusts the system's authorities and those of the file, if one is named.
    pub(crate) fn new(
        ca: Option<&Path>,
        proxy: Option<String>,
        registries: &[RegistrySettings],
    ) -> anyhow::Result<Self> {
        let registries = Registries::new(registries);
        let mut bundles: Vec<String> = system_authorities(None).into_iter().collect();
        if let Some(path) = ca {
            let text = std::fs::read_to_string(path)
                .with_context(|| format!("images.ca: {} cannot be read", path.display()))?;
            bundles.push(text);
        }
        if bundles.is_empty() {
            return Ok(Self {
                tls: None,
                proxy,
                registries,
            });
        }
        let config =
            bundled_client_config(&bundles).context("images.ca: it contains no CA certificate")?;
        let tls = Some(Arc::new(config));
        Ok(Self {
            tls,
            proxy,
            registries,
        })
    }
}

/// The response of a source.
pub(super) struct OriginResponse {
    pub(super) head: ImageSourceHead,
    pub(super) body: OriginBody,
}

/// The body of the response.
pub(super) enum OriginBody {
    Net(HttpBody),
    File(mpsc::Receiver<io::Result<Bytes>>),
    None,
}

impl OriginBody {
    /// The next bytes; none at the end that the protocol signals.
    pub(super) async fn next(&mut self) -> Option<Result<Bytes, String>> {
        match self {
            Self::Net(body) => {
                let piece = body.next().await?;
                Some(piece.map_err(|error| error.to_string()))
            }
            Self::File(pieces) => {
                let piece = pieces.recv().await?;
                Some(piece.map_err(|error| error.to_string()))
            }
            Self::None => None,
        }
    }
}

impl Origin {
    /// Sends a request to a source. An error is the end of a sentence that begins with
    /// the source.
    pub(super) async fn request(
        &self,
        request: &ImageSourceRequest,
    ) -> Result<OriginResponse, String> {
        if let Some(path) = request.url.strip_prefix("file://") {
            return open(path, request).map_err(|error| format!("cannot be read: {error}"));
        }
        let response = if let Ok(reference) = request.url.parse::<OciReference>() {
            self.request_layer(&reference, request).await?
        } else {
            let headers = OriginHeaders::default();
            self.follow_redirects(&request.url, request, headers)
                .await?
                .response
        };
        let head = head(response.status().as_u16(), response.headers());
        let body = OriginBody::Net(response.into_body());
        Ok(OriginResponse { head, body })
    }

    pub(super) async fn follow_redirects(
        &self,
        url: &str,
        request: &ImageSourceRequest,
        headers: OriginHeaders<'_>,
    ) -> Result<FollowedResponse, String> {
        let requested = timeout(HEAD_TIMEOUT, self.follow(url.to_owned(), request, headers)).await;
        requested.unwrap_or_else(|_| Err("does not answer".to_owned()))
    }

    async fn follow(
        &self,
        mut url: String,
        request: &ImageSourceRequest,
        headers: OriginHeaders<'_>,
    ) -> Result<FollowedResponse, String> {
        let first = OriginUrl::parse(&url)?;
        for _ in 0..=REDIRECTS_MAX {
            let place = OriginUrl::parse(&url)?;
            let is_first_server = place.is_same_server(&first);
            let authorization = headers.authorization.filter(|_| is_first_server);
            let headers = OriginHeaders {
                authorization,
                ..headers
            };
            let response = self.get(&place, request, headers).await?;
            let status = response.status().as_u16();
            if !matches!(status, 301 | 302 | 303 | 307 | 308) {
                return Ok(FollowedResponse {
                    response,
                    is_first_server,
                });
            }
            let to = response.headers().get(LOCATION);
            let to = to.and_then(|value| value.to_str().ok());
            let next = place.resolve(to.ok_or("redirects without a Location")?);
            if place.secure && !next.starts_with("https://") {
                return Err(format!("redirects to {next}, which is not https"));
            }
            url = next;
        }
        Err("redirects too often".to_owned())
    }

    async fn get(
        &self,
        place: &OriginUrl,
        sent_request: &ImageSourceRequest,
        headers: OriginHeaders<'_>,
    ) -> Result<Response<HttpBody>, String> {
        let mut request = Request::builder()
            .uri(&place.path)
            .header(HOST, &place.host_header)
            .header(USER_AGENT, concat!("trivet/", env!("CARGO_PKG_VERSION")));
        if let Some(accept) = headers.accept {
            request = request.header(ACCEPT, accept);
        }
        if let Some(authorization) = headers.authorization {
            request = request.header(AUTHORIZATION, authorization.reveal());
        }
        if sent_request.from > 0 || sent_request.to.is_some() {
            let to = sent_request
                .to
                .map_or(String::new(), |to| (to - 1).to_string());
            request = request.header(RANGE, format!("bytes={}-{to}", sent_request.from));
        }
        if let Some(validator) = &sent_request.if_range {
            request = request.header(IF_RANGE, validator);
        }
        if let Some(validator) = &sent_request.if_changed {
            let is_tag = validator.starts_with('"');
            let field = if is_tag {
                IF_NONE_MATCH
            } else {
                IF_MODIFIED_SINCE
            };
            request = request.header(field, validator);
        }
        let request = request
            .body(Empty::<Bytes>::new())
            .map_err(|_| "is not a valid URL".to_owned())?;
        let client = HttpClient::new(TIMEOUTS).through_proxy(self.proxy.clone());
        let server = match (&self.tls, place.secure) {
            (_, false) => HttpServer::plain(&place.host, place.port),
            (Some(tls), true) => HttpServer::secure(&place.host, place.port, Arc::clone(tls)),
            (None, true) => {
                return Err("needs https, and no trusted CA is configured (images.ca)".to_owned());
            }
        };
        let response = client.send(&server, request).await;
        response.map_err(|error| error.to_string())
    }
}

/// What the head of a response says about the file.
fn head(status: u16, headers: &HeaderMap) -> ImageSourceHead {
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    // A weak tag does not identify single bytes (RFC 9110, section 13.1.5).
    let tag = text(ETAG).filter(|tag| !tag.starts_with("W/"));
    let range = text(CONTENT_RANGE).and_then(|text| {
        let (bounds, total) = text.strip_prefix("bytes ")?.split_once('/')?;
        let (from, _) = bounds.split_once('-')?;
        Some((from.parse().ok()?, total.parse().ok()))
    });
    ImageSourceHead {
        status,
        length: text(CONTENT_LENGTH).and_then(|text| text.parse().ok()),
        range,
        validator: tag.or_else(|| text(LAST_MODIFIED)).map(str::to_owned),
    }
}

/// Opens a local file.
fn open(path: &str, request: &ImageSourceRequest) -> io::Result<OriginResponse> {
    let path = Path::new(path);
    // Opening a pipe would wait for its writer.
    if !path.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let file = File::open(path)?;
    let facts = file.metadata()?;
    let size = facts.len();
    let to = request.to.unwrap_or(size).min(size);
    let head = ImageSourceHead {
        status: if request.from > size { 416 } else { 206 },
        length: Some(to.saturating_sub(request.from)),
        range: Some((request.from, Some(size))),
        validator: Some(format!(
            "\"{:x}-{:x}.{:x}\"",
            facts.ino(),
            facts.ctime(),
            facts.ctime_nsec()
        )),
    };
    if head.status == 416 {
        let body = OriginBody::None;
        return Ok(OriginResponse { head, body });
    }
    let (pieces, body) = mpsc::channel(FILE_PIECES_MAX);
    let from = request.from;
    tokio::task::spawn_blocking(move || read(&file, from, to, &pieces));
    let body = OriginBody::File(body);
    Ok(OriginResponse { head, body })
}

fn read(file: &File, mut at: u64, to: u64, pieces: &mpsc::Sender<io::Result<Bytes>>) {
    while at < to {
        let length = usize::try_from(to - at).unwrap_or(usize::MAX);
        let mut piece = vec![0; length.min(FILE_PIECE_BYTES)];
        let piece = match file.read_at(&mut piece, at) {
            // The file has become shorter; the receiver counts the bytes and reports
            // that.
            Ok(0) => return,
            Ok(length) => {
                at += length as u64;
                piece.truncate(length);
                Ok(Bytes::from(piece))
            }
            Err(error) => Err(error),
        };
        let over = piece.is_err();
        if pieces.blocking_send(piece).is_err() || over {
            return;
        }
    }
}

/// The address of a server, and the path to request.
struct OriginUrl {
    secure: bool,
    host: String,
    port: u16,
    /// The value of the Host header.
    host_header: String,
    path: String,
}

impl OriginUrl {
    fn parse(url: &str) -> Result<Self, String> {
        let uri: Uri = url.parse().map_err(|_| "is not a URL".to_owned())?;
        let secure = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err("is neither http, https nor file".to_owned()),
        };
        let authority = uri.authority().ok_or("has no host")?;
        if authority.as_str().contains('@') {
            return Err("has a user in it, which is not supported".to_owned());
        }
        let host = authority.host();
        let port = authority
            .port_u16()
            .unwrap_or(if secure { 443 } else { 80 });
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        Ok(Self {
            secure,
            host: host
                .trim_start_matches('[')
                .trim_end_matches(']')
                .to_owned(),
            port,
            host_header: authority.as_str().to_owned(),
            path: path.to_owned(),
        })
    }

    fn is_same_server(&self, other: &Self) -> bool {
        let server = |one: &Self| (one.secure, one.host.to_ascii_lowercase(), one.port);
        server(self) == server(other)
    }

    /// The URL that a redirect means (RFC 9110, section 10.2.2).
    fn resolve(&self, to: &str) -> String {
        let scheme = if self.secure { "https" } else { "http" };
        let base = format!("{scheme}://{}", self.host_header);
        if to.contains("://") {
            return to.to_owned();
        }
        if let Some(rest) = to.strip_prefix("//") {
            return format!("{scheme}://{rest}");
        }
        if to.starts_with('/') {
            return format!("{base}{to}");
        }
        let path = self.path.split('?').next().unwrap_or_default();
        let directory = path.rsplit_once('/').map_or("", |(directory, _)| directory);
        format!("{base}{directory}/{to}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_apart_and_strange_ones_refused() {
        let place = OriginUrl::parse("https://[::1]/a/b?c").unwrap();
        assert!(place.secure);
        assert_eq!((place.host.as_str(), place.port), ("::1", 443));
        assert_eq!(place.path, "/a/b?c");
        let place = OriginUrl::parse("http://h:81").unwrap();
        assert_eq!((place.port, place.path.as_str()), (81, "/"));
        for url in ["ftp://h/x", "/x", "http://u:p@h/x", "", "http://"] {
            assert!(OriginUrl::parse(url).is_err(), "{url}");
        }
    }

    #[test]
    fn redirections_are_relative_to_where_they_come_from() {
        let place = OriginUrl::parse("https://h:8443/a/b?c").unwrap();
        for (to, want) in [
            ("http://o/x", "http://o/x"),
            ("//o/x", "https://o/x"),
            ("/x", "https://h:8443/x"),
            ("x", "https://h:8443/a/x"),
        ] {
            assert_eq!(place.resolve(to), want);
        }
    }

    #[test]
    fn another_port_or_scheme_is_another_server() {
        let place = |url: &str| OriginUrl::parse(url).unwrap();
        let first = place("https://h.example/v2/");
        assert!(place("https://H.example:443/blob?x=1").is_same_server(&first));
        for url in [
            "http://h.example:443/",
            "https://h.example:444/",
            "https://h.example.com/",
        ] {
            assert!(!place(url).is_same_server(&first), "{url}");
        }
    }

    #[test]
    fn heads_show_what_can_be_continued() {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_RANGE, "bytes 5-9/10".parse().unwrap());
        headers.insert(ETAG, "W/\"x\"".parse().unwrap());
        headers.insert(
            LAST_MODIFIED,
            "Tue, 17 Nov 2026 00:00:00 GMT".parse().unwrap(),
        );
        let message = head(206, &headers);
        assert_eq!(message.range, Some((5, Some(10))));
        let date = "Tue, 17 Nov 2026 00:00:00 GMT";
        assert_eq!(
            message.validator.as_deref(),
            Some(date),
            "the weak tag is not used"
        );
        headers.insert(CONTENT_RANGE, "bytes 5-9/*".parse().unwrap());
        assert_eq!(head(206, &headers).range, Some((5, None)));
        headers.insert(CONTENT_RANGE, "lines 5-9/10".parse().unwrap());
        assert_eq!(head(206, &headers).range, None);
    }
}
