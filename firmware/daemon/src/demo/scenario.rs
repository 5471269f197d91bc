//! The demo's operator: takes one node from its enrolment to its instance, through the
//! REST API only.
//!
//! A restart of the box does not end the scenario: after a request without a response,
//! the operator reads the state and repeats the request.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use serde_json::{Value, json};
use trivet_model::{Digest, NodeId, PortId, ProvisionState, Tick};
use trivet_sim::{BMC_PASSWORD, BMC_USER};

use super::machine::DemoMachine;
use super::node_poller::{NodePoller, POLL_MS, UNREACHABLE_MS_MAX};
use super::rest_client;
use super::terminal::DemoTerminal;
use crate::clock::{DaemonClock, DaemonEntropy};

/// How long one stage may take.
const STAGE_MS_MAX: u64 = 600_000;

/// The result of one node.
pub(crate) struct DemoNodeReport {
    pub(crate) number: u16,
    pub(crate) name: String,
    /// Name and duration in milliseconds of each stage.
    pub(crate) stages: Vec<(&'static str, u64)>,
    /// Bytes on its disk and their digest.
    pub(crate) disk: Option<(u64, Digest)>,
    /// Why it is not active.
    pub(crate) failure: Option<String>,
}

impl DemoNodeReport {
    /// The reason for exit code 1, if this node has failed.
    pub(crate) fn failure_reason(&self) -> Option<String> {
        self.failure
            .as_ref()
            .map(|why| format!("{}: {why}", self.name))
    }
}

/// The verbs of the lifecycle, the state that each ends in, and the name of the stage.
const LIFECYCLE: [(&str, ProvisionState, &str); 4] = [
    ("manage", ProvisionState::Manageable, "verify"),
    ("inspect", ProvisionState::Manageable, "inspect"),
    ("provide", ProvisionState::Available, "clean"),
    ("active", ProvisionState::Active, "deploy"),
];

struct DemoScenario<'a> {
    clock: DaemonClock,
    api_url: &'a str,
    image: &'a str,
    machine: &'a DemoMachine,
    terminal: &'a DemoTerminal,
    poller: &'a NodePoller,
    node: NodeId,
    port: PortId,
}

/// Runs the whole scenario of one machine.
pub(crate) async fn run_scenario(
    (api_url, image): (&str, &str),
    machine: &Arc<DemoMachine>,
    screen: &DemoTerminal,
    poller: &NodePoller,
) -> DemoNodeReport {
    let clock = DaemonClock::start();
    let story = DemoScenario {
        clock,
        api_url,
        image,
        machine,
        terminal: screen,
        poller,
        node: NodeId::random(&mut DaemonEntropy::new()),
        port: PortId::random(&mut DaemonEntropy::new()),
    };
    let name = machine.hardware.name();
    let mut report = DemoNodeReport {
        number: machine.hardware.number,
        name: name.clone(),
        stages: Vec::new(),
        disk: None,
        failure: None,
    };
    if let Err(error) = story.run(&mut report).await {
        let why = format!("{error:#}");
        screen.print_node_state(&name, &format!("failed: {why}"));
        report.failure = Some(why);
    }
    report
}

impl DemoScenario<'_> {
    async fn run(&self, report: &mut DemoNodeReport) -> anyhow::Result<()> {
        let mut before = Tick(0);
        let mut stage = |name, clock: &DaemonClock| {
            let now = clock.now().tick;
            report.stages.push((name, now.since_ms(before)));
            before = now;
        };
        self.enrol().await?;
        stage("enrol", &self.clock);
        for (verb, end, name) in LIFECYCLE {
            if verb == "active" {
                self.choose_image().await?;
            }
            self.provision(verb, end).await?;
            stage(name, &self.clock);
        }
        let limit = Duration::from_millis(STAGE_MS_MAX);
        tokio::time::timeout(limit, self.machine.booted_disk())
            .await
            .context("the machine never booted its disk")?;
        stage("boot", &self.clock);
        let want = self.digest_of_image().await?;
        let (bytes, found) = self.machine.disk_digest().await?;
        report.disk = Some((bytes, found));
        anyhow::ensure!(
            found.to_string() == want,
            "its disk holds {found}, the image is {want}"
        );
        self.terminal
            .print_node_state(&self.machine.hardware.name(), "active, digest equal");
        Ok(())
    }

    /// One exchange, repeated while the box is unreachable.
    async fn call(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> anyhow::Result<(u16, Value)> {
        let url = format!("{}{path}", self.api_url);
        let started = self.clock.now().tick;
        loop {
            let late = self.clock.now().tick.since_ms(started) > UNREACHABLE_MS_MAX;
            match rest_client::exchange(None, method, &url, body).await {
                Ok((503, _)) if !late => {}
                Ok((status, bytes)) => {
                    let value = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
                    return Ok((status, value));
                }
                Err(error) if late => {
                    return Err(error.context(format!("the box at {url} is unreachable")));
                }
                Err(_) => {}
            }
            tokio::time::sleep(Duration::from_millis(POLL_MS)).await;
        }
    }

    /// A call whose status must be one of `good`. If a request was executed but its
    /// response was lost, the repetition is a conflict: `good` may allow for that.
    async fn call_expecting(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
        good: &[u16],
    ) -> anyhow::Result<Value> {
        let (status, answer) = self.call(method, path, body).await?;
        anyhow::ensure!(
            good.contains(&status),
            "{method} {path} answered {status}: {}",
            error_message(&answer)
        );
        Ok(answer)
    }

    async fn enrol(&self) -> anyhow::Result<()> {
        let node = json!({
            "uuid": self.node.to_string(),
            "name": self.machine.hardware.name(),
            "driver": "ipmi",
            "driver_info": {
                "ipmi_address": self.machine.bmc.ip().to_string(),
                "ipmi_port": self.machine.bmc.port(),
                "ipmi_username": BMC_USER,
                "ipmi_password": BMC_PASSWORD,
            },
        });
        self.call_expecting("POST", "/v1/nodes", Some(&node), &[201, 409])
            .await?;
        let port = json!({
            "uuid": self.port.to_string(),
            "node_uuid": self.node.to_string(),
            "address": self.machine.hardware.mac.to_string(),
        });
        self.call_expecting("POST", "/v1/ports", Some(&port), &[201, 409])
            .await?;
        // The creation was acknowledged, so the node exists even if the box has
        // restarted.
        let node = self.read().await?;
        anyhow::ensure!(
            node["uuid"] == self.node.to_string(),
            "another node has this name"
        );
        Ok(())
    }

    async fn read(&self) -> anyhow::Result<Value> {
        self.call_expecting("GET", &format!("/v1/nodes/{}", self.node), None, &[200])
            .await
    }

    async fn choose_image(&self) -> anyhow::Result<()> {
        let patch = json!([
            {"op": "add", "path": "/instance_info/image_source", "value": self.image},
        ]);
        let path = format!("/v1/nodes/{}", self.node);
        self.call_expecting("PATCH", &path, Some(&patch), &[200])
            .await?;
        Ok(())
    }

    /// The digest of a disk with the image: that of the disk in it, if it is packed.
    async fn digest_of_image(&self) -> anyhow::Result<String> {
        let path = format!("/trivet/images/{}", self.image);
        let image = self.call_expecting("GET", &path, None, &[200]).await?;
        let disk = if image["raw"].is_null() {
            &image
        } else {
            &image["raw"]
        };
        let digest = ["sha256", "sha512"]
            .iter()
            .find_map(|field| disk[*field].as_str());
        let digest = digest.context("the box does not report the digest of its image")?;
        Ok(digest.to_owned())
    }

    /// Requests a verb and waits for its end.
    async fn provision(&self, verb: &str, end: ProvisionState) -> anyhow::Result<()> {
        let path = format!("/v1/nodes/{}/states/provision", self.node);
        let before = self.read().await?;
        let (status, answer) = self
            .call("PUT", &path, Some(&json!({"target": verb})))
            .await?;
        if status != 202 {
            // Repeated because the first response was lost with the box: then it is in
            // progress.
            let moved =
                self.read().await?["provision_updated_at"] != before["provision_updated_at"];
            anyhow::ensure!(
                moved,
                "{verb} was refused with {status}: {}",
                error_message(&answer)
            );
        }
        let mut watch = self.poller.watch(self.node.to_string());
        let started = self.clock.now().tick;
        let mut last = String::new();
        loop {
            let standing = watch.next().await?;
            let (state, rests) = (standing.state, standing.is_stable);
            if state != last {
                self.terminal
                    .print_node_state(&self.machine.hardware.name(), &state);
                last.clone_from(&state);
            }
            if state == end.as_str() && rests {
                return Ok(());
            }
            let failed =
                state.ends_with(" failed") || state == "error" || (state == "enroll" && rests);
            if failed {
                let why = standing.last_error;
                anyhow::bail!("{state}: {}", why.as_deref().unwrap_or("no reason given"));
            }
            let waited = self.clock.now().tick.since_ms(started);
            anyhow::ensure!(
                waited < STAGE_MS_MAX,
                "{verb} took longer than {STAGE_MS_MAX} ms"
            );
        }
    }
}

/// The message in an error of the API.
fn error_message(answer: &Value) -> String {
    let inner = answer["error_message"]
        .as_str()
        .and_then(|text| serde_json::from_str::<Value>(text).ok());
    inner
        .and_then(|inner| inner["faultstring"].as_str().map(str::to_owned))
        .unwrap_or_else(|| answer.to_string())
}
