#![expect(clippy::unnecessary_wraps, reason = "replies are results")]

use std::collections::BTreeMap;

use serde_json::{Value, json};
use trivet_model::ProvisionState::*;
use trivet_model::interface::{BiosInterface, BootInterface, DeployInterface};
use trivet_model::node::JsonObject;
use trivet_model::order::VerbArgs;
use trivet_model::{
    AgentError, AgentEvent, JobStep, NodeId, PowerError, PowerState, SeededRandom, Tick, UnixMs,
    Verb,
};

use super::*;
use crate::verb::apply_verb;

mod bootloader;
mod disable_power_off;
mod fast_track;
mod heartbeat_timeout;
mod image_ahead;
mod inspection;
mod lost_agent;
mod medium;
mod netboot;
mod power;
mod token;
mod verbs;

const NOW: Now = Now {
    tick: Tick(5),
    wall: UnixMs(1000),
};
const ON: Result<PowerAnswer, PowerError> = Ok(PowerAnswer::Power(PowerState::On));
const OFF: Result<PowerAnswer, PowerError> = Ok(PowerAnswer::Power(PowerState::Off));
const TAKEN: Result<PowerAnswer, PowerError> = Ok(PowerAnswer::Accepted);

/// One node; the test supplies the replies of its BMC and agent.
struct NodeTestRig {
    node: Node,
    actions: Vec<NodeAction>,
    limits: NodeLimits,
}

impl NodeTestRig {
    fn new(state: ProvisionState) -> Self {
        let mut node = Node::new(NodeId::random(&mut SeededRandom::new(1)), "ipmi", UnixMs(1));
        node.provision_state = state;
        Self {
            node,
            actions: Vec::new(),
            limits: NodeLimits::default(),
        }
    }

    fn apply_verb(&mut self, verb: Verb, steps: Vec<JobStep>) -> &mut Self {
        let args = VerbArgs {
            steps,
            ..VerbArgs::default()
        };
        let (node, actions) = apply_verb(NOW, &self.limits, &self.node, verb, args).unwrap();
        (self.node, self.actions) = (node, actions);
        self
    }

    fn handle(&mut self, event: NodeEvent) -> &mut Self {
        let (node, actions) = step(NOW, &self.limits, self.node.clone(), event);
        (self.node, self.actions) = (node, actions);
        self
    }

    fn power(&mut self, order: PowerOrder, answer: Result<PowerAnswer, PowerError>) -> &mut Self {
        self.wants(&NodeAction::Power(order));
        self.handle(NodeEvent::Power(order, answer))
    }

    fn agent(&mut self, answer: Result<AgentEvent, AgentError>) -> &mut Self {
        let order = self.agent_order();
        self.handle(NodeEvent::Agent(order, answer))
    }

    #[track_caller]
    fn agent_order(&self) -> AgentOrder {
        let mut orders = self.actions.iter().filter_map(|action| match action {
            NodeAction::Agent(order) => Some(order.clone()),
            _ => None,
        });
        orders
            .next()
            .unwrap_or_else(|| panic!("no order to the agent: {:?}", self.actions))
    }

    /// The name of the step that is sent to the agent.
    #[track_caller]
    fn executes(&self) -> String {
        match self.agent_order() {
            AgentOrder::Execute { step, .. } => step.step,
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    fn wants(&self, action: &NodeAction) -> &Self {
        assert!(
            self.actions.contains(action),
            "{action:?} is not in {:?}",
            self.actions
        );
        self
    }

    #[track_caller]
    fn is(&self, state: ProvisionState) -> &Self {
        assert_eq!(
            self.node.provision_state, state,
            "{:?}",
            self.node.last_error
        );
        self
    }

    /// From the first power-off to the agent's first heartbeat.
    fn boots(&mut self) -> &mut Self {
        self.power(PowerOrder::Off, OFF);
        self.power(SET_PXE, TAKEN)
            .power(PowerOrder::On, TAKEN)
            .handle(NodeEvent::MachineSeen)
    }

    /// The same after the machine was not seen: by the escalation of that boot.
    fn boots_again(&mut self) -> &mut Self {
        let number = self.node.job.as_ref().unwrap().boots.unwrap().get();
        match escalation::boot_escalation(number, self.limits.boots_max, self.limits.bmc_reset) {
            BootEscalation::Reset => {
                self.power(SET_PXE, TAKEN).power(PowerOrder::Reset, TAKEN);
                self.handle(NodeEvent::MachineSeen)
            }
            BootEscalation::Cycle => self.boots(),
            BootEscalation::BmcReset => {
                self.power(BMC_RESET, TAKEN);
                self.wants(&NodeAction::WakeAfter(self.limits.retry_ms));
                self.handle(NodeEvent::TimerExpired).boots()
            }
        }
    }
}

const SET_PXE: PowerOrder = PowerOrder::SetBoot {
    device: BootDevice::Pxe,
    persistent: false,
    efi: false,
};
const SET_DISK: PowerOrder = PowerOrder::SetBoot {
    device: BootDevice::Disk,
    persistent: true,
    efi: false,
};

fn offered(name: &str, priority: i64) -> JobStep {
    JobStep {
        step: name.into(),
        interface: "deploy".into(),
        priority,
        args: json!({}),
        reboot_requested: false,
        abortable: true,
    }
}

fn steps_are(steps: &[JobStep]) -> Result<AgentEvent, AgentError> {
    let versions = BTreeMap::from([("generic".to_owned(), "1.2".to_owned())]);
    Ok(AgentEvent::StepsListed {
        steps: steps.to_vec(),
        versions,
        listed: json!({}),
    })
}

fn done(step: &str) -> Result<AgentEvent, AgentError> {
    Ok(AgentEvent::StepDone {
        step: step.into(),
        interface: "deploy".into(),
        at: None,
        reboot_requested: false,
        result: Value::Null,
        image_was_on_disk: false,
    })
}

fn unreachable() -> Result<AgentEvent, AgentError> {
    Err(AgentError::Unreachable {
        url: "http://x".into(),
        message: "refused".into(),
    })
}

/// The reply of an agent that cannot list its commands.
fn broken() -> Result<AgentEvent, AgentError> {
    let message = "not JSON serializable".into();
    Err(AgentError::Refused { message })
}

fn deploying() -> NodeTestRig {
    let mut rig = NodeTestRig::new(Available);
    rig.apply_verb(Verb::Active, vec![offered("write_image", 80)]);
    rig.boots();
    rig
}

#[test]
fn the_steps_of_the_agent_are_stored_for_planning() {
    let mut rig = deploying();
    rig.handle(NodeEvent::Heartbeat)
        .agent(Ok(AgentEvent::StepsListed {
            steps: vec![offered("write_image", 0)],
            versions: BTreeMap::from([("m".to_owned(), "1".to_owned())]),
            listed: json!({"deploy": [{"step": "write_image"}]}),
        }));
    let info = &rig.node.driver_internal_info;
    let step = &info["agent_cached_deploy_steps"]["deploy"][0]["step"];
    assert_eq!(step, "write_image");
    assert_eq!(info["hardware_manager_version"], json!({"m": "1"}));
}

#[test]
fn a_step_that_creates_a_raid_stores_its_configuration() {
    let mut rig = NodeTestRig::new(Manageable);
    let of = |name: &str| JobStep {
        interface: "raid".into(),
        ..offered(name, 0)
    };
    let steps = [of("create_configuration"), of("delete_configuration")];
    rig.apply_verb(Verb::Clean, steps.to_vec()).boots();
    rig.handle(NodeEvent::Heartbeat).agent(steps_are(&steps));
    let ended = |step: &str, result: Value| {
        Ok(AgentEvent::StepDone {
            step: step.into(),
            interface: "raid".into(),
            at: None,
            reboot_requested: false,
            result,
            image_was_on_disk: false,
        })
    };
    let config = json!({"logical_disks": [{"controller": "software"}]});
    rig.agent(ended("create_configuration", config.clone()));
    assert_eq!(json!(rig.node.attributes.raid_config), config);
    rig.agent(ended("delete_configuration", json!("ok")));
    assert!(rig.node.attributes.raid_config.is_empty());
}

#[test]
fn cleaning_runs_the_agents_own_steps_in_order_and_offers_the_node() {
    let mut rig = NodeTestRig::new(Manageable);
    rig.apply_verb(Verb::Provide, vec![]).boots().is(CleanWait);
    rig.handle(NodeEvent::Heartbeat).is(Cleaning);
    rig.agent(steps_are(&[
        offered("late", 10),
        offered("first", 99),
        offered("never", 0),
    ]));
    for name in ["first", "late"] {
        let AgentOrder::Execute { step, .. } = rig.agent_order() else {
            panic!()
        };
        assert_eq!(step.step, name);
        rig.agent(Ok(AgentEvent::Accepted)).is(CleanWait);
        rig.handle(NodeEvent::Heartbeat)
            .agent(Ok(AgentEvent::StepRunning))
            .is(CleanWait);
        rig.handle(NodeEvent::Heartbeat)
            .agent(done(name))
            .is(Cleaning);
    }
    rig.power(PowerOrder::Off, OFF).is(Available);
    assert_eq!(rig.node.target_provision_state, None);
}

#[test]
fn a_failed_clean_step_puts_the_node_into_maintenance() {
    let mut rig = NodeTestRig::new(Manageable);
    rig.apply_verb(Verb::Provide, vec![]).boots();
    rig.handle(NodeEvent::Heartbeat)
        .agent(steps_are(&[offered("erase", 10)]));
    rig.agent(Ok(AgentEvent::StepFailed {
        step: None,
        message: "disk gone".into(),
    }))
    .is(CleanFail);
    assert!(rig.node.maintenance);
    assert_eq!(rig.node.fault.as_deref(), Some("clean failure"));
    assert!(
        rig.node
            .last_error
            .as_ref()
            .unwrap()
            .contains("step erase failed: disk gone")
    );
    assert_eq!(rig.node.target_provision_state, Some(Available));
}

#[test]
fn a_deployment_writes_the_image_and_starts_the_disk() {
    let mut rig = deploying();
    rig.is(DeployWait);
    rig.handle(NodeEvent::Heartbeat);
    rig.agent(steps_are(&[offered("write_image", 0)]))
        .agent(Ok(AgentEvent::Accepted));
    rig.handle(NodeEvent::Heartbeat).agent(done("write_image"));
    assert_eq!(rig.agent_order(), AgentOrder::Sync);
    rig.agent(Ok(AgentEvent::Finished));
    rig.power(PowerOrder::Off, OFF);
    rig.power(SET_DISK, TAKEN)
        .power(PowerOrder::On, TAKEN)
        .is(Active);
    assert_eq!(rig.node.target_provision_state, None);
    assert_eq!(rig.node.agent, None);
}

#[test]
fn an_agent_that_lost_our_token_is_booted_again() {
    let mut rig = deploying();
    rig.handle(NodeEvent::Heartbeat)
        .agent(Err(AgentError::TokenRefused))
        .is(Deploying);
    rig.wants(&NodeAction::Power(SET_PXE));
    assert_eq!(rig.node.agent, None);
}

#[test]
fn a_step_whose_start_was_not_confirmed_is_looked_for_before_it_is_repeated() {
    let mut rig = deploying();
    rig.handle(NodeEvent::Heartbeat)
        .agent(steps_are(&[offered("write_image", 0)]));
    rig.agent(unreachable()).is(DeployWait);
    rig.handle(NodeEvent::Heartbeat);
    assert_eq!(rig.agent_order(), AgentOrder::ListCommands);
    rig.agent(Ok(AgentEvent::Idle)).is(Deploying);
    assert!(matches!(rig.agent_order(), AgentOrder::Execute { .. }));
}

#[test]
fn a_busy_agent_is_called_again_at_its_next_heartbeat() {
    let mut rig = deploying();
    rig.handle(NodeEvent::Heartbeat)
        .agent(steps_are(&[offered("write_image", 0)]));
    rig.agent(Ok(AgentEvent::Busy)).is(DeployWait);
    assert!(
        !rig.actions
            .iter()
            .any(|action| matches!(action, NodeAction::Agent(_)))
    );
}

#[test]
fn a_step_that_never_starts_fails_the_job() {
    let mut rig = deploying();
    rig.handle(NodeEvent::Heartbeat)
        .agent(steps_are(&[offered("write_image", 0)]));
    for _ in 1..rig.limits.tries_max {
        rig.agent(Ok(AgentEvent::Accepted))
            .handle(NodeEvent::Heartbeat)
            .agent(Ok(AgentEvent::Idle));
        rig.is(Deploying);
    }
    rig.agent(Ok(AgentEvent::Accepted))
        .handle(NodeEvent::Heartbeat)
        .agent(Ok(AgentEvent::Idle));
    rig.is(DeployFail);
    assert!(
        rig.node
            .last_error
            .as_ref()
            .unwrap()
            .contains("a step does not start")
    );
}

#[test]
fn an_agent_without_the_wanted_step_fails_the_job_at_once() {
    let mut rig = deploying();
    rig.handle(NodeEvent::Heartbeat)
        .agent(steps_are(&[]))
        .is(DeployFail);
    assert!(
        rig.node
            .last_error
            .as_ref()
            .unwrap()
            .contains("no step write_image")
    );
}

#[test]
fn removal_clears_the_instance_and_cleans() {
    let mut rig = NodeTestRig::new(Active);
    rig.node
        .instance_info
        .insert("image_source".into(), "x".into());
    rig.node.instance_uuid = Some("u".into());
    rig.node
        .attributes
        .set("instance_name", Some(json!("web")))
        .unwrap();
    rig.apply_verb(Verb::Deleted, vec![]).is(Deleting);
    rig.power(PowerOrder::Off, OFF).is(Cleaning);
    assert!(rig.node.instance_info.is_empty());
    assert_eq!(rig.node.instance_uuid, None);
    assert_eq!(rig.node.attributes.instance_name, None);
    rig.power(SET_PXE, TAKEN)
        .power(PowerOrder::On, TAKEN)
        .is(CleanWait);
    rig.handle(NodeEvent::Heartbeat).agent(steps_are(&[]));
    rig.power(PowerOrder::Off, OFF).is(Available);
}

#[test]
fn removal_without_cleaning_offers_at_once() {
    let mut rig = NodeTestRig::new(Active);
    rig.node.automated_clean = Some(false);
    rig.apply_verb(Verb::Undeploy, vec![]);
    rig.power(PowerOrder::Off, OFF).is(Available);
}

#[test]
fn a_retired_node_is_not_offered_after_its_removal() {
    let mut rig = NodeTestRig::new(Active);
    rig.node.automated_clean = Some(false);
    rig.node.attributes.retired = true;
    rig.apply_verb(Verb::Undeploy, vec![]);
    rig.power(PowerOrder::Off, OFF).is(Manageable);
}

#[test]
fn a_step_that_wants_a_reboot_gets_one_and_the_next_step_follows() {
    let mut rig = NodeTestRig::new(Manageable);
    rig.apply_verb(Verb::Provide, vec![]).boots();
    rig.handle(NodeEvent::Heartbeat)
        .agent(steps_are(&[offered("one", 9), offered("two", 8)]));
    rig.agent(Ok(AgentEvent::Accepted))
        .handle(NodeEvent::Heartbeat)
        .agent(Ok(AgentEvent::StepDone {
            step: "one".into(),
            interface: "deploy".into(),
            at: None,
            reboot_requested: true,
            result: Value::Null,
            image_was_on_disk: false,
        }));
    rig.boots().handle(NodeEvent::Heartbeat);
    let AgentOrder::Execute { step, .. } = rig.agent_order() else {
        panic!()
    };
    assert_eq!(step.step, "two");
}

#[test]
fn changed_hardware_managers_make_us_read_the_steps_again() {
    let mut rig = deploying();
    rig.handle(NodeEvent::Heartbeat)
        .agent(steps_are(&[offered("write_image", 0)]));
    rig.agent(Ok(AgentEvent::VersionMismatch));
    assert_eq!(rig.agent_order(), AgentOrder::GetSteps(StepKind::Deploy));
}

#[test]
fn after_a_restart_every_phase_gives_its_order_again_or_waits_with_a_limit() {
    let mut rig = deploying();
    rig.handle(NodeEvent::Heartbeat)
        .agent(steps_are(&[offered("write_image", 0)]));
    for &phase in JobPhase::ALL {
        let mut node = rig.node.clone();
        node.job.as_mut().unwrap().phase = phase;
        let (node, actions) = step(NOW, &rig.limits, node, NodeEvent::Restarted);
        let orders = actions
            .iter()
            .any(|action| !matches!(action, NodeAction::Note(_)));
        // A hold waits for the operator only.
        assert_eq!(orders, phase != JobPhase::Hold, "{phase}");
        let wakes = actions
            .iter()
            .any(|action| matches!(action, NodeAction::WakeAfter(_)));
        assert_eq!(
            wakes,
            matches!(
                phase,
                JobPhase::AwaitAgent
                    | JobPhase::AwaitStep
                    | JobPhase::AwaitBootloader
                    | JobPhase::StartStep
                    | JobPhase::Pause
            ),
            "{phase}"
        );
        assert!(node.job.is_some());
    }
}

#[test]
fn only_the_first_sign_of_a_boot_gives_its_agent_more_time() {
    let mut rig = NodeTestRig::new(Manageable);
    rig.apply_verb(Verb::Provide, vec![]).boots();
    rig.wants(&NodeAction::WakeAfter(rig.limits.agent_wait_ms));
    rig.handle(NodeEvent::MachineSeen);
    assert_eq!(rig.actions, [], "a lease that is renewed is not progress");
    rig.handle(NodeEvent::Restarted);
    rig.wants(&NodeAction::WakeAfter(rig.limits.agent_wait_ms));
    rig.handle(NodeEvent::TimerExpired);
    rig.wants(&NodeAction::Power(SET_PXE));
}

#[test]
fn an_agent_that_beats_but_cannot_be_called_is_booted_again() {
    let mut rig = deploying();
    rig.handle(NodeEvent::Heartbeat)
        .agent(Ok(AgentEvent::StepsListed {
            steps: vec![offered("write_image", 80)],
            versions: BTreeMap::new(),
            listed: Value::Null,
        }));
    rig.agent(Ok(AgentEvent::Accepted));
    let (url, message) = ("http://a".to_owned(), "no route".to_owned());
    let silent = AgentError::Unreachable { url, message };
    for _ in 1..rig.limits.tries_max {
        rig.handle(NodeEvent::Heartbeat).agent(Err(silent.clone()));
        assert_eq!(rig.node.job.as_ref().unwrap().phase, JobPhase::AwaitStep);
    }
    // One reply in between shows that it can be called.
    rig.handle(NodeEvent::Heartbeat)
        .agent(Ok(AgentEvent::StepRunning));
    for _ in 0..rig.limits.tries_max {
        assert_eq!(rig.node.job.as_ref().unwrap().phase, JobPhase::AwaitStep);
        rig.handle(NodeEvent::Heartbeat).agent(Err(silent.clone()));
    }
    assert_eq!(rig.node.job.as_ref().unwrap().phase, JobPhase::BootFromNet);
}

#[test]
fn nothing_moves_a_node_that_rests() {
    for event in [
        NodeEvent::Heartbeat,
        NodeEvent::MachineSeen,
        NodeEvent::TimerExpired,
        NodeEvent::Restarted,
        NodeEvent::Power(PowerOrder::Off, TAKEN),
        NodeEvent::Agent(AgentOrder::Sync, Ok(AgentEvent::Finished)),
    ] {
        let mut rig = NodeTestRig::new(Active);
        let before = rig.node.clone();
        rig.handle(event);
        assert_eq!(rig.node, before);
        assert_eq!(rig.actions, []);
    }
}

#[test]
fn a_late_answer_to_an_order_of_an_earlier_phase_is_ignored() {
    let mut rig = deploying();
    let before = rig.node.clone();
    rig.handle(NodeEvent::Power(PowerOrder::Off, TAKEN));
    assert_eq!(rig.node, before);
}
