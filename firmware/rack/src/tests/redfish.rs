//! Nodes whose BMCs use Redfish, in virtual time, on good and bad networks.

mod medium;

use std::collections::BTreeMap;

use trivet_bmc::BmcHttpCall;
use trivet_bmc_redfish::service::{
    RedfishSimulator, RedfishSimulatorAction, RedfishSimulatorSetup,
};
use trivet_bmc_redfish::{BmcHttpError, BmcHttpRequest, BmcHttpResponse};
use trivet_model::bmc_request::MediaDevice;
use trivet_model::order::{PowerWanted, VendorMethod};
use trivet_model::power::HardwareHealth;
use trivet_model::secret::SecretText;
use trivet_model::{BmcRequest, NoteKind, PowerState};

use super::*;
use trivet_bmc_redfish::REQUEST_GAP_MS as GAP_MS;

/// The result of a request, and how long it takes.
type RedfishReplyModel = Box<
    dyn FnMut(
        Tick,
        &BmcHttpRequest,
        &mut RedfishSimulator,
    ) -> (Result<BmcHttpResponse, BmcHttpError>, u64),
>;

struct InFlightRedfishRequest {
    due: Tick,
    node: NodeId,
    call: u64,
    host: String,
    result: Result<BmcHttpResponse, BmcHttpError>,
}

/// A rack, simulated services by their host, and the network between them.
struct RedfishTestBench {
    bench: RackBench,
    services: BTreeMap<String, RedfishSimulator>,
    in_flight: Vec<InFlightRedfishRequest>,
    /// When each host finished its last request.
    idle_since: BTreeMap<String, Tick>,
    reply_model: RedfishReplyModel,
    lines: Vec<String>,
    notes: Vec<NoteKind>,
    replies: Vec<Result<OrderOutcome, OrderRefusal>>,
}

fn away() -> BmcHttpError {
    BmcHttpError::Unreachable {
        reason: None,
        message: "connection refused".to_owned(),
    }
}

fn lost() -> BmcHttpError {
    BmcHttpError::Lost {
        message: "reset by peer".to_owned(),
    }
}

fn handle_request(
    now: Tick,
    request: &BmcHttpRequest,
    service: &mut RedfishSimulator,
) -> Result<BmcHttpResponse, BmcHttpError> {
    service
        .handle(now, request, &mut SeededRandom::new(now.0))
        .ok_or_else(away)
}

impl RedfishTestBench {
    fn new(setup: RedfishSimulatorSetup) -> Self {
        Self::with(RackBench::new(), setup)
    }

    fn with(bench: RackBench, setup: RedfishSimulatorSetup) -> Self {
        Self {
            bench,
            services: BTreeMap::from([("192.0.2.7".to_owned(), RedfishSimulator::new(setup))]),
            in_flight: Vec::new(),
            idle_since: BTreeMap::new(),
            reply_model: Box::new(|now, request, service| {
                (handle_request(now, request, service), 30)
            }),
            lines: Vec::new(),
            notes: Vec::new(),
            replies: Vec::new(),
        }
    }

    /// A node whose record names the service, created without any check.
    fn node(&mut self, number: u8, more: Value) -> NodeId {
        let id = self.bench.with_node(number);
        let mut info = json!({
            "redfish_address": "https://192.0.2.7", "redfish_username": "root",
            "redfish_password": "calvin",
        });
        for (key, value) in more.as_object().unwrap() {
            info[key] = value.clone();
        }
        self.bench.force(id, |node| {
            node.driver = "redfish".into();
            node.driver_info = info.as_object().unwrap().clone();
            node.provision_state = ProvisionState::Manageable;
        });
        self.gather();
        id
    }

    fn service(&mut self) -> &mut RedfishSimulator {
        self.services.get_mut("192.0.2.7").unwrap()
    }

    /// Takes the outputs of the last batch. Checks that no BMC ever has two requests, nor one
    /// without its pause.
    fn gather(&mut self) {
        for output in std::mem::take(&mut self.bench.outputs) {
            match output {
                RackOutput::Bmc(BmcTransmit::Http(http)) => {
                    let BmcHttpCall {
                        node,
                        call,
                        target,
                        request,
                    } = *http;
                    let now = self.bench.now.tick;
                    let host = target.address.host.clone();
                    let two = self.in_flight.iter().any(|flight| flight.host == host);
                    assert!(!two, "two requests at once to {host}");
                    if let Some(at) = self.idle_since.get(&host) {
                        assert!(now.since_ms(*at) >= GAP_MS, "{host} has no rest");
                    }
                    let line = format!("{} {}", request.method.as_str(), request.path);
                    self.lines.push(line);
                    let service = self.services.get_mut(&host).unwrap();
                    let (result, took_ms) = (self.reply_model)(now, &request, service);
                    self.in_flight.push(InFlightRedfishRequest {
                        due: now.after_ms(took_ms),
                        node,
                        call,
                        host,
                        result,
                    });
                }
                RackOutput::Note { note, .. } => self.notes.push(note.kind),
                RackOutput::Reply { ticket: 7, result } => self.replies.push(result),
                _ => {}
            }
        }
    }

    /// Handles the next event before `until`; false if there is none.
    fn step(&mut self, until: Tick) -> bool {
        let flight = self.in_flight.iter().map(|flight| flight.due).min();
        let next = flight.into_iter().chain(self.bench.rack.deadline()).min();
        let Some(next) = next.filter(|next| *next <= until) else {
            self.bench.now.tick = until;
            return false;
        };
        self.bench.now.tick = self.bench.now.tick.max(next);
        let landed = self.in_flight.iter().position(|flight| flight.due <= next);
        match landed {
            Some(at) => {
                let flight = self.in_flight.remove(at);
                self.idle_since.insert(flight.host, self.bench.now.tick);
                self.bench.handle(RackInput::Bmc(BmcMessage::HttpAnswered {
                    node: flight.node,
                    call: flight.call,
                    result: flight.result,
                }));
            }
            None => self.bench.handle(RackInput::Tick),
        }
        self.gather();
        true
    }

    fn pass(&mut self, ms: u64) {
        let until = self.bench.now.tick.after_ms(ms);
        while self.step(until) {}
    }

    /// Sends a power order and waits for its end.
    #[track_caller]
    fn power(&mut self, node: NodeId, want: PowerWanted) {
        let order = RackOrder::Power {
            node,
            want,
            timeout_s: None,
        };
        self.bench.order(order).unwrap();
        self.gather();
        let until = self.bench.now.tick.after_ms(1_200_000);
        while self.bench.node(node).target_power_state.is_some() {
            assert!(self.step(until), "the order does not end");
        }
    }

    fn submit_bmc_request(
        &mut self,
        node: NodeId,
        bmc_request: BmcRequest,
    ) -> Result<OrderOutcome, OrderRefusal> {
        let method = VendorMethod::BmcRequest(bmc_request);
        self.bench.handle(RackInput::Order {
            ticket: 7,
            caller: caller(),
            order: RackOrder::Vendor { node, method },
        });
        self.gather();
        let until = self.bench.now.tick.after_ms(600_000);
        while self.replies.is_empty() {
            assert!(self.step(until), "the BMC request does not end");
        }
        self.replies.remove(0)
    }
}

fn on() -> PowerWanted {
    PowerWanted::State(PowerState::On)
}

fn off() -> PowerWanted {
    PowerWanted::State(PowerState::Off)
}

fn resets(service: &mut RedfishSimulator) -> Vec<String> {
    let word = |action| match action {
        RedfishSimulatorAction::Reset(_, word) => Some(word),
        _ => None,
    };
    service
        .take_actions()
        .into_iter()
        .filter_map(word)
        .collect()
}

#[test]
fn a_node_is_managed_by_reading_its_power() {
    let mut bench = RedfishTestBench::new(RedfishSimulatorSetup::default());
    let id = bench.node(1, json!({}));
    bench
        .bench
        .force(id, |node| node.provision_state = ProvisionState::Enroll);
    bench.bench.verb(id, Verb::Manage).unwrap();
    bench.gather();
    bench.pass(5_000);
    let node = bench.bench.node(id);
    assert_eq!(node.provision_state, ProvisionState::Manageable);
    assert_eq!(node.power_state, Some(PowerState::Off));
}

#[test]
fn power_is_switched_with_the_lag_of_a_slow_machine() {
    let mut bench = RedfishTestBench::new(RedfishSimulatorSetup {
        lag_ms: 11_000,
        ..RedfishSimulatorSetup::default()
    });
    let id = bench.node(1, json!({}));
    for (want, state, words) in [
        (on(), PowerState::On, vec!["On"]),
        (PowerWanted::Reboot, PowerState::On, vec!["PowerCycle"]),
        (
            PowerWanted::SoftOff,
            PowerState::Off,
            vec!["GracefulShutdown"],
        ),
        (PowerWanted::SoftReboot, PowerState::On, vec!["On"]),
        (
            PowerWanted::SoftReboot,
            PowerState::On,
            vec!["GracefulShutdown", "On"],
        ),
        (off(), PowerState::Off, vec!["ForceOff"]),
    ] {
        bench.power(id, want);
        let node = bench.bench.node(id);
        assert_eq!(
            (node.power_state, node.last_error),
            (Some(state), None),
            "{want:?}"
        );
        // A restart may still be under way when the state reads as on.
        bench.pass(12_000);
        assert_eq!(bench.service().machine(0).unwrap().power, state, "{want:?}");
        assert_eq!(resets(bench.service()), words, "{want:?}");
    }
    assert!(
        bench
            .notes
            .iter()
            .any(|note| matches!(note, NoteKind::PowerAccepted { .. }))
    );
}

#[test]
fn two_nodes_of_one_bmc_take_turns_and_know_their_systems() {
    let mut bench = RedfishTestBench::new(RedfishSimulatorSetup {
        machines: 2,
        ..RedfishSimulatorSetup::default()
    });
    let first = bench.node(1, json!({"redfish_system_id": "/redfish/v1/Systems/1"}));
    let second = bench.node(2, json!({"redfish_system_id": "/redfish/v1/Systems/2"}));
    for node in [first, second] {
        let order = RackOrder::Power {
            node,
            want: on(),
            timeout_s: None,
        };
        bench.bench.order(order).unwrap();
        bench.gather();
    }
    bench.pass(30_000);
    for (index, id) in [first, second].into_iter().enumerate() {
        assert_eq!(bench.bench.node(id).power_state, Some(PowerState::On));
        assert_eq!(
            bench.service().machine(index).unwrap().power,
            PowerState::On
        );
    }
    assert_eq!(resets(bench.service()), ["On", "On"]);
}

#[test]
fn another_record_is_another_session_and_the_old_one_is_ended() {
    let mut bench = RedfishTestBench::new(RedfishSimulatorSetup::default());
    let id = bench.node(1, json!({}));
    bench.power(id, on());
    assert_eq!(bench.service().sessions(), 1);
    bench.bench.force(id, |node| {
        node.driver_info
            .insert("redfish_auth_type".into(), "basic".into());
    });
    bench.power(id, off());
    bench.pass(1_000);
    assert_eq!(bench.service().sessions(), 0);
    assert_eq!(bench.bench.node(id).power_state, Some(PowerState::Off));
}

#[test]
fn an_order_under_way_continues_with_the_new_record_when_that_changes() {
    let mut bench = RedfishTestBench::new(RedfishSimulatorSetup::default());
    let id = bench.node(1, json!({}));
    let order = RackOrder::Power {
        node: id,
        want: on(),
        timeout_s: None,
    };
    bench.bench.order(order).unwrap();
    bench.gather();
    bench.bench.force(id, |node| {
        node.driver_info
            .insert("redfish_auth_type".into(), "basic".into());
        node.maintenance = false;
    });
    // A request uses the new record; the reply to the old request is stale, and the request is
    // sent again to the BMC of the new record.
    let done = bench.submit_bmc_request(id, BmcRequest::Indicator).unwrap();
    assert_eq!(done, OrderOutcome::Reply(json!({"state": "off"})));
    bench.pass(60_000);
    let node = bench.bench.node(id);
    assert_eq!((node.target_power_state, node.last_error), (None, None));
    assert_eq!(bench.service().machine(0).unwrap().power, PowerState::On);
}

#[test]
fn a_node_that_is_deleted_logs_out() {
    let mut bench = RedfishTestBench::new(RedfishSimulatorSetup::default());
    let id = bench.node(1, json!({}));
    bench.power(id, on());
    bench
        .bench
        .force(id, |node| node.provision_state = ProvisionState::Enroll);
    bench.bench.order(RackOrder::DeleteNode(id)).unwrap();
    bench.gather();
    bench.pass(1_000);
    assert_eq!(bench.service().sessions(), 0);
    assert!(bench.lines.last().unwrap().starts_with("DELETE"));
    assert_eq!(bench.bench.rack.bmcs.deadline(), None);
}

#[test]
fn a_reply_that_comes_twice_or_too_late_is_ignored() {
    let mut bench = RedfishTestBench::new(RedfishSimulatorSetup::default());
    let id = bench.node(1, json!({}));
    bench.power(id, on());
    for call in 0..200 {
        let result = Ok(BmcHttpResponse {
            status: 401,
            ..BmcHttpResponse::default()
        });
        let node = id;
        bench.bench.handle(RackInput::Bmc(BmcMessage::HttpAnswered {
            node,
            call,
            result,
        }));
        bench.gather();
    }
    bench.power(id, off());
    assert_eq!(bench.bench.node(id).power_state, Some(PowerState::Off));
    assert_eq!(bench.service().sessions(), 1);
}

#[test]
fn errors_of_the_record_name_its_keys() {
    for (more, part) in [
        (json!({"redfish_password": "hunter2"}), "redfish_password"),
        (json!({"redfish_address": null}), "redfish_address"),
        (json!({"redfish_pin": "x"}), "redfish_pin"),
    ] {
        let mut bench = RedfishTestBench::new(RedfishSimulatorSetup::default());
        let id = bench.node(1, more);
        bench.power(id, on());
        let message = bench.bench.node(id).last_error.unwrap();
        assert!(
            message.contains(part) && !message.contains("hunter2"),
            "{message}"
        );
        assert!(!message.contains("ipmi"), "{message}");
        assert!(bench.service().take_actions().is_empty());
    }
}

#[test]
fn a_bmc_that_lies_or_does_nothing_is_detected() {
    let mut bench = RedfishTestBench::new(RedfishSimulatorSetup::default());
    let id = bench.node(1, json!({}));
    bench.service().faults.ignores_resets = true;
    bench.power(id, on());
    let message = bench.bench.node(id).last_error.unwrap();
    assert!(
        message.contains("still reports the machine as before"),
        "{message}"
    );
    // It reports on while it is off: the request is sent nevertheless.
    bench.service().faults.ignores_resets = false;
    bench.service().faults.reported_power = Some(PowerState::On);
    bench.power(id, on());
    assert_eq!(bench.service().machine(0).unwrap().power, PowerState::On);
}

#[test]
fn a_power_change_at_the_machine_is_seen() {
    let settings = Settings {
        power_sync_interval_ms: Some(60_000),
        ..settings()
    };
    let mut bench =
        RedfishTestBench::with(RackBench::with(settings), RedfishSimulatorSetup::default());
    let id = bench.node(1, json!({}));
    bench.pass(70_000);
    assert_eq!(bench.bench.node(id).power_state, Some(PowerState::Off));
    bench.service().machine(0).unwrap().power = PowerState::On;
    bench.pass(70_000);
    assert_eq!(bench.bench.node(id).power_state, Some(PowerState::On));
    // One login is used for all of that.
    let logins = bench
        .lines
        .iter()
        .filter(|line| line.ends_with("/Sessions"));
    assert_eq!(logins.count(), 1);
}

#[test]
fn bmc_requests_reach_a_redfish_bmc() {
    let mut bench = RedfishTestBench::new(RedfishSimulatorSetup::default());
    let id = bench.node(1, json!({}));
    let insert = BmcRequest::InsertMedia {
        device: MediaDevice::Cdrom,
        url: SecretText::new("http://192.0.2.1/a.iso"),
    };
    assert_eq!(
        bench.submit_bmc_request(id, insert),
        Ok(OrderOutcome::Reply(json!({"done": true})))
    );
    let Ok(OrderOutcome::Reply(media)) = bench.submit_bmc_request(id, BmcRequest::Media) else {
        panic!("no media");
    };
    assert_eq!(media["media"][1]["image"], "http://192.0.2.1/a.iso");
    let Ok(OrderOutcome::Reply(system)) = bench.submit_bmc_request(id, BmcRequest::System) else {
        panic!("no system");
    };
    assert_eq!(system["memory_mb"], 65_536);
    let refusal = bench
        .submit_bmc_request(id, BmcRequest::Mailbox)
        .unwrap_err();
    assert!(refusal.sentence.contains("Redfish"), "{refusal}");
}

/// A bad network and an unreliable BMC, by seed.
fn bad(seed: u64) -> RedfishReplyModel {
    let mut random = SeededRandom::new(seed);
    Box::new(move |now, request, service| {
        let took_ms = 5 + random.below(200);
        match random.below(30) {
            0 => return (Err(away()), took_ms),
            1 => return (Err(lost()), 30_000),
            2 => {
                let _ = handle_request(now, request, service);
                return (Err(lost()), 30_000);
            }
            3 => service.faults.busy = (1, random.below(4)),
            4 => service.drop_sessions(),
            5 => service.faults.truncated = 1,
            6 => service.restart(now.after_ms(random.below(20_000))),
            7 => service.faults.reported_power = Some(PowerState::On),
            8 => return (handle_request(now, request, service), 25_000),
            _ => service.faults.reported_power = None,
        }
        (handle_request(now, request, service), took_ms)
    })
}

#[test]
fn on_a_bad_network_every_order_ends_and_no_restart_is_requested_twice() {
    let mut good = 0;
    for seed in 0..60 {
        let mut bench = RedfishTestBench::new(RedfishSimulatorSetup {
            lag_ms: 1_000 * (seed % 12),
            task_ms: seed.is_multiple_of(3).then_some(2_000),
            sessions: !seed.is_multiple_of(4),
            ..RedfishSimulatorSetup::default()
        });
        let id = bench.node(1, json!({}));
        bench.reply_model = bad(seed);
        for want in [on(), PowerWanted::Reboot, off(), on(), PowerWanted::SoftOff] {
            bench.service().take_actions();
            bench.power(id, want);
            let node = bench.bench.node(id);
            let words = resets(bench.service());
            let restarts = words.iter().filter(|word| word.ends_with("Cycle")).count();
            assert!(restarts <= 1, "seed {seed}: {words:?}");
            good += u32::from(node.last_error.is_none());
            // A failure has a message.
            assert_ne!(node.last_error.as_deref(), Some(""), "seed {seed}");
        }
        // On a good network all orders succeed again.
        bench.reply_model = Box::new(|now, request, service| {
            service.faults = trivet_bmc_redfish::service::RedfishSimulatorFaults::default();
            (handle_request(now, request, service), 30)
        });
        bench.pass(60_000);
        bench.power(id, off());
        let node = bench.bench.node(id);
        assert_eq!(
            (node.power_state, node.last_error),
            (Some(PowerState::Off), None)
        );
        bench.pass(15_000);
        assert_eq!(
            bench.service().machine(0).unwrap().power,
            PowerState::Off,
            "seed {seed}"
        );
    }
    assert!(good > 150, "{good} of 300");
}

/// Nothing that changes state is sent twice: POST requests are counted where they are sent.
#[test]
fn an_interrupt_leaves_the_box_once_whatever_happens() {
    for seed in 0..60 {
        let mut bench = RedfishTestBench::new(RedfishSimulatorSetup::default());
        let id = bench.node(1, json!({}));
        bench.service().machine(0).unwrap().power = PowerState::On;
        bench.reply_model = bad(1_000 + seed);
        let method = VendorMethod::Bmc(trivet_model::PowerOrder::Nmi);
        bench.bench.handle(RackInput::Order {
            ticket: 7,
            caller: caller(),
            order: RackOrder::Vendor { node: id, method },
        });
        bench.gather();
        let until = bench.bench.now.tick.after_ms(600_000);
        while bench.replies.is_empty() {
            assert!(bench.step(until), "seed {seed}: no end");
        }
        bench.pass(400_000);
        assert!(resets(bench.service()).len() <= 1, "seed {seed}");
        let done = bench
            .lines
            .iter()
            .filter(|line| line.ends_with("Actions/ComputerSystem.Reset"));
        // Only a lost login allows it to be sent again.
        assert!(done.count() <= 3, "seed {seed}");
    }
}

#[test]
fn the_health_of_the_hardware_is_shown_and_a_fault_is_noted() {
    let mut bench = RedfishTestBench::new(RedfishSimulatorSetup::default());
    let id = bench.node(1, json!({}));
    let shown = |bench: &RedfishTestBench| bench.bench.rack.view().nodes[&id].live.health;
    assert_eq!(shown(&bench), None);
    bench.power(id, PowerWanted::State(PowerState::On));
    assert_eq!(shown(&bench), Some(HardwareHealth::Ok));
    bench.service().machine(0).unwrap().health = "Critical";
    bench.power(id, PowerWanted::State(PowerState::Off));
    assert_eq!(shown(&bench), Some(HardwareHealth::Critical));
    let noted = |kind: &NoteKind| {
        kind.to_string()
            .contains("health of the hardware as Critical")
    };
    assert_eq!(bench.notes.iter().filter(|kind| noted(kind)).count(), 1);
    // Another BMC is not known yet.
    bench.bench.force(id, |node| {
        node.driver_info
            .insert("redfish_username".into(), "admin".into());
    });
    bench.power(id, PowerWanted::State(PowerState::On));
    assert_eq!(shown(&bench), None);
}
