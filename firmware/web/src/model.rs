//! The view model: everything the page shows, and nothing else.

use core::net::Ipv4Addr;

use serde::Serialize;
use trivet_model::fault::FaultTimes;
use trivet_model::link::{ForeignServer, LinkView};
use trivet_model::vendor::vendor;
use trivet_model::view::{NodeView, UnknownMachine};
use trivet_model::{BoxFault, MacAddr, PowerState, ProvisionState, RackView, UnixMs};
use uuid::Uuid;

use crate::why::problem;
use crate::{attempt, doing, progress, working_since};

/// Most notes of one node on the page.
pub const NOTES_PER_NODE_MAX: usize = 40;

/// Most notes of all nodes together. Ours: the model is sent repeatedly.
pub const NOTES_SHOWN_MAX: usize = 4000;

/// What the page shows.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PageModel {
    /// When the model was built, in milliseconds since 1970.
    pub at_ms: u64,
    /// Number of nodes of each tone.
    pub counts: NodeCounts,
    /// Nodes, in order of creation.
    pub nodes: Vec<NodeCard>,
    /// Machines whose address is not a port of any node, last seen first.
    pub unknown_machines: Vec<UnknownMachineCard>,
    /// Present faults of the box or its networks, newest first.
    pub faults: Vec<FaultCard>,
    /// The networks where DHCP is received, in the order of the settings.
    pub links: Vec<LinkCard>,
}

/// A fault; it is shown as long as its cause exists.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct FaultCard {
    /// The cause, and what to do.
    pub text: String,
    /// When it began, in milliseconds since 1970.
    pub since_ms: u64,
}

/// One network.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct LinkCard {
    /// The interface, or the address for relays.
    pub name: String,
    /// The DHCP mode of the box on this network.
    pub mode: &'static str,
    /// Other DHCP servers there.
    pub servers: Vec<ServerCard>,
}

/// A DHCP server other than this box.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct ServerCard {
    /// The server identifier that it sends.
    pub address: Ipv4Addr,
    /// Its hardware address, if known.
    pub mac: Option<MacAddr>,
    /// The vendor of its network card.
    pub vendor: Option<&'static str>,
    /// It sends only boot information, no addresses (proxy DHCP).
    pub proxy: bool,
    /// When its last message was received, in milliseconds since 1970.
    pub seen_at_ms: u64,
}

/// Number of nodes of each tone.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
pub struct NodeCounts {
    /// All of them.
    pub total: usize,
    /// Running an instance.
    pub active: usize,
    /// With a job or a power change in progress.
    pub working: usize,
    /// Ready for a deployment.
    pub available: usize,
    /// Waiting for an operator after a failure.
    pub failed: usize,
    /// None of the others.
    pub idle: usize,
    /// In maintenance, in addition to their tone.
    pub maintenance: usize,
}

/// The colour of a node, by its state.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum NodeTone {
    /// Running an instance.
    Active,
    /// With a job or a power change in progress.
    Working,
    /// Ready for a deployment.
    Available,
    /// Waiting for an operator after a failure.
    Failed,
    /// None of the others.
    Idle,
}

/// One node.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NodeCard {
    /// UUID.
    pub uuid: String,
    /// Name, or the UUID.
    pub name: String,
    /// Provision state in Ironic's words.
    pub state: ProvisionState,
    /// The provision state that the present job leads to.
    pub target: Option<ProvisionState>,
    /// Its colour.
    pub tone: NodeTone,
    /// The last power state that was read from the BMC.
    pub power: Option<PowerState>,
    /// Maintenance mode: no automatic actions.
    pub maintenance: bool,
    /// The operator's reason for the maintenance.
    pub maintenance_reason: Option<String>,
    /// In percent, from 0 to 100.
    pub progress: u8,
    /// The present action, as a sentence.
    pub doing: String,
    /// The number of the present boot attempt of the job, and the most there can be.
    pub tries: Option<(u32, u32)>,
    /// When the present action began, in milliseconds since 1970.
    pub since_ms: Option<u64>,
    /// The file it is fetching.
    pub transfer: Option<TransferCard>,
    /// Why the last action failed.
    pub error: Option<String>,
    /// What the operator can do about it.
    pub advice: Option<String>,
    /// Hardware type.
    pub driver: String,
    /// Hardware addresses of its ports.
    pub macs: Vec<MacAddr>,
    /// When its agent last sent a heartbeat, in milliseconds since 1970.
    pub heartbeat_at_ms: Option<u64>,
    /// The address to which the agent's token was sent.
    pub agent_address: Option<String>,
    /// This box did not lease that address to the node.
    pub weakly_authenticated: bool,
    /// How strongly its present agent is authenticated.
    pub agent_strength: &'static str,
    /// Its timeline, newest first, at most [`NOTES_PER_NODE_MAX`] notes.
    pub notes: Vec<NoteLine>,
}

/// A file that is being sent.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct TransferCard {
    /// Path of the request.
    pub path: Option<String>,
    /// Bytes sent.
    pub sent: u64,
    /// Size of the file in bytes.
    pub size: u64,
}

/// One note of a timeline.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct NoteLine {
    /// In milliseconds since 1970.
    pub at_ms: u64,
    /// The event, as a sentence.
    pub text: String,
}

/// A machine whose address is not a port of any node.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct UnknownMachineCard {
    /// Its hardware address.
    pub mac: MacAddr,
    /// When its last request was received, in milliseconds since 1970.
    pub seen_at_ms: u64,
    /// The IP address that was leased to it.
    pub address: Option<String>,
    /// The vendor of its network card.
    pub vendor: Option<&'static str>,
    /// The UUID that it sent.
    pub uuid: Option<String>,
    /// What it sent about its firmware.
    pub about: String,
}

/// Builds the model of this snapshot.
pub fn model(view: &RackView, now: UnixMs) -> PageModel {
    let notes_max = (NOTES_SHOWN_MAX / view.nodes.len().max(1)).clamp(1, NOTES_PER_NODE_MAX);
    let mut nodes: Vec<_> = view.nodes.values().collect();
    nodes.sort_by_cached_key(|view| (natural(&view.node.label()), view.node.serial));
    let nodes: Vec<NodeCard> = nodes
        .into_iter()
        .map(|node| card(view, node, notes_max, now))
        .collect();
    let mut cards: Vec<UnknownMachineCard> = view
        .unknown_machines
        .iter()
        .map(|(mac, unknown)| unknown_machine_card(*mac, unknown))
        .collect();
    cards.sort_by_key(|card| core::cmp::Reverse((card.seen_at_ms, card.mac)));
    PageModel {
        at_ms: now.0,
        counts: counts(&nodes),
        nodes,
        unknown_machines: cards,
        faults: faults(view),
        links: view.links.values().map(|link| link_card(link)).collect(),
    }
}

fn faults(view: &RackView) -> Vec<FaultCard> {
    let card = |(fault, standing): (&BoxFault, &FaultTimes)| FaultCard {
        text: fault.to_string(),
        since_ms: standing.since.0,
    };
    let mut cards: Vec<_> = view.faults.iter().map(card).collect();
    cards.sort_by_key(|card| core::cmp::Reverse(card.since_ms));
    cards
}

fn link_card(link: &LinkView) -> LinkCard {
    let server = |server: &ForeignServer| ServerCard {
        address: server.address,
        mac: server.mac,
        vendor: server.mac.and_then(vendor),
        proxy: server.proxy,
        seen_at_ms: server.seen_at.0,
    };
    LinkCard {
        name: link.name.clone(),
        mode: link.mode.as_str(),
        servers: link.foreign.iter().map(server).collect(),
    }
}

/// The model as JSON, as `/panel/nodes.json` and `/panel/events` send it. It has no line breaks, so
/// it is one event of a stream.
pub fn json(view: &RackView, now: UnixMs) -> String {
    serde_json::to_string(&model(view, now)).expect("the model has only text keys")
}

/// A sort key that compares the numbers in names as numbers: node-2 before node-10.
fn natural(name: &str) -> Vec<(String, u64)> {
    let mut parts = vec![(String::new(), 0_u64)];
    for character in name.chars() {
        let at = parts.len() - 1;
        match character.to_digit(10) {
            Some(digit) => {
                parts[at].1 = parts[at].1.saturating_mul(10).saturating_add(digit.into());
            }
            None if parts[at].1 == 0 => parts[at].0.push(character),
            None => parts.push((character.into(), 0)),
        }
    }
    parts
}

fn counts(nodes: &[NodeCard]) -> NodeCounts {
    let of = |tone: NodeTone| nodes.iter().filter(|node| node.tone == tone).count();
    NodeCounts {
        total: nodes.len(),
        active: of(NodeTone::Active),
        working: of(NodeTone::Working),
        available: of(NodeTone::Available),
        failed: of(NodeTone::Failed),
        idle: of(NodeTone::Idle),
        maintenance: nodes.iter().filter(|node| node.maintenance).count(),
    }
}

fn tone(node: &NodeView) -> NodeTone {
    let record = &node.node;
    match record.provision_state {
        // The operator must act.
        _ if record.fault.is_some() => NodeTone::Failed,
        state if state.is_failure() => NodeTone::Failed,
        ProvisionState::Enroll if record.last_error.is_some() => NodeTone::Failed,
        ProvisionState::Active | ProvisionState::Rescue => NodeTone::Active,
        ProvisionState::Available => NodeTone::Available,
        state if state.is_stable() => NodeTone::Idle,
        _ => NodeTone::Working,
    }
}

fn card(view: &RackView, node: &NodeView, notes_max: usize, now: UnixMs) -> NodeCard {
    let record = &node.node;
    NodeCard {
        uuid: record.id.to_string(),
        name: record.label(),
        state: record.provision_state,
        target: record.target_provision_state,
        tone: tone(node),
        power: record.power_state,
        maintenance: record.maintenance,
        maintenance_reason: record.maintenance_reason.clone(),
        progress: progress(node),
        doing: doing(view, node),
        tries: attempt(view, node),
        since_ms: working_since(node).map(|since| since.0),
        transfer: node.live.transfer.map(|(sent, size)| TransferCard {
            path: node.live.transfer_path.clone(),
            sent,
            size,
        }),
        error: record.last_error.clone(),
        advice: problem(view, node, now),
        driver: record.driver.clone(),
        macs: node
            .ports
            .iter()
            .filter_map(|id| view.ports.get(id))
            .map(|port| port.address)
            .collect(),
        heartbeat_at_ms: node.live.heartbeat_at.map(|at| at.0),
        agent_address: record.agent_address().map(|address| address.to_string()),
        weakly_authenticated: record.is_weakly_authenticated(),
        agent_strength: record.agent_strength(),
        notes: node
            .timeline
            .iter()
            .rev()
            .take(notes_max)
            .map(|note| NoteLine {
                at_ms: note.at.0,
                text: note.kind.to_string(),
            })
            .collect(),
    }
}

fn unknown_machine_card(mac: MacAddr, machine: &UnknownMachine) -> UnknownMachineCard {
    let client = &machine.client;
    // Processor architectures of DHCP option 93 (RFC 4578 and IANA's list).
    let firmware = match client.arch {
        Some(0) => "BIOS",
        Some(6) => "UEFI, 32 bit",
        Some(7 | 9) => "UEFI, x86-64",
        Some(11) => "UEFI, ARM 64",
        Some(16) => "UEFI HTTP, x86-64",
        Some(19) => "UEFI HTTP, ARM 64",
        Some(_) => "other firmware",
        None => "firmware unknown",
    };
    let loader = if client.ipxe { ", iPXE" } else { "" };
    let class = client.vendor_class.as_deref();
    let class = class.map(|class| format!(", {class}")).unwrap_or_default();
    UnknownMachineCard {
        mac,
        seen_at_ms: machine.seen_at.0,
        address: client.address.map(|address| address.to_string()),
        vendor: vendor(mac),
        uuid: client.uuid.map(|uuid| Uuid::from_bytes(uuid).to_string()),
        about: format!("{firmware}{loader}{class}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{NOW, NodeViewCase, sample, sent, view_of};
    use trivet_model::{AgentAuthentication, AgentCaller};

    #[test]
    fn names_sort_as_people_read_them() {
        let mut names = ["node-10", "b", "node-2", "node-02x", "a9", "a10b2", "a10b1"];
        names.sort_by_cached_key(|name| natural(name));
        assert_eq!(
            names,
            ["a9", "a10b1", "a10b2", "b", "node-2", "node-02x", "node-10"]
        );
    }

    #[test]
    fn counts_every_node_in_one_tone() {
        let model = model(&sample(), NOW);
        let counts = model.counts;
        assert_eq!(counts.total, model.nodes.len());
        assert_eq!(
            counts.active + counts.working + counts.available + counts.failed + counts.idle,
            counts.total
        );
        assert_eq!(counts.maintenance, 1);
        assert!(counts.failed >= 1 && counts.working >= 1);
    }

    #[test]
    fn a_node_whose_bmc_is_lost_needs_attention() {
        let case = NodeViewCase::new(ProvisionState::Active).change(|node| {
            node.maintenance = true;
            node.fault = Some("power failure".into());
            node.last_error = Some("power failure: the BMC did not answer".into());
        });
        let view = case.view();
        assert_eq!(tone(&view), NodeTone::Failed);
        let advice = crate::advice(&view).unwrap();
        assert!(
            advice.contains("maintenance ends automatically"),
            "{advice}"
        );
    }

    #[test]
    fn a_failed_verification_is_a_failure() {
        let case = NodeViewCase::new(ProvisionState::Enroll).change(|node| {
            node.last_error = Some("no answer".into());
        });
        assert_eq!(tone(&case.view()), NodeTone::Failed);
        assert_eq!(
            tone(&NodeViewCase::new(ProvisionState::Enroll).view()),
            NodeTone::Idle
        );
    }

    #[test]
    fn notes_come_newest_first_and_bounded() {
        let mut case = NodeViewCase::new(ProvisionState::Active);
        for number in 0..=NOTES_PER_NODE_MAX {
            case = case.note(sent(&format!("file-{number}"), 1, 1));
        }
        let model = model(&view_of(vec![case]), NOW);
        let notes = &model.nodes[0].notes;
        assert_eq!(notes.len(), NOTES_PER_NODE_MAX);
        let newest = format!("file-{NOTES_PER_NODE_MAX}");
        assert!(notes[0].text.contains(&newest), "{}", notes[0].text);
    }

    #[test]
    fn many_nodes_share_the_notes() {
        let cases = (0..NOTES_SHOWN_MAX / 10)
            .map(|_| {
                let case = NodeViewCase::new(ProvisionState::Active);
                (0..20).fold(case, |case, _| case.note(sent("x", 1, 1)))
            })
            .collect();
        let model = model(&view_of(cases), NOW);
        let shown: usize = model.nodes.iter().map(|node| node.notes.len()).sum();
        assert_eq!(shown, NOTES_SHOWN_MAX);
    }

    #[test]
    fn the_json_is_one_line_and_holds_no_secret() {
        let mut case = NodeViewCase::new(ProvisionState::Active);
        case = case.change(|node| {
            node.name = Some("a\nb".into());
            node.driver_info
                .insert("ipmi_password".into(), "hunter2".into());
            node.last_error = Some("</script>\u{2028}".into());
        });
        let text = json(&view_of(vec![case]), NOW);
        assert!(!text.contains('\n'));
        assert!(!text.contains("hunter2"));
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["nodes"][0]["name"], "a\nb");
        assert_eq!(value["nodes"][0]["tone"], "active");
    }

    #[test]
    fn work_under_way_has_its_try_and_its_beginning() {
        use trivet_model::{JobKind, JobPhase};
        let works = NodeViewCase::new(ProvisionState::DeployWait)
            .job(JobKind::Deploy, JobPhase::AwaitAgent, 0, 1)
            .change(|node| node.provision_updated_at = Some(UnixMs(7)));
        let mut view = view_of(vec![works, NodeViewCase::new(ProvisionState::Active)]);
        view.boots_max = 4;
        let value: serde_json::Value = serde_json::from_str(&json(&view, NOW)).unwrap();
        let of = |state: &str| {
            let mut nodes = value["nodes"].as_array().unwrap().iter();
            nodes.find(|node| node["state"] == state).unwrap().clone()
        };
        let works = of("wait call-back");
        assert_eq!(works["tries"], serde_json::json!([1, 4]));
        assert_eq!(works["since_ms"], 7);
        let rests = of("active");
        assert!(rests["tries"].is_null() && rests["since_ms"].is_null());
    }

    #[test]
    fn unknown_machines_are_listed_last_seen_first() {
        let model = model(&sample(), NOW);
        assert_eq!(model.unknown_machines.len(), 2);
        assert!(model.unknown_machines[0].seen_at_ms > model.unknown_machines[1].seen_at_ms);
        assert_eq!(
            model.unknown_machines[0].about,
            "UEFI, x86-64, iPXE, PXEClient"
        );
        assert_eq!(model.unknown_machines[1].about, "firmware unknown");
        let (known, other) = (&model.unknown_machines[0], &model.unknown_machines[1]);
        assert_eq!(known.vendor, Some("QEMU or KVM (made up)"));
        assert!(known.uuid.is_some() && other.uuid.is_none());
    }

    #[test]
    fn a_weakly_authenticated_node_is_shown_with_its_agents_address() {
        for (authentication, weak, strength) in [
            (AgentAuthentication::Weak, true, "in-band token"),
            (AgentAuthentication::Lease, false, "in-band token"),
            (AgentAuthentication::Certificate, false, "out-of-band mTLS"),
        ] {
            let case = NodeViewCase::new(ProvisionState::CleanWait).change(|node| {
                node.agent = Some(trivet_model::AgentSession::legacy());
                node.agent_caller = Some(AgentCaller {
                    address: [192, 0, 2, 66].into(),
                    authentication,
                });
            });
            let card = &model(&view_of(vec![case]), NOW).nodes[0];
            assert_eq!(card.agent_address.as_deref(), Some("192.0.2.66"));
            assert_eq!(card.weakly_authenticated, weak);
            assert_eq!(card.agent_strength, strength);
        }
    }

    #[test]
    fn networks_show_other_servers_and_faults() {
        let model = model(&sample(), NOW);
        let link = &model.links[0];
        assert_eq!((link.name.as_str(), link.mode), ("eth1", "server"));
        let server = &link.servers[0];
        assert_eq!(server.address, Ipv4Addr::new(192, 0, 2, 254));
        assert_eq!(server.vendor, Some("Dell"));
        let texts: Vec<_> = model.faults.iter().map(|fault| &fault.text).collect();
        assert_eq!(texts.len(), 2);
        assert!(texts[0].contains("another DHCP server, 192.0.2.254"));
        assert!(model.faults[0].since_ms > model.faults[1].since_ms);
    }
}
