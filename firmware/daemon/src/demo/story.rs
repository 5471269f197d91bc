//! The demo's operator: takes one node from its enrolment to its instance,
//! through the REST API and nothing else.
//!
//! A box that is restarted in the middle is no end of the story: what was asked
//! without an answer is looked up and asked again.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use serde_json::{Value, json};
use trivet_model::{Digest, NodeId, PortId, ProvisionState, Tick};
use trivet_rehearsal::{BMC_PASSWORD, BMC_USER};

use super::lookout::{AWAY_MS_MAX, LOOK_MS, Lookout};
use super::machine::Machine;
use super::rest;
use super::screen::Screen;
use crate::clock::{Clock, System};

/// How long one stage may take.
const STAGE_MS_MAX: u64 = 600_000;

/// What became of one node.
pub(crate) struct Report {
    pub(crate) number: u16,
    pub(crate) name: String,
    /// Name and milliseconds of each stage.
    pub(crate) stages: Vec<(&'static str, u64)>,
    /// Bytes on its disk and what they hash to.
    pub(crate) disk: Option<(u64, Digest)>,
    /// Why it is not active.
    pub(crate) failure: Option<String>,
}

impl Report {
    /// The reason for exit code 1, if this node is one.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.failure
            .as_ref()
            .map(|why| format!("{}: {why}", self.name))
    }
}

/// The verbs of a life, what they end in, and what the stage is called.
const LIFE: [(&str, ProvisionState, &str); 4] = [
    ("manage", ProvisionState::Manageable, "verify"),
    ("inspect", ProvisionState::Manageable, "inspect"),
    ("provide", ProvisionState::Available, "clean"),
    ("active", ProvisionState::Active, "deploy"),
];

struct Story<'a> {
    clock: Clock,
    api_url: &'a str,
    image: &'a str,
    machine: &'a Machine,
    screen: &'a Screen,
    lookout: &'a Lookout,
    node: NodeId,
    port: PortId,
}

/// Tells the whole story of one machine.
pub(crate) async fn tell(
    (api_url, image): (&str, &str),
    machine: &Arc<Machine>,
    screen: &Screen,
    lookout: &Lookout,
) -> Report {
    let clock = Clock::start();
    let story = Story {
        clock,
        api_url,
        image,
        machine,
        screen,
        lookout,
        node: NodeId::random(&mut System::new()),
        port: PortId::random(&mut System::new()),
    };
    let name = machine.hardware.name();
    let mut report = Report {
        number: machine.hardware.number,
        name: name.clone(),
        stages: Vec::new(),
        disk: None,
        failure: None,
    };
    if let Err(error) = story.live(&mut report).await {
        let why = format!("{error:#}");
        screen.node(&name, &format!("failed: {why}"));
        report.failure = Some(why);
    }
    report
}

impl Story<'_> {
    async fn live(&self, report: &mut Report) -> anyhow::Result<()> {
        let mut before = Tick(0);
        let mut stage = |name, clock: &Clock| {
            let now = clock.now().tick;
            report.stages.push((name, now.since_ms(before)));
            before = now;
        };
        self.enrol().await?;
        stage("enrol", &self.clock);
        for (verb, end, name) in LIFE {
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
        self.screen
            .node(&self.machine.hardware.name(), "active, digest equal");
        Ok(())
    }

    /// One exchange, repeated while the box is away.
    async fn call(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> anyhow::Result<(u16, Value)> {
        let url = format!("{}{path}", self.api_url);
        let started = self.clock.now().tick;
        loop {
            let late = self.clock.now().tick.since_ms(started) > AWAY_MS_MAX;
            match rest::exchange(None, method, &url, body).await {
                Ok((503, _)) if !late => {}
                Ok((status, bytes)) => {
                    let value = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
                    return Ok((status, value));
                }
                Err(error) if late => {
                    return Err(error.context(format!("the box at {url} is away")));
                }
                Err(_) => {}
            }
            tokio::time::sleep(Duration::from_millis(LOOK_MS)).await;
        }
    }

    /// A call whose answer must be one of `good`. A repetition of something that
    /// was done but not answered is a conflict: `good` may allow for that.
    async fn must(
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
            said(&answer)
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
        self.must("POST", "/v1/nodes", Some(&node), &[201, 409])
            .await?;
        let port = json!({
            "uuid": self.port.to_string(),
            "node_uuid": self.node.to_string(),
            "address": self.machine.hardware.mac.to_string(),
        });
        self.must("POST", "/v1/ports", Some(&port), &[201, 409])
            .await?;
        // Acknowledged, so it is there, whatever happened to the box since.
        let node = self.read().await?;
        anyhow::ensure!(
            node["uuid"] == self.node.to_string(),
            "another node has this name"
        );
        Ok(())
    }

    async fn read(&self) -> anyhow::Result<Value> {
        self.must("GET", &format!("/v1/nodes/{}", self.node), None, &[200])
            .await
    }

    async fn choose_image(&self) -> anyhow::Result<()> {
        let patch = json!([
            {"op": "add", "path": "/instance_info/image_source", "value": self.image},
        ]);
        let path = format!("/v1/nodes/{}", self.node);
        self.must("PATCH", &path, Some(&patch), &[200]).await?;
        Ok(())
    }

    /// What a disk with the image hashes to: that of the disk in it, if it is packed.
    async fn digest_of_image(&self) -> anyhow::Result<String> {
        let path = format!("/trivet/images/{}", self.image);
        let image = self.must("GET", &path, None, &[200]).await?;
        let disk = if image["raw"].is_null() {
            &image
        } else {
            &image["raw"]
        };
        let digest = ["sha256", "sha512"]
            .iter()
            .find_map(|field| disk[*field].as_str());
        let digest = digest.context("the box does not say what its image hashes to")?;
        Ok(digest.to_owned())
    }

    /// Asks for a verb and waits for its end.
    async fn provision(&self, verb: &str, end: ProvisionState) -> anyhow::Result<()> {
        let path = format!("/v1/nodes/{}/states/provision", self.node);
        let before = self.read().await?;
        let (status, answer) = self
            .call("PUT", &path, Some(&json!({"target": verb})))
            .await?;
        if status != 202 {
            // Asked twice because the first answer was lost with the box: then it is under way.
            let moved =
                self.read().await?["provision_updated_at"] != before["provision_updated_at"];
            anyhow::ensure!(moved, "{verb} was refused with {status}: {}", said(&answer));
        }
        let mut watch = self.lookout.watch(self.node.to_string());
        let started = self.clock.now().tick;
        let mut last = String::new();
        loop {
            let standing = watch.next().await?;
            let (state, rests) = (standing.state, standing.rests);
            if state != last {
                self.screen.node(&self.machine.hardware.name(), &state);
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

/// The sentence in an error of the API.
fn said(answer: &Value) -> String {
    let inner = answer["error_message"]
        .as_str()
        .and_then(|text| serde_json::from_str::<Value>(text).ok());
    inner
        .and_then(|inner| inner["faultstring"].as_str().map(str::to_owned))
        .unwrap_or_else(|| answer.to_string())
}
