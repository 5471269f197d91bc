//! Snapshots for tests.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::num::NonZeroU32;
use std::sync::Arc;

use trivet_model::boot::ClientSeen;
use trivet_model::fault::FaultTimes;
use trivet_model::link::{ForeignServer, LinkView};
use trivet_model::view::{NodeLiveState, NodeView, Timeline, UnknownMachine};
use trivet_model::{
    BoxFault, Job, JobKind, JobPhase, JobStep, LinkId, LinkMode, MacAddr, Node, NodeId, Note,
    NoteKind, PowerState, ProvisionState, RackView, SeededRandom, StepKind, UnixMs,
};

/// A time on 2026-11-16.
pub(crate) const NOW: UnixMs = UnixMs(1_794_796_610_746);

/// A builder for one node.
pub(crate) struct NodeViewCase(NodeView);

impl NodeViewCase {
    pub(crate) fn new(state: ProvisionState) -> Self {
        let id = NodeId::random(&mut SeededRandom::new(1));
        let mut node = Node::new(id, "ipmi", NOW);
        node.provision_state = state;
        Self(NodeView {
            node: Arc::new(node),
            ports: Vec::new(),
            resources: Vec::new(),
            live: NodeLiveState::default(),
            timeline: Timeline::new(),
            story: trivet_model::story::NodeStoryView::default(),
        })
    }

    pub(crate) fn change(mut self, change: impl FnOnce(&mut Node)) -> Self {
        change(Arc::make_mut(&mut self.0.node));
        self
    }

    pub(crate) fn job(self, kind: JobKind, phase: JobPhase, at: u32, steps: usize) -> Self {
        let steps = (0..steps).map(|number| JobStep {
            step: format!("step-{number}"),
            interface: "deploy".into(),
            priority: 1,
            args: serde_json::json!({}),
            reboot_requested: false,
            abortable: false,
        });
        let job = Job {
            kind,
            phase,
            step_kind: Some(StepKind::Deploy),
            manual: false,
            steps: steps.collect(),
            at,
            versions: BTreeMap::new(),
            tries: 0,
            boots: Some(NonZeroU32::MIN),
            heartbeat_lost_at: None,
            abort_after: None,
            deployment: None,
            has_inspection_data: false,
            awaits_source: false,
            agent_query: None,
        };
        self.change(|node| node.job = Some(job))
    }

    pub(crate) fn transfer(mut self, path: &str, sent: u64, size: u64) -> Self {
        self.0.live.transfer = Some((sent, size));
        self.0.live.transfer_path = Some(path.to_owned());
        self
    }

    pub(crate) fn note(mut self, kind: NoteKind) -> Self {
        let count = self.0.timeline.len() as u64;
        self.0.timeline.push_back(Note {
            at: UnixMs(NOW.0 - 60_000 + count * 1500),
            node: Some(self.0.node.id),
            kind,
        });
        self
    }

    pub(crate) fn view(self) -> NodeView {
        self.0
    }
}

/// The note of a file that was sent.
pub(crate) fn sent(path: &str, sent: u64, size: u64) -> NoteKind {
    NoteKind::FileSent {
        by: "HTTP",
        path: path.to_owned(),
        sent,
        requested: size,
        took_ms: 1,
    }
}

/// A snapshot of these nodes, each with its own UUID.
pub(crate) fn view_of(cases: Vec<NodeViewCase>) -> RackView {
    let mut view = RackView::default();
    let mut entropy = SeededRandom::new(7);
    for (serial, case) in cases.into_iter().enumerate() {
        let id = NodeId::random(&mut entropy);
        let case = case.change(|node| {
            node.id = id;
            node.serial = serial as u64;
        });
        view.nodes.insert(id, Arc::new(case.view()));
    }
    view
}

/// A rack with nodes in every state: running, working, failed and in maintenance.
pub(crate) fn sample() -> RackView {
    use ProvisionState as S;
    let named = |case: NodeViewCase, name: &str, power: Option<PowerState>| {
        case.change(|node| {
            node.name = Some(name.to_owned());
            node.power_state = power;
        })
    };
    let (on, off) = (Some(PowerState::On), Some(PowerState::Off));
    let changed = |from, to| NoteKind::StateChanged { from, to };
    let active = || {
        NodeViewCase::new(S::Active)
            .note(changed(S::Available, S::Deploying))
            .note(NoteKind::PowerIs(PowerState::On))
            .note(sent("/boot/initrd", 48_000_000, 48_000_000))
            .note(NoteKind::AgentReady {
                version: "13.0.0".into(),
            })
            .note(NoteKind::StepDone {
                step: "write_image".into(),
            })
            .note(changed(S::DeployWait, S::Active))
    };
    let loading = NodeViewCase::new(S::DeployWait)
        .job(JobKind::Deploy, JobPhase::AwaitAgent, 0, 3)
        .note(changed(S::Deploying, S::DeployWait))
        .note(sent("/boot/vmlinuz", 9_000_000, 9_000_000))
        .transfer("/boot/initrd", 22_000_000, 48_000_000);
    let writing = NodeViewCase::new(S::DeployWait)
        .job(JobKind::Deploy, JobPhase::AwaitStep, 1, 3)
        .note(NoteKind::StepStarted {
            step: "write_image".into(),
        })
        .transfer("/images/debian-12.raw", 612_000_000, 900_000_000);
    let cleaning = NodeViewCase::new(S::CleanWait)
        .job(JobKind::Clean, JobPhase::AwaitStep, 0, 2)
        .note(changed(S::Cleaning, S::CleanWait))
        .change(|node| node.target_provision_state = Some(S::Available));
    let failed = NodeViewCase::new(S::DeployFail)
        .note(NoteKind::Retrying {
            why: "the agent closed the connection".into(),
        })
        .note(NoteKind::Failed {
            why: "the image's digest is wrong after 900000000 bytes".into(),
        })
        .change(|node| {
            node.last_error = Some("the image's digest is wrong after 900000000 bytes".into());
        });
    let silent = NodeViewCase::new(S::Enroll).change(|node| {
        let reply = "the BMC did not answer within 20000 ms; check its address, cable and that \
                    IPMI over LAN is on";
        node.last_error = Some(reply.into());
        node.maintenance = true;
        node.maintenance_reason = Some("waiting for a new cable".into());
    });
    let mut view = view_of(vec![
        named(active(), "rack1-u01", on),
        named(active(), "rack1-u02", on),
        named(writing, "rack1-u03", on),
        named(loading, "rack1-u04", on),
        named(cleaning, "rack1-u05", on),
        named(NodeViewCase::new(S::Available), "rack1-u06", off),
        named(failed, "metal3~rack1-u07-with-a-rather-long-name", on),
        named(silent, "rack1-u08", None),
    ]);
    add_unknown_machines(&mut view);
    add_network(&mut view);
    view
}

/// Adds a network with another DHCP server, and a fault about missing boot loaders.
fn add_network(view: &mut RackView) {
    let address = Ipv4Addr::new(192, 0, 2, 254);
    let mac = Some(MacAddr([0x00, 0x14, 0x22, 0, 0, 9]));
    let server = ForeignServer {
        address,
        mac,
        proxy: false,
        seen_at: UnixMs(NOW.0 - 2000),
    };
    let link = LinkView {
        name: "eth1".into(),
        mode: LinkMode::Server,
        foreign: vec![server],
    };
    view.links.insert(LinkId(0), Arc::new(link));
    let faults = [
        (
            BoxFault::ForeignServer {
                link: "eth1".into(),
                address,
                mac,
            },
            60_000,
        ),
        (
            BoxFault::LoaderMissing {
                path: "/usr/lib/ipxe/undionly.kpxe".into(),
                firmware: "BIOS firmware",
            },
            3_600_000,
        ),
    ];
    for (fault, before) in faults {
        let since = UnixMs(NOW.0 - before);
        let seen_at = since;
        view.faults.insert(fault, FaultTimes { since, seen_at });
    }
}

fn add_unknown_machines(view: &mut RackView) {
    for (last, seen, arch) in [(0x21, 4000, None), (0x22, 1000, Some(7))] {
        let mac = MacAddr([0x52, 0x54, 0, 0, 0, last]);
        let known = arch.is_some();
        let client = ClientSeen {
            mac,
            link: LinkId(0),
            arch,
            uuid: known.then_some([7; 16]),
            ipxe: known,
            vendor_class: known.then(|| "PXEClient".into()),
            address: None,
        };
        let seen_at = UnixMs(NOW.0 - seen);
        view.unknown_machines
            .insert(mac, UnknownMachine { seen_at, client });
    }
}
