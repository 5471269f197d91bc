//! A simulated Redfish service on a free loopback port, for interoperability tests with real
//! clients. Prints `port N`, then one line per action that a client requested.
//!
//! `redfish_server USER PASSWORD [--tls CERT.pem KEY.pem] [--lag MS] [--task MS] [--no-sessions]
//! [--machines N]`

use std::env;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::{ServerConfig, ServerConnection, StreamOwned};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use trivet_bmc_redfish::service::{RedfishSimulator, RedfishSimulatorSetup};
use trivet_bmc_redfish::{
    BmcHttpCredentials, BmcHttpMethod, BmcHttpRequest, BmcHttpResponse, HTTP_BODY_BYTES_MAX,
};
use trivet_model::secret::SecretText;
use trivet_model::{Entropy, Tick};

/// Longest header of a request, in bytes.
const HEAD_BYTES_MAX: usize = 16 * 1024;

type RedfishExampleResult<T> = Result<T, Box<dyn std::error::Error>>;

/// Random bytes from the operating system.
struct RedfishExampleEntropy(std::fs::File);

impl Entropy for RedfishExampleEntropy {
    fn fill(&mut self, out: &mut [u8]) {
        self.0.read_exact(out).expect("the system has random bytes");
    }
}

/// Prints a line; a write error is ignored, because the reader may have exited.
fn print_line(line: &str) {
    let mut out = std::io::stdout().lock();
    let _unread = writeln!(out, "{line}").and_then(|()| out.flush());
}

fn tls(certificate: &str, key: &str) -> RedfishExampleResult<Arc<ServerConfig>> {
    let chain = CertificateDer::pem_file_iter(certificate)?.collect::<Result<_, _>>()?;
    let key = PrivateKeyDer::from_pem_file(key)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    Ok(Arc::new(config))
}

/// Reads one request; `None` if it is not HTTP.
fn read(stream: &mut impl Read) -> RedfishExampleResult<Option<BmcHttpRequest>> {
    let mut bytes = Vec::new();
    let mut piece = [0; 4096];
    loop {
        let mut headers = [httparse::EMPTY_HEADER; 64];
        let mut head = httparse::Request::new(&mut headers);
        if let httparse::Status::Complete(end) = head.parse(&bytes)? {
            let Some(mut request) = request(&head) else {
                return Ok(None);
            };
            let length = head
                .headers
                .iter()
                .find(|one| one.name.eq_ignore_ascii_case("content-length"));
            let length = length.and_then(|one| std::str::from_utf8(one.value).ok()?.parse().ok());
            let length: usize = length.unwrap_or(0).min(HTTP_BODY_BYTES_MAX);
            let mut body = bytes.split_off(end);
            while body.len() < length {
                let count = stream.read(&mut piece)?;
                if count == 0 {
                    return Ok(None);
                }
                body.extend(&piece[..count]);
            }
            if length > 0 {
                request.body = Some(SecretText::new(String::from_utf8(body)?));
            }
            return Ok(Some(request));
        }
        let count = stream.read(&mut piece)?;
        if count == 0 || bytes.len() > HEAD_BYTES_MAX {
            return Ok(None);
        }
        bytes.extend(&piece[..count]);
    }
}

fn request(head: &httparse::Request<'_, '_>) -> Option<BmcHttpRequest> {
    let method = match head.method? {
        "GET" => BmcHttpMethod::Get,
        "POST" => BmcHttpMethod::Post,
        "PATCH" => BmcHttpMethod::Patch,
        "DELETE" => BmcHttpMethod::Delete,
        _ => return None,
    };
    let text = |value| std::str::from_utf8(value).ok();
    let headers = || head.headers.iter();
    Some(BmcHttpRequest {
        method,
        path: head.path?.to_owned(),
        credentials: headers()
            .find_map(|one| BmcHttpCredentials::of_header(one.name, text(one.value)?)),
        if_match: headers()
            .find(|one| one.name.eq_ignore_ascii_case("if-match"))
            .and_then(|one| text(one.value).map(str::to_owned)),
        body: None,
    })
}

fn write(stream: &mut impl Write, answer: &BmcHttpResponse) -> std::io::Result<()> {
    let status = answer.status;
    let mut head = vec![format!("HTTP/1.1 {status} X\r\nConnection: close")];
    let has_body = status != 204;
    let length = has_body.then(|| answer.body.len().to_string());
    let token = answer.token.as_ref().map(|token| token.reveal().to_owned());
    let again = answer.retry_after_s.map(|seconds| seconds.to_string());
    for (name, value) in [
        (
            "Content-Type",
            has_body.then(|| "application/json".to_owned()),
        ),
        ("Content-Length", length),
        ("X-Auth-Token", token),
        ("Location", answer.location.clone()),
        ("ETag", answer.etag.clone()),
        ("Retry-After", again),
    ] {
        head.extend(value.map(|value| format!("{name}: {value}")));
    }
    let head = head.join("\r\n");
    stream.write_all(format!("{head}\r\n\r\n").as_bytes())?;
    stream.write_all(&answer.body)?;
    stream.flush()
}

struct RedfishExampleServer {
    service: RedfishSimulator,
    entropy: RedfishExampleEntropy,
    started: Instant,
}

impl RedfishExampleServer {
    fn serve(&mut self, stream: &mut (impl Read + Write)) -> RedfishExampleResult<()> {
        let Some(request) = read(stream)? else {
            return Ok(());
        };
        let ms = u64::try_from(self.started.elapsed().as_millis())?;
        let now = Tick::default().after_ms(ms);
        let answer = self.service.handle(now, &request, &mut self.entropy);
        for action in self.service.take_actions() {
            print_line(&format!("{action:?}"));
        }
        // A service that is restarting sends no response.
        if let Some(answer) = answer {
            write(stream, &answer)?;
        }
        Ok(())
    }
}

fn main() -> RedfishExampleResult<()> {
    let mut arguments = env::args().skip(1);
    let usage = "usage: redfish_server USER PASSWORD [OPTIONS]";
    let user = arguments.next().ok_or(usage)?;
    let password = arguments.next().ok_or(usage)?;
    let mut setup = RedfishSimulatorSetup {
        user: Some((user, SecretText::new(password))),
        ..RedfishSimulatorSetup::default()
    };
    let mut config = None;
    while let Some(word) = arguments.next() {
        let mut next = || arguments.next().ok_or(usage);
        match word.as_str() {
            "--tls" => config = Some(tls(&next()?, &next()?)?),
            "--lag" => setup.lag_ms = next()?.parse()?,
            "--task" => setup.task_ms = Some(next()?.parse()?),
            "--machines" => setup.machines = next()?.parse()?,
            "--no-sessions" => setup.sessions = false,
            _ => return Err(usage.into()),
        }
    }
    let listener = TcpListener::bind("127.0.0.1:0")?;
    print_line(&format!("port {}", listener.local_addr()?.port()));
    #[expect(clippy::disallowed_methods, reason = "the example is its own shell")]
    let started = Instant::now();
    let mut server = RedfishExampleServer {
        service: RedfishSimulator::new(setup),
        entropy: RedfishExampleEntropy(std::fs::File::open("/dev/urandom")?),
        started,
    };
    loop {
        let (mut stream, _): (TcpStream, _) = listener.accept()?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        let served = match &config {
            None => server.serve(&mut stream),
            Some(config) => {
                let connection = ServerConnection::new(config.clone())?;
                let mut stream = StreamOwned::new(connection, stream);
                let served = server.serve(&mut stream);
                stream.conn.send_close_notify();
                let _ = stream.flush();
                served
            }
        };
        if let Err(error) = served {
            print_line(&format!("error {error}"));
        }
    }
}
