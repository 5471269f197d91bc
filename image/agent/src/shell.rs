//! The agent on a machine: sockets, the disk, the clock.
//!
//! Decides nothing: sends the requests of [`AgentState::due_requests`], replies with
//! [`AgentState::handle_request`], does the [`AgentWork`] and reports it. The disk is a file, or
//! one of the machine's.
//! All its tasks end with it, and it returns only after the last write to the disk, so the next
//! boot finds an idle disk, as after a real power cut.

mod ahead;
mod bootloader;
mod chunked;
mod device_write;
mod disk;
mod efi_variables;
mod erase;
mod fetch;
mod http;
mod image_loader;
mod listener;
mod manager_programs;
mod mounted;
mod partition_write;
mod system_disk;
mod target;
mod tls;

pub use http::AgentHttpClient;
pub use manager_programs::{ManagerProgram, load_programs};
pub use target::AgentTarget;
pub use tls::{AgentTlsError, AgentTlsIdentity};

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::{AbortHandle, JoinSet, spawn_blocking};
use tokio::time::{Instant, sleep, sleep_until};
use trivet_model::secret::SecretText;
use trivet_model::{Digest, Entropy, NodeId, Tick};

use crate::hardware_manager::{HardwareManager, ManagerError};
use crate::program::unix_s;
use crate::state_machine::{
    AgentDueRequest, AgentIntervals, AgentMachineIdentity, AgentPhase, AgentPlan, AgentState,
    AgentWork, AgentWorkError, AgentWorkOutcome, ImageOrder, ManagerRequest, NO_ANSWER,
};
use ahead::HeldImage;
use disk::AgentWrittenImage;
use target::{AgentDisks, ImageTarget};

/// How long the reply to a power-off or reboot command has to reach the appliance.
const LEAVE_GRACE_MS: u64 = 200;

/// The newest microversions of a lookup and of a heartbeat: LOOKUP_VERSION and
/// HEARTBEAT_VERSION of the protocol.
const LOOKUP_MINOR: u32 = 62;
const HEARTBEAT_MINOR: u32 = 68;

/// Work that waits to be started. The state machine allows one; the rest is for safety.
const WORK_QUEUE_MAX: usize = 4;

/// How to run an agent.
#[derive(Clone, Debug)]
pub struct AgentOptions {
    /// The URL of the appliance, such as `http://192.0.2.1:6385`; without it the agent only
    /// inspects and serves.
    pub api_url: Option<String>,
    /// The URL for inspection data, if it is wanted.
    pub inspection_url: Option<String>,
    /// The address to listen on; port 0 chooses a free one.
    pub listen: SocketAddr,
    /// The host that the appliance must call; by default the listening address.
    pub advertise: Option<String>,
    /// The port that the appliance must call; by default the listening one.
    pub advertise_port: Option<u16>,
    /// Where its requests come from, and whom it trusts.
    pub client: AgentHttpClient,
    /// Certificate and key of its own API; without them it serves plain HTTP.
    pub tls: Option<AgentTlsIdentity>,
    /// The newest microversion of the appliance's API: 68 for 1.68.
    pub api_minor: u32,
    /// Identity of this machine.
    pub identity: AgentMachineIdentity,
    /// The disk.
    pub target: AgentTarget,
    /// Path for the hash of the rescue password, from which the ramdisk reads it; without it a
    /// rescue fails.
    pub rescue: Option<PathBuf>,
    /// Whether a boot loader that cannot be installed is only logged, unless the command says.
    pub ignores_bootloader_failure: bool,
    /// Intervals of the requests.
    pub intervals: AgentIntervals,
    /// Hardware managers beside our own.
    pub managers: Vec<Arc<dyn HardwareManager>>,
    /// The logs of the machine, as a gzipped tar archive in base64; may block.
    pub logs: fn() -> String,
}

/// An empty tar archive, gzipped, in base64: the logs of a machine that has none.
pub const NO_LOGS: &str = "H4sIAAAAAAACA2NgGAWjYBSMVAAALq+17wAEAAA=";

/// Events of the agent for its caller, which must keep receiving or drop the receiver: except
/// for progress, no event is dropped and the agent waits until there is space in the channel.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum AgentShellEvent {
    /// It listens on this address.
    Listening(SocketAddr),
    /// HTTP status of the response to its inspection data.
    Inspected(u16),
    /// The lookup found this node.
    LookedUp(NodeId),
    /// The lookup returned the mask and it has no token: only a power cycle helps.
    Stuck,
    /// HTTP status of the response to a heartbeat; zero means no response.
    Heartbeat(u16),
    /// Progress of the image. Dropped when the channel is full.
    Writing {
        /// Bytes received.
        bytes: u64,
    },
    /// An image was written to the disk.
    Wrote {
        /// Its size.
        bytes: u64,
        /// The verified digest.
        digest: Digest,
    },
    /// Progress of an erasure. Dropped when the channel is full.
    Erasing {
        /// The path of the disk.
        device: String,
        /// What happens to it.
        note: String,
    },
    /// What was done to make an image bootable.
    Bootloader(String),
    /// All disks are erased, except those that are skipped.
    Erased,
    /// Work failed.
    Failed(String),
    /// It got the command to switch the machine off.
    PowerOff,
    /// It got the command to restart the machine.
    Reboot,
    /// It set the rescue password.
    Rescued,
    /// It got the command to lock the machine down.
    Lockdown,
}

/// Why an agent ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum AgentExit {
    /// The power was cut.
    PowerCut,
    /// It switched the machine off.
    PowerOff,
    /// It restarts the machine.
    Reboot,
    /// No lookup succeeded for too long.
    GaveUp,
    /// It ended for a rescue: the operator has the machine.
    Rescued,
    /// It stopped its API: the machine must do nothing until it is switched off.
    Lockdown,
}

/// Why an agent could not run.
#[derive(Debug, thiserror::Error)]
pub enum ShellError {
    /// The address is in use or not of this machine.
    #[error("cannot listen on {address}; choose a free port")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The error of the operating system.
        #[source]
        source: std::io::Error,
    },
    /// An internal task failed.
    #[error("the agent's own API stopped")]
    ListenerStopped,
}

/// State that all tasks share.
struct AgentShellContext {
    state: Mutex<AgentState>,
    entropy: Mutex<Box<dyn Entropy + Send>>,
    started: Instant,
    /// A state change: the main loop checks again.
    changed: Notify,
    /// Some work has ended: tasks that wait for it check again.
    ended: Notify,
    events: mpsc::Sender<AgentShellEvent>,
    options: AgentOptions,
}

impl AgentShellContext {
    fn now(&self) -> Tick {
        let ms = self.started.elapsed().as_millis();
        Tick(u64::try_from(ms).unwrap_or(u64::MAX))
    }

    /// The state machine never panics in the middle of a change, so the value behind a poisoned
    /// lock is valid.
    fn state(&self) -> MutexGuard<'_, AgentState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn random_number(&self) -> u64 {
        let mut entropy = self.entropy.lock().unwrap_or_else(PoisonError::into_inner);
        entropy.number()
    }

    /// Runs a function of the state machine with time and entropy.
    fn with_state(&self, think: impl FnOnce(&mut AgentState, Tick, &mut dyn Entropy)) {
        let mut entropy = self.entropy.lock().unwrap_or_else(PoisonError::into_inner);
        think(&mut self.state(), self.now(), entropy.as_mut());
        self.changed.notify_one();
    }

    /// A dropped receiver is not a reason to stop.
    async fn emit(&self, event: AgentShellEvent) {
        let _ = self.events.send(event).await;
    }
}

/// Runs an agent until its machine loses power, is switched off or restarted, or it gives up.
/// `power` is true while the machine is on.
pub async fn run(
    options: AgentOptions,
    mut power: watch::Receiver<bool>,
    events: mpsc::Sender<AgentShellEvent>,
    entropy: Box<dyn Entropy + Send>,
) -> Result<AgentExit, ShellError> {
    let address = options.listen;
    let listen = |source| ShellError::Listen { address, source };
    let listener = TcpListener::bind(address).await.map_err(listen)?;
    let local = listener.local_addr().map_err(listen)?;
    let disks = AgentDisks::new(options.target.clone());
    let mut state = AgentState::new(options.identity.clone(), plan(&options, local));
    state.set_start_time(unix_s());
    let shared = Arc::new(AgentShellContext {
        state: Mutex::new(state),
        entropy: Mutex::new(entropy),
        started: Instant::now(),
        changed: Notify::new(),
        ended: Notify::new(),
        events,
        options,
    });
    shared.emit(AgentShellEvent::Listening(local)).await;
    let mut tasks = JoinSet::new();
    let (orders, work) = mpsc::channel(WORK_QUEUE_MAX);
    let end = tokio::select! {
        end = run_loop(&shared, &disks, &mut tasks, work) => Ok(end),
        () = listener::serve(listener, Arc::clone(&shared), orders) => {
            Err(ShellError::ListenerStopped)
        }
        _ = power.wait_for(|on| !on) => Ok(AgentExit::PowerCut),
    };
    tasks.shutdown().await;
    disks.wait_until_idle().await;
    end
}

fn plan(options: &AgentOptions, local: SocketAddr) -> AgentPlan {
    let host = options.advertise.clone().unwrap_or_else(|| match local {
        SocketAddr::V4(v4) => v4.ip().to_string(),
        SocketAddr::V6(v6) => format!("[{}]", v6.ip()),
    });
    let scheme = if options.tls.is_some() {
        "https"
    } else {
        "http"
    };
    let port = options.advertise_port.unwrap_or(local.port());
    AgentPlan {
        callback_url: format!("{scheme}://{host}:{port}"),
        inspect: options.inspection_url.is_some(),
        sends_heartbeats: options.api_url.is_some(),
        intervals: options.intervals,
        api_minor: options.api_minor,
        certificate: options.tls.as_ref().map(|tls| tls.certificate_pem.clone()),
    }
}

/// The main loop: sends due requests and starts work.
async fn run_loop(
    shared: &Arc<AgentShellContext>,
    disks: &AgentDisks,
    tasks: &mut JoinSet<()>,
    mut work: mpsc::Receiver<(String, AgentWork)>,
) -> AgentExit {
    // The task that writes an image ahead.
    let mut ahead: Option<AbortHandle> = None;
    loop {
        let (acts, wake_at, state) = {
            let mut agent = shared.state();
            (
                agent.due_requests(shared.now()),
                agent.wake_at(),
                agent.phase(),
            )
        };
        if state == AgentPhase::GaveUp {
            return AgentExit::GaveUp;
        }
        for act in acts {
            let shared = Arc::clone(shared);
            tasks.spawn(async move { send_request(&shared, act).await });
        }
        let due = wake_at.map(|tick| shared.started + Duration::from_millis(tick.0));
        tokio::select! {
            () = shared.changed.notified() => {}
            () = sleep_until(due.unwrap_or(shared.started)), if due.is_some() => {}
            Some(_) = tasks.join_next() => {}
            Some((id, work)) = work.recv() => {
                if let Some(end) = leave(shared, &id, &work).await {
                    return end;
                }
                // The command that this work belongs to has stopped it.
                if let Some(task) = ahead.take_if(|_| work.changes_disks()) {
                    task.abort();
                }
                let (shared, disks, is_ahead) =
                    (Arc::clone(shared), disks.clone(), work.is_ahead());
                let task = tasks.spawn(async move { do_work(&shared, &disks, &id, work).await });
                if is_ahead {
                    ahead = Some(task);
                }
            }
        }
    }
}

/// Ends the agent if the work is a power-off, reboot or rescue.
async fn leave(shared: &AgentShellContext, id: &str, work: &AgentWork) -> Option<AgentExit> {
    let (event, end) = match work {
        AgentWork::PowerOff => (AgentShellEvent::PowerOff, AgentExit::PowerOff),
        AgentWork::Reboot => (AgentShellEvent::Reboot, AgentExit::Reboot),
        AgentWork::Rescue { hash } => {
            let outcome = store_rescue_hash(shared.options.rescue.as_deref(), hash).await;
            let failed = outcome.is_err();
            report(shared, id, outcome.map(|()| AgentWorkOutcome::Rescued));
            if failed {
                return None;
            }
            sleep(Duration::from_millis(LEAVE_GRACE_MS)).await;
            shared.emit(AgentShellEvent::Rescued).await;
            return Some(AgentExit::Rescued);
        }
        AgentWork::Lockdown => (AgentShellEvent::Lockdown, AgentExit::Lockdown),
        AgentWork::WriteImage(_)
        | AgentWork::Erase { .. }
        | AgentWork::InstallBootloader(_)
        | AgentWork::CollectLogs
        | AgentWork::Manager(_) => return None,
    };
    report(shared, id, Ok(AgentWorkOutcome::Leaving));
    sleep(Duration::from_millis(LEAVE_GRACE_MS)).await;
    shared.emit(event).await;
    Some(end)
}

/// Stores the hash where the ramdisk reads it, readable by its owner only.
async fn store_rescue_hash(path: Option<&Path>, hash: &SecretText) -> Result<(), AgentWorkError> {
    let Some(path) = path else {
        return Err(AgentWorkError::Rescue(
            "this ramdisk has no rescue".to_owned(),
        ));
    };
    let failed = |error: std::io::Error| AgentWorkError::Rescue(error.to_string());
    let mut options = tokio::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut file = options.open(path).await.map_err(failed)?;
    file.write_all(hash.reveal().as_bytes())
        .await
        .map_err(failed)?;
    file.sync_all().await.map_err(failed)
}

/// Reports the result of work. Returns more work for the same command, if there is some.
fn report(
    shared: &AgentShellContext,
    id: &str,
    outcome: Result<AgentWorkOutcome, AgentWorkError>,
) -> Option<AgentWork> {
    let mut more = None;
    shared.with_state(|state, now, _| more = state.work_done(now, id, outcome));
    shared.ended.notify_waiters();
    more
}

async fn write_image(
    shared: &Arc<AgentShellContext>,
    disks: &AgentDisks,
    order: &ImageOrder,
) -> Result<AgentWrittenImage, AgentWorkError> {
    let target = disks.for_image(&order.root_device).await?;
    let is_plain = order.config_drive.is_none() && order.partitions.is_none();
    if matches!(target, ImageTarget::File(_)) && !is_plain {
        let words = "a simulated disk has no config drive and no partitions";
        return Err(AgentWorkError::Write(words.to_owned()));
    }
    let held = disks.take_held();
    // What is written ahead is the image of a whole disk.
    let may_use = !order.is_ahead && order.partitions.is_none();
    let held = held.filter(|held| may_use && held.is(target.path(), order.digest));
    if let Some(held) = held {
        match ahead::finish(shared, disks, &target, held, order).await {
            Ok(written) => return Ok(written),
            // The disk was changed by something else: it is written again.
            Err(failure) => {
                let words = format!("the image written ahead is written again: {failure}");
                shared.emit(AgentShellEvent::Failed(words)).await;
            }
        }
    }
    let mut written = match &target {
        ImageTarget::File(disk) => fetch::image(shared, disk, order).await?,
        ImageTarget::Device(path) => device_write::write_image(shared, path, disks, order).await?,
    };
    if let Some(rest) = written.ahead.take() {
        disks.hold(HeldImage::new(&target, *rest));
    }
    Ok(written)
}

async fn do_work(shared: &Arc<AgentShellContext>, disks: &AgentDisks, id: &str, work: AgentWork) {
    let mut next = Some(work);
    while let Some(work) = next.take() {
        let outcome = perform(shared, disks, work).await;
        let incompatible = Err(AgentWorkError::Manager(ManagerError::Incompatible));
        if let Err(failure) = &outcome
            && outcome != incompatible
        {
            let event = AgentShellEvent::Failed(failure.to_string());
            shared.emit(event).await;
        }
        next = report(shared, id, outcome);
    }
}

async fn perform(
    shared: &Arc<AgentShellContext>,
    disks: &AgentDisks,
    work: AgentWork,
) -> Result<AgentWorkOutcome, AgentWorkError> {
    match work {
        AgentWork::WriteImage(order) => match write_image(shared, disks, &order).await {
            Ok(written) => {
                let (bytes, digest) = (written.bytes, written.digest);
                shared.emit(AgentShellEvent::Wrote { bytes, digest }).await;
                if order.is_ahead {
                    return Ok(AgentWorkOutcome::WroteAhead { bytes, digest });
                }
                let (disk, was_on_disk) = (written.disk, written.was_on_disk);
                Ok(AgentWorkOutcome::Wrote {
                    bytes,
                    disk,
                    was_on_disk,
                })
            }
            Err(failure) => Err(failure),
        },
        AgentWork::Erase(order) => {
            drop(disks.take_held());
            let outcome = disks
                .erase(order, shared.random_number(), shared.events.clone())
                .await?;
            shared.emit(AgentShellEvent::Erased).await;
            Ok(outcome)
        }
        AgentWork::InstallBootloader(order) => {
            drop(disks.take_held());
            bootloader::install(shared, disks, order).await
        }
        AgentWork::CollectLogs => {
            let collect = shared.options.logs;
            let archive = spawn_blocking(collect).await;
            let archive = archive.map_err(|error| AgentWorkError::Logs(error.to_string()))?;
            Ok(AgentWorkOutcome::Logs(archive))
        }
        AgentWork::Manager(request) => {
            if matches!(request, ManagerRequest::Execute { .. }) {
                drop(disks.take_held());
                disks.wait_until_idle().await;
            }
            let managers = shared.options.managers.clone();
            let outcome =
                spawn_blocking(move || manager_programs::request(&managers, &request)).await;
            let failed = |error| AgentWorkError::Manager(ManagerError::failed(error));
            Ok(outcome.map_err(|error| failed(error.to_string()))??)
        }
        // These end the agent before this point.
        AgentWork::PowerOff
        | AgentWork::Reboot
        | AgentWork::Lockdown
        | AgentWork::Rescue { .. } => Ok(AgentWorkOutcome::Leaving),
    }
}

/// Sends one request and passes the response to the state machine.
async fn send_request(shared: &AgentShellContext, act: AgentDueRequest) {
    let api = shared.options.api_url.as_deref().unwrap_or_default();
    let api = api.trim_end_matches('/');
    let client = &shared.options.client;
    let version = |newest: u32| format!("1.{}", shared.options.api_minor.min(newest));
    match act {
        AgentDueRequest::PostInspection { body } => {
            let url = shared.options.inspection_url.as_deref().unwrap_or_default();
            let (status, answer) = client.call(("POST", url), None, body).await;
            shared.with_state(|state, now, entropy| {
                state.handle_inspection_response(now, status, &answer, entropy);
            });
            shared.emit(AgentShellEvent::Inspected(status)).await;
        }
        AgentDueRequest::Lookup { path_and_query } => {
            let url = format!("{api}{path_and_query}");
            let version = version(LOOKUP_MINOR);
            let (status, answer) = client.call(("GET", &url), Some(&version), Vec::new()).await;
            let mut found = None;
            shared.with_state(|state, now, entropy| {
                state.handle_lookup_response(now, status, &answer, entropy);
                found = match state.phase() {
                    AgentPhase::Beating => state.node().map(AgentShellEvent::LookedUp),
                    AgentPhase::Stuck => Some(AgentShellEvent::Stuck),
                    _ => None,
                };
            });
            if let Some(event) = found {
                shared.emit(event).await;
            }
        }
        AgentDueRequest::Heartbeat { path, body, .. } => {
            let url = format!("{api}{path}");
            let version = version(HEARTBEAT_MINOR);
            let (status, _) = client.call(("POST", &url), Some(&version), body).await;
            shared.with_state(|state, now, entropy| {
                state.handle_heartbeat_response(now, status, entropy);
            });
            shared.emit(AgentShellEvent::Heartbeat(status)).await;
        }
    }
}

#[cfg(test)]
mod tests;
