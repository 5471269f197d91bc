use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use trivet_model::JobKind;
use trivet_model::story::Stage;
use trivet_model::{
    ApiCaller, BoxFault, EvidenceNote, MacAddr, Measurement, Node, NodeId, Note, NoteKind,
    ProvisionState, RackView, Tick, UnixMs,
};
use uuid::Uuid;

use super::*;
use MetricFamily as F;
use ProvisionState as S;

fn node() -> NodeId {
    NodeId(Uuid::from_u128(7))
}

fn note(kind: NoteKind) -> Note {
    Note {
        at: UnixMs(0),
        node: Some(node()),
        kind,
    }
}

fn box_note(kind: NoteKind) -> Note {
    Note {
        node: None,
        ..note(kind)
    }
}

/// Counts the changes of state of one node, each at its second.
fn states(changes: &[(u64, S, S)]) -> MetricCounts {
    let mut counts = MetricCounts::default();
    for (second, from, to) in changes {
        let kind = NoteKind::StateChanged {
            from: *from,
            to: *to,
        };
        counts.count_note(Tick(second * 1000), &note(kind));
    }
    counts
}

#[test]
fn a_deployment_is_one_job_however_often_it_waits() {
    let counts = states(&[
        (1, S::Available, S::Deploying),
        (2, S::Deploying, S::DeployWait),
        (50, S::DeployWait, S::Deploying),
        (61, S::Deploying, S::Active),
    ]);
    assert_eq!(counts.value(F::Jobs, ["deploy", "done"]), 1);
    assert_eq!(counts.counters.len(), 1);
    let text = exposition(&counts, &[]);
    assert!(text.contains("trivet_job_duration_seconds_sum{kind=\"deploy\"} 60\n"));
    assert!(text.contains("trivet_job_duration_seconds_bucket{kind=\"deploy\",le=\"60\"} 1\n"));
    assert!(text.contains("trivet_job_duration_seconds_bucket{kind=\"deploy\",le=\"30\"} 0\n"));
    assert!(text.contains("trivet_job_duration_seconds_bucket{kind=\"deploy\",le=\"+Inf\"} 1\n"));
}

#[test]
fn a_failed_job_and_one_that_began_before_the_start_have_no_duration() {
    let counts = states(&[
        (1, S::Manageable, S::Cleaning),
        (2, S::Cleaning, S::CleanFail),
    ]);
    assert_eq!(counts.value(F::Jobs, ["clean", "failed"]), 1);
    assert!(counts.histograms.is_empty());
    let counts = states(&[(1, S::DeployWait, S::Active)]);
    assert_eq!(counts.value(F::Jobs, ["deploy", "done"]), 1);
    assert!(counts.histograms.is_empty());
}

#[test]
fn the_end_of_one_job_can_be_the_begin_of_the_next() {
    let counts = states(&[
        (1, S::Active, S::Deleting),
        (3, S::Deleting, S::Cleaning),
        (8, S::Cleaning, S::Available),
        (9, S::Enroll, S::Verifying),
        (10, S::Verifying, S::Enroll),
    ]);
    assert_eq!(counts.value(F::Jobs, ["tear down", "done"]), 1);
    assert_eq!(counts.value(F::Jobs, ["clean", "done"]), 1);
    assert_eq!(counts.value(F::Jobs, ["verify", "failed"]), 1);
    let text = exposition(&counts, &[]);
    assert!(text.contains("trivet_job_duration_seconds_sum{kind=\"clean\"} 5\n"));
}

#[test]
fn measurements_are_counted_by_type_reason_and_protocol() {
    let mut counts = MetricCounts::default();
    counts.count_measurement(Measurement::DhcpMessage {
        request: Some("DISCOVER"),
        reply: Some("OFFER"),
        dropped: None,
    });
    counts.count_measurement(Measurement::DhcpMessage {
        request: None,
        reply: None,
        dropped: Some("too_short"),
    });
    counts.count_measurement(Measurement::BmcRequest {
        protocol: "ipmi",
        failure: Some("login"),
        took_ms: 1500,
    });
    assert_eq!(counts.value(F::DhcpMessages, ["DISCOVER", ""]), 1);
    assert_eq!(counts.value(F::DhcpMessages, ["none", ""]), 1);
    assert_eq!(counts.value(F::DhcpReplies, ["OFFER", ""]), 1);
    assert_eq!(counts.value(F::DhcpDropped, ["too_short", ""]), 1);
    assert_eq!(counts.value(F::BmcRequests, ["ipmi", "login"]), 1);
    let text = exposition(&counts, &[]);
    assert!(text.contains("trivet_bmc_request_duration_seconds_sum{protocol=\"ipmi\"} 1.5\n"));
}

#[test]
fn a_transfer_is_complete_or_partial() {
    let mut counts = MetricCounts::default();
    counts.count_transfer("HTTP", (10, 10), 5);
    counts.count_transfer("HTTP", (4, 10), 5);
    assert_eq!(counts.value(F::Transfers, ["HTTP", "complete"]), 1);
    assert_eq!(counts.value(F::Transfers, ["HTTP", "partial"]), 1);
    assert_eq!(counts.value(F::TransferBytes, ["HTTP", ""]), 14);
}

#[test]
fn an_image_is_counted_once_however_many_nodes_are_told() {
    let mut counts = MetricCounts::default();
    let kind = NoteKind::ImageComplete {
        image: "a".to_owned(),
        bytes: 7,
    };
    counts.count_note(Tick(0), &note(kind.clone()));
    counts.count_note(Tick(0), &box_note(kind));
    assert_eq!(counts.value(F::ImageFills, ["complete", ""]), 1);
    let image = "a".to_owned();
    counts.count_note(Tick(0), &note(NoteKind::AwaitingImage { image }));
    assert_eq!(counts.value(F::ImageWaits, ["", ""]), 1);
}

/// Notes that must change a counter, one for each kind that has one of its own.
fn counted() -> Vec<Note> {
    let text = || "x".to_owned();
    let mac = MacAddr([2, 0, 0, 0, 0, 1]);
    let order = "power on";
    let mut notes = vec![
        note(NoteKind::PowerOrdered { order }),
        note(NoteKind::PowerAccepted { order }),
        note(NoteKind::BootQueued { ahead: 1 }),
        note(NoteKind::ManualActionNeeded { what: text() }),
        note(NoteKind::PowerFailed {
            kind: "timeout",
            message: text(),
        }),
        note(NoteKind::VendorCalled {
            method: text(),
            outcome: text(),
        }),
        box_note(NoteKind::ForeignServerSeen {
            link: text(),
            address: Ipv4Addr::LOCALHOST,
            mac: None,
        }),
        box_note(NoteKind::FaultRaised(BoxFault::AgentMissing)),
        box_note(NoteKind::FaultCleared(BoxFault::AgentMissing)),
        box_note(NoteKind::UnknownMachineSeen { mac }),
        box_note(NoteKind::UnknownMachinesSeen { more: 3 }),
        box_note(NoteKind::ImageFetching { image: text() }),
        box_note(NoteKind::ImageUnpacking { image: text() }),
        box_note(NoteKind::ImageCorrupt {
            image: text(),
            chunks: 2,
        }),
        box_note(NoteKind::ImageEvicted { image: text() }),
        box_note(NoteKind::ImageFailed { why: text() }),
        note(NoteKind::ImageAheadStarted { image: text() }),
        note(NoteKind::ImageAheadWritten {
            image: text(),
            bytes: 1,
            took_ms: 1,
        }),
        note(NoteKind::ImageAheadFailed {
            image: text(),
            why: text(),
        }),
        note(NoteKind::ImageWasOnDisk { image: text() }),
        note(NoteKind::ImageRejected {
            image: text(),
            message: text(),
        }),
        note(NoteKind::BootFileUnverified { why: text() }),
    ];
    notes.extend(counted_of_jobs());
    notes
}

/// Those of agents and jobs.
fn counted_of_jobs() -> Vec<Note> {
    let text = || "x".to_owned();
    let from = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let mac = MacAddr([2, 0, 0, 0, 0, 1]);
    vec![
        note(NoteKind::AgentLookedUp { from }),
        note(NoteKind::AgentWeaklyAuthenticated { from }),
        note(NoteKind::AgentReady { version: text() }),
        note(NoteKind::AgentKeepsRunning),
        note(NoteKind::AgentReused),
        note(NoteKind::AgentExpired { seconds: 1 }),
        note(NoteKind::AgentTimedOut { seconds: 1 }),
        note(NoteKind::CallerRefused { from, why: "x" }),
        note(NoteKind::AgentRefused {
            from,
            request: "lookup",
            why: text(),
        }),
        note(NoteKind::OrderReceived {
            caller: Arc::new(ApiCaller::agent(from)),
            order: "deploy",
            refused: Some(text()),
        }),
        note(NoteKind::LogsStored {
            name: text(),
            bytes: 1,
        }),
        note(NoteKind::LogsMissing { why: text() }),
        note(NoteKind::Inspected),
        note(NoteKind::PortFound { mac }),
        note(NoteKind::PortNeverSeen { mac }),
        note(NoteKind::StepStarted { step: text() }),
        note(NoteKind::StepDone { step: text() }),
        note(NoteKind::Retrying { why: text() }),
        note(NoteKind::Warning { why: text() }),
        note(NoteKind::Failed { why: text() }),
        note(NoteKind::StageLate {
            stage: Stage::Post,
            lasted_ms: 1,
            usual_ms: None,
            diagnosis: None,
        }),
        note(NoteKind::BoxRestarted),
        note(NoteKind::Evidence(EvidenceNote::DiskNotFound {
            hints: text(),
            disks: text(),
        })),
    ]
}

#[test]
fn each_kind_of_note_changes_its_counter() {
    for note in counted() {
        let mut counts = MetricCounts::default();
        counts.count_note(Tick(0), &note);
        assert_eq!(counts.counters.len(), 1, "{:?}", note.kind);
    }
}

#[test]
fn names_follow_the_conventions_of_prometheus() {
    for family in F::ALL {
        let (name, help) = (family.name(), family.help());
        let fits = name.chars().all(|c| c.is_ascii_lowercase() || c == '_');
        assert!(fits, "{name}");
        assert!(name.starts_with("trivet_") || name.starts_with("process_"));
        let is_counter = family.kind() == MetricKind::Counter;
        assert_eq!(name.ends_with("_total"), is_counter, "{name}");
        if family.kind() == MetricKind::Histogram {
            assert!(name.ends_with("_duration_seconds"), "{name}");
        }
        assert!(family.labels().len() <= 2, "{name}");
        assert!(
            help.ends_with('.') && !help.contains('\n'),
            "{name}: {help}"
        );
    }
    let mut names: Vec<_> = F::ALL.iter().map(|family| family.name()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), F::ALL.len());
}

#[test]
fn an_empty_box_has_zero_counters_where_the_labels_are_fixed() {
    let text = exposition(&MetricCounts::default(), &[]);
    assert!(text.contains("\ntrivet_store_commits_total 0\n"));
    for kind in JobKind::ALL {
        for outcome in ["done", "failed"] {
            let series = format!("{{kind=\"{}\",outcome=\"{outcome}\"}} 0\n", kind.as_str());
            assert!(
                text.contains(&format!("trivet_jobs_total{series}")),
                "{series}"
            );
        }
    }
    assert!(text.contains("trivet_stages_late_total{stage=\"POST\"} 0\n"));
    assert!(text.contains("trivet_image_fills_total{result=\"failed\"} 0\n"));
    assert!(!text.contains("trivet_dhcp_messages_total"));
    let counts = states(&[
        (1, S::Manageable, S::Cleaning),
        (2, S::Cleaning, S::CleanFail),
    ]);
    let counted = exposition(&counts, &[]);
    let series = "trivet_jobs_total{kind=\"clean\",outcome=\"failed\"}";
    assert!(counted.contains(&format!("{series} 1\n")));
    assert_eq!(counted.matches(series).count(), 1);
    assert!(
        !text.contains("trivet_nodes"),
        "gauges come from a snapshot"
    );
}

#[test]
fn the_snapshot_is_counted_in_one_pass() {
    let mut view = RackView::default();
    for (at, state) in [S::Active, S::Active, S::Cleaning].into_iter().enumerate() {
        let id = NodeId(Uuid::from_u128(at as u128));
        let mut node = Node::new(id, "ipmi", UnixMs(0));
        node.provision_state = state;
        node.maintenance = at == 0;
        let one = trivet_model::view::NodeView {
            node: Arc::new(node),
            ports: Vec::new(),
            resources: Vec::new(),
            story: trivet_model::story::NodeStoryView::default(),
            live: trivet_model::view::NodeLiveState::default(),
            timeline: trivet_model::view::Timeline::new(),
        };
        view.nodes.insert(id, Arc::new(one));
    }
    let times = trivet_model::fault::FaultTimes {
        since: UnixMs(0),
        seen_at: UnixMs(0),
    };
    view.faults.insert(BoxFault::AgentMissing, times);
    let text = exposition(&MetricCounts::default(), &gauges_of_view(&view));
    for line in [
        "trivet_nodes{state=\"active\"} 2\n",
        "trivet_nodes{state=\"cleaning\"} 1\n",
        "trivet_nodes{state=\"available\"} 0\n",
        "trivet_nodes_by_power{power=\"unknown\"} 3\n",
        "trivet_nodes_in_maintenance 1\n",
        "trivet_faults{fault=\"agent_missing\"} 1\n",
        "trivet_images{state=\"complete\"} 0\n",
    ] {
        assert!(text.contains(line), "{line}{text}");
    }
}

#[test]
fn the_process_is_read_from_the_texts_of_the_kernel() {
    let mut fields = vec!["0"; 50];
    (fields[11], fields[12], fields[19]) = ("150", "50", "1000");
    (fields[20], fields[21]) = ("4096", "3");
    let files = ProcessFiles {
        stat: format!("17 (a (b) c) {}", fields.join(" ")),
        limits: "Limit x\nMax open files            1024   4096   files\n".to_owned(),
        system: "cpu 1 2\nbtime 1000\n".to_owned(),
        open_fds: Some(9),
        ticks_per_s: 100,
        page_bytes: 4096,
    };
    let text = exposition(&MetricCounts::default(), &process_samples(&files));
    for line in [
        "process_cpu_seconds_total 2\n",
        "process_start_time_seconds 1010\n",
        "process_virtual_memory_bytes 4096\n",
        "process_resident_memory_bytes 12288\n",
        "process_open_fds 9\n",
        "process_max_fds 1024\n",
    ] {
        assert!(text.contains(line), "{line}{text}");
    }
    assert!(process_samples(&ProcessFiles::default()).is_empty());
}
