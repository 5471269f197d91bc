//! The shell with a small appliance on loopback.

use super::*;
use std::convert::Infallible;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use trivet_model::SeededRandom;

use super::disk::tests::{ScratchDiskFile, image, sha256};

mod ahead;

/// A client that lets the system choose its address.
fn anybody() -> AgentHttpClient {
    AgentHttpClient {
        own: std::net::IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED),
        trust: None,
    }
}

const NODE: &str = "11111111-2222-4333-8444-555555555555";
const DISK_BYTES: u64 = 16 * 1024 * 1024;

fn token() -> String {
    "A".repeat(43)
}

/// What the appliance received: method and path, body.
type ObservedAgentRequest = (String, Value);

/// The address of the machine.
const OWN: &str = "127.77.42.1";

/// An appliance that knows one node and has one image.
struct AgentTestAppliance {
    url: String,
    requests: mpsc::UnboundedReceiver<ObservedAgentRequest>,
    task: JoinHandle<()>,
}

impl Drop for AgentTestAppliance {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl AgentTestAppliance {
    async fn new(image: Vec<u8>, lookup_token: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (report, seen) = mpsc::unbounded_channel();
        let image = Bytes::from(image);
        let lookup_token = lookup_token.to_owned();
        let task = tokio::spawn(async move {
            loop {
                let (stream, peer) = listener.accept().await.unwrap();
                assert_eq!(
                    peer.ip().to_string(),
                    OWN,
                    "the source address identifies the machine"
                );
                let (report, image, token) = (report.clone(), image.clone(), lookup_token.clone());
                let service = service_fn(move |request| {
                    serve(report.clone(), image.clone(), token.clone(), request)
                });
                tokio::spawn(
                    hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service),
                );
            }
        });
        Self {
            url,
            requests: seen,
            task,
        }
    }

    /// The next heartbeat.
    async fn next_heartbeat(&mut self) -> Value {
        loop {
            let (what, body) = self.requests.recv().await.unwrap();
            if what == format!("POST /v1/heartbeat/{NODE}") {
                return body;
            }
        }
    }
}

async fn serve(
    sender: mpsc::UnboundedSender<ObservedAgentRequest>,
    image: Bytes,
    token: String,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let what = format!("{} {}", request.method(), request.uri().path());
    let range = request.headers().get("range").map(|range| {
        let range = range.to_str().unwrap().strip_prefix("bytes=").unwrap();
        let (from, last) = range.split_once('-').unwrap();
        (
            from.parse::<usize>().unwrap(),
            last.parse::<usize>().unwrap() + 1,
        )
    });
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let answer = |status: u16, body: Bytes| {
        let answer = Response::builder().status(status);
        Ok(answer.body(Full::new(body)).unwrap())
    };
    let body = serde_json::from_slice(&body).unwrap_or_default();
    let part = range.map_or_else(String::new, |(from, to)| format!(" {from}-{to}"));
    sender.send((format!("{what}{part}"), body)).unwrap();
    if what.starts_with("POST /v1/heartbeat/") {
        return answer(202, Bytes::new());
    }
    match what.as_str() {
        "POST /v1/continue_inspection" => {
            answer(202, Bytes::from(json!({ "uuid": NODE }).to_string()))
        }
        "GET /v1/lookup" => {
            let found = json!({"node": {"uuid": NODE}, "config": {
                "heartbeat_timeout": 300, "agent_token": token}});
            answer(200, Bytes::from(found.to_string()))
        }
        "GET /image" | "HEAD /listed" | "HEAD /device" => answer(200, image),
        "GET /listed.chunks" | "GET /device.chunks" => answer(200, list(&image)),
        // From the start one byte of the third chunk is wrong; a later part is right.
        "GET /device" => match range {
            None => {
                let mut whole = image.to_vec();
                whole[2 * CHUNK + 9] ^= 1;
                answer(200, whole.into())
            }
            Some((from, to)) => answer(206, image.slice(from..to.min(image.len()))),
        },
        // The first time one byte of the third chunk is wrong.
        "GET /listed" => {
            let (from, to) = range.expect("it requests the missing chunks");
            let mut part = image.slice(from..to).to_vec();
            if let Some(byte) = part.get_mut(2 * CHUNK + 9) {
                *byte ^= 1;
            }
            answer(206, part.into())
        }
        _ => answer(404, Bytes::new()),
    }
}

const CHUNK: usize = trivet_chunks::CHUNK_BYTES as usize;

/// The chunk list of an image.
fn list(image: &[u8]) -> Bytes {
    let mut list = trivet_chunks::ChunkList::new(&sha256(image));
    let mut running = list.digest_before(0).unwrap();
    for chunk in image.chunks(CHUNK).take(image.len().div_ceil(CHUNK) - 1) {
        running.update(chunk);
        list.push(running.state().unwrap());
    }
    list.bytes().into()
}

/// An agent under test.
struct AgentUnderTest {
    power: watch::Sender<bool>,
    events: mpsc::Receiver<AgentShellEvent>,
    run: JoinHandle<Result<AgentExit, ShellError>>,
    disk: ScratchDiskFile,
}

/// An agent on loopback, with a file as disk.
fn options(appliance: Option<&AgentTestAppliance>, disk: &ScratchDiskFile) -> AgentOptions {
    AgentOptions {
        api_url: appliance.map(|appliance| appliance.url.clone()),
        inspection_url: None,
        listen: format!("{OWN}:0").parse().unwrap(),
        advertise: None,
        advertise_port: None,
        client: AgentHttpClient {
            own: OWN.parse().unwrap(),
            trust: None,
        },
        tls: None,
        api_minor: 68,
        identity: AgentMachineIdentity {
            macs: vec!["52:54:00:aa:bb:01".parse().unwrap()],
            inventory: json!({"interfaces": [{"mac_address": "52:54:00:aa:bb:01"}]}),
            node: None,
            token: None,
            inspection: None,
            managers: Vec::new(),
        },
        target: AgentTarget::File {
            path: disk.0.clone(),
            bytes: DISK_BYTES,
        },
        rescue: None,
        ignores_bootloader_failure: false,
        intervals: AgentIntervals {
            gap_ms: 1,
            retry_ms: 1,
            ..AgentIntervals::FAST
        },
        managers: Vec::new(),
        logs: || NO_LOGS.to_owned(),
    }
}

impl AgentUnderTest {
    fn start(appliance: &AgentTestAppliance, inspect: bool) -> Self {
        let disk = ScratchDiskFile::new();
        let inspection_url = format!("{}/v1/continue_inspection", appliance.url);
        let options = AgentOptions {
            inspection_url: inspect.then_some(inspection_url),
            rescue: Some(disk.0.with_extension("rescue")),
            ..options(Some(appliance), &disk)
        };
        Self::run(options, disk)
    }

    fn run(options: AgentOptions, disk: ScratchDiskFile) -> Self {
        let (power, on) = watch::channel(true);
        let (report, events) = mpsc::channel(1024);
        let run = tokio::spawn(run(options, on, report, Box::new(SeededRandom::new(1))));
        Self {
            power,
            events,
            run,
            disk,
        }
    }

    async fn event(&mut self, wanted: impl Fn(&AgentShellEvent) -> bool) -> AgentShellEvent {
        loop {
            let event = self.events.recv().await.expect("the agent still runs");
            if wanted(&event) {
                return event;
            }
        }
    }

    async fn cut_power(self) -> AgentExit {
        self.power.send(false).unwrap();
        self.run.await.unwrap().unwrap()
    }
}

async fn order(callback: &str, token: &str, name: &str, params: &Value) -> (u16, Value) {
    let url = format!("{callback}/v1/commands/?wait=true&agent_token={token}");
    let body = json!({"name": name, "params": params}).to_string();
    let (status, body) = anybody()
        .call(("POST", &url), None, body.into_bytes())
        .await;
    (status, serde_json::from_slice(&body).unwrap_or_default())
}

fn write_step(urls: &[String], digest: Digest) -> Value {
    json!({"step": {"step": "write_image", "interface": "deploy", "args": {"image_info": {
               "id": "image", "urls": urls, "os_hash_algo": digest.algorithm(),
               "os_hash_value": digest.to_string(), "disk_format": "raw"}}},
           "node": {}, "ports": [], "deploy_version": null})
}

fn callback(heartbeat: &Value) -> String {
    heartbeat["callback_url"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn writes_the_ordered_image_and_sends_an_early_heartbeat_when_done() {
    let image = image(3 * 1024 * 1024 + 5);
    let digest = sha256(&image);
    let mut appliance = AgentTestAppliance::new(image.clone(), &token()).await;
    let mut machine = AgentUnderTest::start(&appliance, false);
    let first = appliance.next_heartbeat().await;
    assert_eq!(first["agent_token"], token());
    let urls = [format!("{}/image", appliance.url)];
    let name = "deploy.execute_deploy_step";
    let (status, done) = order(
        &callback(&first),
        &token(),
        name,
        &write_step(&urls, digest),
    )
    .await;
    assert_eq!(
        (status, &done["command_status"]),
        (200, &json!("SUCCEEDED")),
        "{done}"
    );
    assert_eq!(done["command_result"]["deploy_step"]["step"], "write_image");
    // The planned interval is at least 90 s: only an early heartbeat arrives now.
    appliance.next_heartbeat().await;
    let wrote = machine
        .event(|event| matches!(event, AgentShellEvent::Wrote { .. }))
        .await;
    let bytes = image.len() as u64;
    assert_eq!(wrote, AgentShellEvent::Wrote { bytes, digest });
    assert!(machine.disk.bytes().starts_with(&image));
    assert_eq!(machine.cut_power().await, AgentExit::PowerCut);
}

#[tokio::test]
async fn a_wrong_chunk_is_fetched_again_and_nothing_else() {
    let image = image(4 * CHUNK + 5);
    let mut appliance = AgentTestAppliance::new(image.clone(), &token()).await;
    let machine = AgentUnderTest::start(&appliance, false);
    let callback = callback(&appliance.next_heartbeat().await);
    let urls = [format!("{}/listed", appliance.url)];
    let name = "deploy.execute_deploy_step";
    let step = write_step(&urls, sha256(&image));
    let (_, done) = order(&callback, &token(), name, &step).await;
    assert_eq!(done["command_status"], "SUCCEEDED", "{done}");
    assert!(machine.disk.bytes().starts_with(&image));
    // Once more: only the bootable part is missing.
    let (_, done) = order(&callback, &token(), name, &step).await;
    assert_eq!(done["command_status"], "SUCCEEDED", "{done}");
    assert!(machine.disk.bytes().starts_with(&image));
    machine.cut_power().await;
    let mut requests = Vec::new();
    while let Ok((what, _)) = appliance.requests.try_recv() {
        requests.extend(what.strip_prefix("GET /listed ").map(str::to_owned));
    }
    let (all, third) = (0..image.len(), 2 * CHUNK..3 * CHUNK);
    let want = [all, third, 0..CHUNK].map(|part| format!("{}-{}", part.start, part.end));
    assert_eq!(requests, want);
}

#[tokio::test]
async fn a_wrong_digest_fails_the_step_and_leaves_nothing_that_boots() {
    let image = image(2 * 1024 * 1024);
    let mut appliance = AgentTestAppliance::new(image, &token()).await;
    let machine = AgentUnderTest::start(&appliance, false);
    let callback = callback(&appliance.next_heartbeat().await);
    let urls = [format!("{}/image", appliance.url)];
    let name = "deploy.execute_deploy_step";
    let step = write_step(&urls, sha256(b"another"));
    let (_, failed) = order(&callback, &token(), name, &step).await;
    assert_eq!(failed["command_status"], "FAILED");
    assert_eq!(failed["command_error"]["type"], "ImageChecksumError");
    assert!(machine.disk.bytes()[..512].iter().all(|&byte| byte == 0));
    machine.cut_power().await;
}

#[tokio::test]
async fn tries_the_other_urls_and_gives_up_after_some_rounds() {
    let image = image(1024);
    let digest = sha256(&image);
    let mut appliance = AgentTestAppliance::new(image, &token()).await;
    let machine = AgentUnderTest::start(&appliance, false);
    let callback = callback(&appliance.next_heartbeat().await);
    let missing = format!("{}/missing", appliance.url);
    let there = format!("{}/image", appliance.url);
    let name = "deploy.execute_deploy_step";
    let step = write_step(
        &["https://tls.example/".to_owned(), missing.clone(), there],
        digest,
    );
    let (_, done) = order(&callback, &token(), name, &step).await;
    assert_eq!(done["command_status"], "SUCCEEDED", "{done}");
    let (_, failed) = order(&callback, &token(), name, &write_step(&[missing], digest)).await;
    assert_eq!(
        failed["command_error"]["type"], "ImageDownloadError",
        "{failed}"
    );
    machine.cut_power().await;
    let mut requested = 0;
    while let Ok((what, _)) = appliance.requests.try_recv() {
        requested += usize::from(what == "GET /missing");
    }
    assert_eq!(requested, 1 + 3);
}

#[tokio::test]
async fn commands_without_the_token_are_refused_and_the_status_needs_none() {
    let before = unix_s();
    let mut appliance = AgentTestAppliance::new(Vec::new(), &token()).await;
    let machine = AgentUnderTest::start(&appliance, false);
    let callback = callback(&appliance.next_heartbeat().await);
    for wrong in ["", "wrong", "******"] {
        let (status, fault) = order(&callback, wrong, "standby.power_off", &json!({})).await;
        assert_eq!(status, 401);
        assert_eq!(fault["faultstring"], "401 Unauthorized: Token invalid.");
    }
    let url = format!("{callback}/v1/status");
    let (status, body) = anybody().call(("GET", &url), None, Vec::new()).await;
    assert_eq!(status, 200);
    let body: Value = serde_json::from_slice(&body).unwrap();
    assert!((before..=unix_s()).contains(&body["started_at"].as_i64().unwrap()));
    machine.cut_power().await;
}

#[tokio::test]
async fn keeps_the_rescue_password_for_the_ramdisk_and_then_ends() {
    let mut appliance = AgentTestAppliance::new(Vec::new(), &token()).await;
    let mut machine = AgentUnderTest::start(&appliance, false);
    let callback = callback(&appliance.next_heartbeat().await);
    let params = json!({"rescue_password": "$6$s$h", "hashed": true});
    let (status, done) = order(&callback, &token(), "rescue.finalize_rescue", &params).await;
    assert_eq!(
        (status, &done["command_status"]),
        (200, &json!("SUCCEEDED"))
    );
    machine
        .event(|event| *event == AgentShellEvent::Rescued)
        .await;
    assert_eq!(machine.run.await.unwrap().unwrap(), AgentExit::Rescued);
    let file = machine.disk.0.with_extension("rescue");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "$6$s$h");
    std::fs::remove_file(file).unwrap();
}

#[tokio::test]
async fn replies_to_the_power_off_command_and_then_ends() {
    let mut appliance = AgentTestAppliance::new(Vec::new(), &token()).await;
    let mut machine = AgentUnderTest::start(&appliance, false);
    let callback = callback(&appliance.next_heartbeat().await);
    let (status, done) = order(&callback, &token(), "standby.power_off", &json!({})).await;
    assert_eq!(
        (status, &done["command_status"]),
        (200, &json!("SUCCEEDED"))
    );
    machine
        .event(|event| *event == AgentShellEvent::PowerOff)
        .await;
    assert_eq!(machine.run.await.unwrap().unwrap(), AgentExit::PowerOff);
}

#[tokio::test]
async fn posts_inspection_data_before_the_lookup() {
    let mut appliance = AgentTestAppliance::new(Vec::new(), &token()).await;
    let mut machine = AgentUnderTest::start(&appliance, true);
    let (what, body) = appliance.requests.recv().await.unwrap();
    assert_eq!(what, "POST /v1/continue_inspection");
    assert_eq!(
        body["inventory"]["interfaces"][0]["mac_address"],
        "52:54:00:aa:bb:01"
    );
    machine
        .event(|event| *event == AgentShellEvent::Inspected(202))
        .await;
    let node: NodeId = NODE.parse().unwrap();
    machine
        .event(|event| *event == AgentShellEvent::LookedUp(node))
        .await;
    machine
        .event(|event| *event == AgentShellEvent::Heartbeat(202))
        .await;
    machine.cut_power().await;
}

#[tokio::test]
async fn the_mask_leaves_it_stuck_until_the_power_is_cut() {
    let appliance = AgentTestAppliance::new(Vec::new(), "******").await;
    let mut machine = AgentUnderTest::start(&appliance, false);
    machine
        .event(|event| *event == AgentShellEvent::Stuck)
        .await;
    assert_eq!(machine.cut_power().await, AgentExit::PowerCut);
}

#[tokio::test]
async fn a_power_cut_during_a_write_ends_it_and_leaves_nothing_that_boots() {
    // A server that sends half an image and then nothing.
    let stalling = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/image", stalling.local_addr().unwrap());
    let mut appliance = AgentTestAppliance::new(Vec::new(), &token()).await;
    let mut machine = AgentUnderTest::start(&appliance, false);
    let callback = callback(&appliance.next_heartbeat().await);
    let image = image(10 * 1024 * 1024);
    let step = write_step(&[url], sha256(&image));
    let token = token();
    let ordering = order(&callback, &token, "deploy.execute_deploy_step", &step);
    let stall = async {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        // It has no chunk list.
        let (mut stream, _) = stalling.accept().await.unwrap();
        let mut request = [0; 4096];
        assert!(stream.read(&mut request).await.unwrap() > 0);
        let none = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n";
        stream.write_all(none).await.unwrap();
        let (mut stream, _) = stalling.accept().await.unwrap();
        assert!(stream.read(&mut request).await.unwrap() > 0);
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", image.len());
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(&image[..image.len() / 2]).await.unwrap();
        machine
            .event(|event| matches!(event, AgentShellEvent::Writing { .. }))
            .await;
        stream
    };
    tokio::select! {
        _ = ordering => panic!("the step cannot end"),
        _stream = stall => {
            let disk = machine.disk.0.clone();
            machine.power.send(false).unwrap();
            assert_eq!(machine.run.await.unwrap().unwrap(), AgentExit::PowerCut);
            let found = std::fs::read(disk).unwrap();
            assert!(found[..1024 * 1024].iter().all(|&byte| byte == 0));
        }
    }
}

#[tokio::test]
async fn names_the_address_that_is_in_use() {
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let listen = taken.local_addr().unwrap();
    let scratch = ScratchDiskFile::new();
    let options = AgentOptions {
        listen,
        ..options(None, &scratch)
    };
    let (_power, on) = watch::channel(true);
    let (report, _events) = mpsc::channel(1);
    let error = run(options, on, report, Box::new(SeededRandom::new(1)))
        .await
        .unwrap_err();
    assert!(error.to_string().contains(&listen.to_string()), "{error}");
}

#[tokio::test]
async fn serves_tls_with_the_certificate_of_its_heartbeats() {
    let mut appliance = AgentTestAppliance::new(Vec::new(), &token()).await;
    let disk = ScratchDiskFile::new();
    let now_unix_s = crate::program::unix_s();
    let options = AgentOptions {
        tls: Some(AgentTlsIdentity::create(OWN, now_unix_s, None).unwrap()),
        ..options(Some(&appliance), &disk)
    };
    let machine = AgentUnderTest::run(options, disk);
    let heartbeat = appliance.next_heartbeat().await;
    let url = format!("{}/v1/status", callback(&heartbeat));
    assert!(url.starts_with(&format!("https://{OWN}:")), "{url}");
    let certificate = heartbeat["agent_verify_ca"].as_str().unwrap();
    let trusting = |certificate: &str| AgentHttpClient {
        trust: Some(Arc::new(
            trivet_net_tls::pinned_client_config(certificate).unwrap(),
        )),
        ..anybody()
    };
    let (status, _) = trusting(certificate)
        .call(("GET", &url), None, Vec::new())
        .await;
    assert_eq!(status, 200);
    let other = AgentTlsIdentity::create(OWN, now_unix_s, None).unwrap();
    let (status, _) = trusting(&other.certificate_pem)
        .call(("GET", &url), None, Vec::new())
        .await;
    assert_eq!(status, NO_ANSWER);
    // A peer without TLS gets no response, and does not stop the listener.
    let plain = url.replace("https", "http");
    assert_eq!(
        anybody().call(("GET", &plain), None, Vec::new()).await.0,
        NO_ANSWER
    );
    let (status, _) = trusting(certificate)
        .call(("GET", &url), None, Vec::new())
        .await;
    assert_eq!(status, 200);
    machine.cut_power().await;
}

/// A manager that is a type and not a program.
#[derive(Debug)]
struct CountingManager;

impl HardwareManager for CountingManager {
    fn name(&self) -> &'static str {
        "counting"
    }

    fn version(&self) -> &'static str {
        "1.0"
    }

    fn evaluate_hardware_support(&self) -> u8 {
        3
    }

    fn steps(
        &self,
        _: trivet_model::StepKind,
        _: &Value,
        _: &Value,
    ) -> Result<Vec<trivet_agent_wire::IpaStep>, ManagerError> {
        Ok(vec![
            serde_json::from_value(json!({"step": "count", "priority": 7})).unwrap(),
        ])
    }

    fn execute(
        &self,
        _: trivet_model::StepKind,
        step: &Value,
        _: &Value,
        _: &Value,
    ) -> Result<Value, ManagerError> {
        match step["step"].as_str() {
            Some("count") => Ok(json!(3)),
            _ => Err(ManagerError::Incompatible),
        }
    }
}

#[tokio::test]
async fn steps_of_added_managers_are_listed_executed_and_passed_on() {
    let mut appliance = AgentTestAppliance::new(Vec::new(), &token()).await;
    let disk = ScratchDiskFile::new();
    let mut options = AgentOptions {
        managers: vec![Arc::new(CountingManager)],
        ..options(Some(&appliance), &disk)
    };
    options.identity.managers = vec![crate::hardware_manager::ManagerFacts {
        name: "counting".to_owned(),
        version: "1.0".to_owned(),
        support: 3,
    }];
    let machine = AgentUnderTest::run(options, disk);
    let callback = callback(&appliance.next_heartbeat().await);
    let (_, listed) = order(&callback, &token(), "clean.get_clean_steps", &json!({})).await;
    let steps = &listed["command_result"]["clean_steps"];
    assert_eq!(steps["counting"][0]["step"], "count", "{listed}");
    assert_eq!(steps["TrivetHardwareManager"].as_array().unwrap().len(), 2);
    let execute = async |step: &str| {
        let params = json!({"step": {"step": step, "interface": "deploy"}, "node": {}, "ports": [],
            "clean_version": listed["command_result"]["hardware_manager_version"]});
        order(&callback, &token(), "clean.execute_clean_step", &params)
            .await
            .1
    };
    assert_eq!(execute("count").await["command_result"]["clean_result"], 3);
    let erased = execute("erase_devices_metadata").await;
    assert_eq!(erased["command_status"], "SUCCEEDED", "{erased}");
    let simulated = &erased["command_result"]["clean_result"];
    assert_eq!(simulated, &Value::Null, "a simulated disk proves nothing");
    let unknown = execute("burn").await;
    assert_eq!(
        unknown["command_error"]["type"],
        "HardwareManagerMethodNotFound"
    );
    machine.cut_power().await;
}

#[tokio::test]
async fn collected_logs_are_an_archive() {
    let mut appliance = AgentTestAppliance::new(Vec::new(), &token()).await;
    let disk = ScratchDiskFile::new();
    let options = AgentOptions {
        logs: || "H4sIlogs".to_owned(),
        ..options(Some(&appliance), &disk)
    };
    let machine = AgentUnderTest::run(options, disk);
    let callback = callback(&appliance.next_heartbeat().await);
    let (_, done) = order(&callback, &token(), "log.collect_system_logs", &json!({})).await;
    let logs = done["command_result"]["system_logs"].as_str().unwrap();
    assert_eq!(logs, "H4sIlogs", "{done}");
    machine.cut_power().await;
}

#[tokio::test]
async fn a_locked_down_agent_ends() {
    let mut appliance = AgentTestAppliance::new(Vec::new(), &token()).await;
    let machine = AgentUnderTest::start(&appliance, false);
    let callback = callback(&appliance.next_heartbeat().await);
    let (status, done) = order(&callback, &token(), "system.lockdown", &json!({})).await;
    assert_eq!(
        (status, &done["command_status"]),
        (200, &json!("SUCCEEDED"))
    );
    assert_eq!(machine.run.await.unwrap().unwrap(), AgentExit::Lockdown);
}

/// An agent whose disk is opened as a block device is.
fn with_device(appliance: &AgentTestAppliance) -> AgentUnderTest {
    let disk = ScratchDiskFile::new();
    std::fs::write(&disk.0, vec![7; usize::try_from(DISK_BYTES).unwrap()]).unwrap();
    let options = AgentOptions {
        target: AgentTarget::Device(disk.0.clone()),
        ..options(Some(appliance), &disk)
    };
    AgentUnderTest::run(options, disk)
}

#[tokio::test]
async fn a_wrong_chunk_of_an_image_for_a_device_is_requested_again() {
    let image = image(4 * CHUNK + 512);
    let mut appliance = AgentTestAppliance::new(image.clone(), &token()).await;
    let machine = with_device(&appliance);
    let callback = callback(&appliance.next_heartbeat().await);
    let urls = [format!("{}/device", appliance.url)];
    let params = write_step(&urls, sha256(&image));
    let (_, done) = order(&callback, &token(), "deploy.execute_deploy_step", &params).await;
    assert_eq!(done["command_status"], "SUCCEEDED", "{done}");
    assert!(machine.disk.bytes().starts_with(&image));
    let (_, uuids) = order(
        &callback,
        &token(),
        "standby.get_partition_uuids",
        &json!({}),
    )
    .await;
    assert_eq!(uuids["command_result"]["root uuid"], "0x1a2b3c4d");
    let mut parts = Vec::new();
    while let Ok((what, _)) = appliance.requests.try_recv() {
        if what.starts_with("GET /device ") {
            parts.push(what);
        }
    }
    assert_eq!(
        parts,
        [format!("GET /device {}-{}", 2 * CHUNK, 1_u64 << 62)]
    );
    machine.cut_power().await;
}

#[tokio::test]
async fn a_wrong_image_for_a_device_fails_and_leaves_nothing_that_boots() {
    let image = image(2 * CHUNK);
    let mut appliance = AgentTestAppliance::new(image.clone(), &token()).await;
    let mut machine = with_device(&appliance);
    let callback = callback(&appliance.next_heartbeat().await);
    let urls = [format!("{}/image", appliance.url)];
    let params = write_step(&urls, sha256(b"another"));
    let (_, done) = order(&callback, &token(), "deploy.execute_deploy_step", &params).await;
    assert_eq!(
        done["command_error"]["type"], "ImageChecksumError",
        "{done}"
    );
    assert!(machine.disk.bytes()[..CHUNK].iter().all(|&byte| byte == 0));
    // Metadata are erased at both ends.
    let params = json!({"step": {"step": "erase_devices_metadata", "interface": "deploy"},
                        "node": {}, "ports": []});
    let (_, done) = order(&callback, &token(), "clean.execute_clean_step", &params).await;
    assert_eq!(done["command_status"], "SUCCEEDED", "{done}");
    let end = machine
        .disk
        .bytes()
        .split_off(usize::try_from(DISK_BYTES).unwrap() - CHUNK);
    assert!(end.iter().all(|&byte| byte == 0));
    let path = machine.disk.0.to_str().unwrap().to_owned();
    let evidence = &done["command_result"]["clean_result"][&path];
    assert_eq!(evidence["method"], "metadata", "{done}");
    let note = machine
        .event(|event| matches!(event, AgentShellEvent::Erasing { .. }))
        .await;
    let (device, words) = (path, "erased by metadata".to_owned());
    let logged = AgentShellEvent::Erasing {
        device,
        note: words,
    };
    assert_eq!(note, logged);
    machine.cut_power().await;
}

/// The step for an image of one file system.
fn partition_step(urls: &[String], digest: Digest, root_mb: u64) -> Value {
    let mut params = write_step(urls, digest);
    let info = &mut params["step"]["args"]["image_info"];
    info["image_type"] = json!("partition");
    for (name, mib) in [("root_mb", root_mb), ("swap_mb", 2), ("ephemeral_mb", 0)] {
        info[name] = json!(mib);
    }
    info["ephemeral_format"] = Value::Null;
    info["preserve_ephemeral"] = json!(false);
    params["node"] = json!({"properties": {"capabilities": "boot_mode:bios"}});
    params
}

#[tokio::test]
async fn a_partition_image_gets_its_partitions() {
    let image = image(2 * CHUNK + 512);
    let mut appliance = AgentTestAppliance::new(image.clone(), &token()).await;
    let machine = with_device(&appliance);
    let callback = callback(&appliance.next_heartbeat().await);
    let urls = [format!("{}/image", appliance.url)];
    let params = partition_step(&urls, sha256(&image), 8);
    let (_, done) = order(&callback, &token(), "deploy.execute_deploy_step", &params).await;
    assert_eq!(done["command_status"], "SUCCEEDED", "{done}");
    let disk = machine.disk.bytes();
    // The table, swap, and root as the last one.
    assert_eq!(disk[510..512], [0x55, 0xaa]);
    assert_eq!(disk[(1 << 20) + 4086..(1 << 20) + 4096], *b"SWAPSPACE2");
    assert!(disk[3 << 20..].starts_with(&image));
    let (_, uuids) = order(
        &callback,
        &token(),
        "standby.get_partition_uuids",
        &json!({}),
    )
    .await;
    let identifier = u32::from_le_bytes([disk[440], disk[441], disk[442], disk[443]]);
    let want = json!({"root uuid": format!("{identifier:08x}-02")});
    assert_eq!(uuids["command_result"], want);
    let result = &done["command_result"]["deploy_result"];
    assert!(result.as_str().unwrap().contains("-02"), "{done}");
    machine.cut_power().await;
}

#[tokio::test]
async fn partitions_that_do_not_fit_fail_the_step_and_erase_nothing() {
    let image = image(2 * CHUNK);
    let mut appliance = AgentTestAppliance::new(image.clone(), &token()).await;
    let machine = with_device(&appliance);
    let callback = callback(&appliance.next_heartbeat().await);
    let urls = [format!("{}/image", appliance.url)];
    let params = partition_step(&urls, sha256(&image), 100);
    let (_, done) = order(&callback, &token(), "deploy.execute_deploy_step", &params).await;
    let error = &done["command_error"];
    assert_eq!(error["type"], "ImageWriteError", "{done}");
    let details = error["details"].as_str().unwrap();
    assert!(details.contains("103 MiB"), "{details}");
    assert!(machine.disk.bytes().iter().all(|&byte| byte == 7));
    // An image that is larger than its partition is named as such.
    let params = partition_step(&urls, sha256(&image), 1);
    let (_, done) = order(&callback, &token(), "deploy.execute_deploy_step", &params).await;
    let details = done["command_error"]["details"].as_str().unwrap();
    assert!(details.contains("root partition is too small"), "{details}");
    machine.cut_power().await;
}

#[tokio::test]
async fn a_disk_that_no_firmware_boots_needs_no_boot_entry() {
    let mut appliance = AgentTestAppliance::new(Vec::new(), &token()).await;
    let machine = with_device(&appliance);
    let callback = callback(&appliance.next_heartbeat().await);
    let params = json!({"root_uuid": "0x1a2b3c4d", "target_boot_mode": "uefi"});
    let (_, done) = order(&callback, &token(), "image.install_bootloader", &params).await;
    assert_eq!(done["command_status"], "SUCCEEDED", "{done}");
    assert_eq!(done["command_result"], Value::Null);
    machine.cut_power().await;
}
