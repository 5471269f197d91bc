//! Enrolment over TLS: from a proven signing request to a lookup that needs the certificate.

use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use trivet_agent_wire::{EnrolmentAnswer, EnrolmentBody};
use trivet_certs_enrol::{EnrolmentToken, prove};
use trivet_model::{Job, JobKind, JobPhase, Node, NodeEnrolment, Port, PortId, ProvisionState};
use trivet_net_tls::{ClientIdentity, trusting_client_config};

use super::*;
use crate::tls_identity::{self, ServerCertificate};

const MAC: &str = "52:54:00:00:00:01";

const KEY: &str = include_str!("../../../../../net/tls/testdata/node.key");
const CSR: &str = include_str!("../../../../../net/tls/testdata/node.csr");

fn csr() -> Vec<u8> {
    let digits: String = CSR.split_whitespace().collect();
    let pairs = (0..digits.len()).step_by(2);
    pairs
        .map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap())
        .collect()
}

fn token() -> EnrolmentToken {
    EnrolmentToken::from([7; 24])
}

/// A node under inspection, whose BMC has the token.
fn node() -> Node {
    let mut node = testbed::node();
    node.provision_state = ProvisionState::InspectWait;
    node.job = Some(Job {
        kind: JobKind::Inspect,
        phase: JobPhase::AwaitAgent,
        step_kind: None,
        manual: false,
        steps: Vec::new(),
        at: 0,
        versions: std::collections::BTreeMap::new(),
        tries: 0,
        boots: Some(std::num::NonZeroU32::MIN),
        heartbeat_lost_at: None,
        abort_after: None,
        deployment: None,
        has_inspection_data: false,
        awaits_source: false,
        agent_query: None,
    });
    node.enrolment = Some(NodeEnrolment {
        token: token().to_text(),
        redeemed: None,
    });
    node
}

fn port(node: NodeId) -> Port {
    Port {
        id: PortId::random(&mut DaemonEntropy::new()),
        revision: 0,
        serial: 0,
        node,
        address: MAC.parse().unwrap(),
        pxe_enabled: true,
        extra: serde_json::Map::new(),
        attributes: trivet_model::attributes::PortAttributes::default(),
        created_at: trivet_model::UnixMs(1),
        updated_at: None,
    }
}

/// An API over TLS with a node that awaits its agent.
async fn secure_api() -> (ServedApi, Arc<Authority>, NodeId) {
    let mut one = served_api(|_| Authenticator::Open).await;
    let clock = DaemonClock::start();
    let authority = tls_identity::authority(&one.scratch.0, "box", clock).unwrap();
    let home = vec![IpAddr::from([127, 0, 0, 1])];
    let certificate = ServerCertificate::new(authority, Vec::new(), home, clock.now()).unwrap();
    let authority = certificate.node_trust().authority;
    let old = &one.api;
    let api = Arc::new(ApiService {
        engine: old.engine.clone(),
        facts: old.facts.clone(),
        auth: Authenticator::Open,
        clock,
        cache: old.cache.clone(),
        logs: old.logs.clone(),
        any_agent_address: true,
        hosts: HostNames::default(),
        authority: Some(Arc::clone(&authority)),
        refusals: RefusalLog::new(clock.now().tick),
        observed: ApiTelemetry::new(false),
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    one.address = listener.local_addr().unwrap();
    let places = http::ConnectionLimit::new(64);
    let waits = http::ClientTimeouts::default();
    let tls = certificate.mutual_tls();
    let handler = handler(api);
    let tasks = &mut one.listeners;
    http::serve(
        tasks,
        vec![listener],
        Some(&tls),
        (&places, waits),
        &handler,
    );
    let node = node();
    let id = node.id;
    let created = RackOrder::CreateNode(Box::new(node));
    one.engine.order(testbed::caller(), created).await.unwrap();
    let created = RackOrder::CreatePort(Box::new(port(id)));
    one.engine.order(testbed::caller(), created).await.unwrap();
    (one, authority, id)
}

/// One request over TLS: status and body, or an error of TLS.
async fn request(
    one: &ServedApi,
    config: ClientConfig,
    line: &str,
    body: &str,
) -> std::io::Result<(u16, String)> {
    let connector = TlsConnector::from(Arc::new(config));
    let stream = TcpStream::connect(one.address).await.unwrap();
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let mut stream = connector.connect(name, stream).await?;
    let length = body.len();
    let text = format!(
        "{line} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\ncontent-length: {length}\r\n\
         {JSON}\r\n{body}"
    );
    stream.write_all(text.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Ok((status, body.to_owned()))
}

fn client(authority: &Authority) -> ClientConfig {
    trusting_client_config(authority.certificate_pem()).unwrap()
}

fn enrolment(token: &EnrolmentToken) -> String {
    let body = EnrolmentBody {
        addresses: vec![MAC.to_owned()],
        csr: STANDARD.encode(csr()),
        proof: STANDARD.encode(prove(token, &csr())),
    };
    json!(body).to_string()
}

const LOOKUP: &str = "GET /v1/lookup?addresses=52:54:00:00:00:01";

#[tokio::test]
async fn a_proven_request_leads_to_a_certificate_that_lookups_need_then() {
    let (one, authority, id) = secure_api().await;
    let body = enrolment(&token());
    let enrol = request(&one, client(&authority), "POST /trivet/enrol", &body);
    let (status, answer) = enrol.await.unwrap();
    assert_eq!(status, 200, "{answer}");
    let answer: EnrolmentAnswer = serde_json::from_str(&answer).unwrap();
    assert_eq!(answer.node, id.to_string());
    assert_eq!(answer.ca, authority.certificate_pem());
    let identity = ClientIdentity::load(&answer.certificate, KEY).unwrap();
    let (status, answer) = request(&one, client(&authority), LOOKUP, "").await.unwrap();
    assert_eq!(status, 403, "{answer}");
    assert!(!answer.contains(&id.to_string()), "{answer}");
    let shown = identity.shown_by(client(&authority));
    let (status, answer) = request(&one, shown, LOOKUP, "").await.unwrap();
    assert_eq!(status, 200, "{answer}");
    assert!(answer.contains(&id.to_string()), "{answer}");
    // Programs without a certificate still read, and a probe of the stock agent is answered.
    let (status, _) = request(&one, client(&authority), "GET /", "")
        .await
        .unwrap();
    assert_eq!(status, 200);
    let notes = one.notes.lock().unwrap().join("\n");
    assert!(notes.contains("got a certificate"), "{notes}");
    assert!(notes.contains("read the token in its BMC"), "{notes}");
}

#[tokio::test]
async fn wrong_proofs_and_requests_lead_to_nothing() {
    let (one, authority, id) = secure_api().await;
    let wrong = enrolment(&EnrolmentToken::from([8; 24]));
    let enrol = request(&one, client(&authority), "POST /trivet/enrol", &wrong);
    let (status, answer) = enrol.await.unwrap();
    assert_eq!(status, 403);
    assert!(!answer.contains(&id.to_string()), "{answer}");
    let broken = json!({"addresses": [MAC], "csr": "AAAA", "proof": "AAAA"}).to_string();
    let enrol = request(&one, client(&authority), "POST /trivet/enrol", &broken);
    let (status, answer) = enrol.await.unwrap();
    assert_eq!(status, 400);
    assert!(answer.contains("csr cannot be used"), "{answer}");
}

#[tokio::test]
async fn a_certificate_of_another_box_ends_the_handshake() {
    let (one, authority, _) = secure_api().await;
    let now_s = DaemonClock::start().now().wall.0 / 1000;
    let other = Authority::create(now_s, "other").unwrap();
    let (chain, key) = other.box_client_certificate(now_s).unwrap();
    let identity = ClientIdentity::load(&chain, &key).unwrap();
    let shown = identity.shown_by(client(&authority));
    assert!(request(&one, shown, LOOKUP, "").await.is_err());
}

#[tokio::test]
async fn without_tls_there_is_no_enrolment() {
    let one = served_api(|_| Authenticator::Open).await;
    let body = enrolment(&token());
    let (head, body) = http_request(one.address, "POST /trivet/enrol", JSON, &body).await;
    assert!(head.starts_with("http/1.1 400"), "{head}");
    assert!(body.contains("api.tls"), "{body}");
}
