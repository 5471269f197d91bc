//! Rescue, service, holds, and nodes with fake hardware.

use trivet_model::secret::SecretText;

use super::*;

const HASH: &str = "$6$salt$hash";

fn power(name: &str) -> JobStep {
    JobStep {
        interface: "power".into(),
        ..offered(name, 0)
    }
}

fn of(interface: &str, name: &str, args: Value) -> JobStep {
    JobStep {
        interface: interface.into(),
        args,
        ..offered(name, 0)
    }
}

impl NodeTestRig {
    fn fake(state: ProvisionState) -> Self {
        let mut rig = Self::new(state);
        rig.node.driver = "fake-hardware".into();
        rig
    }

    fn apply_verb_with(&mut self, verb: Verb, args: VerbArgs) -> &mut Self {
        let (node, actions) = apply_verb(NOW, &self.limits, &self.node, verb, args).unwrap();
        (self.node, self.actions) = (node, actions);
        self
    }

    fn rescues(&mut self) -> &mut Self {
        self.apply_verb_with(
            Verb::Rescue,
            VerbArgs {
                rescue_password: Some(SecretText::new(HASH)),
                ..VerbArgs::default()
            },
        )
    }

    /// Replies to power orders as fake hardware does, until none is left.
    fn pretends(&mut self) -> Vec<NodeAction> {
        let mut all = Vec::new();
        let mut open = self.actions.clone();
        while !open.is_empty() {
            let action = open.remove(0);
            if let NodeAction::Power(order) = &action {
                let state = match order {
                    PowerOrder::Status => self.node.power_state.unwrap_or(PowerState::Off),
                    PowerOrder::Off | PowerOrder::SoftOff => PowerState::Off,
                    _ => PowerState::On,
                };
                let answer = match order {
                    PowerOrder::SetBoot { .. } => TAKEN,
                    _ => Ok(PowerAnswer::Power(state)),
                };
                self.handle(NodeEvent::Power(*order, answer));
                open.extend(self.actions.clone());
            }
            all.push(action);
        }
        all
    }

    fn at_rest(&mut self, state: ProvisionState) -> &mut Self {
        let actions = self.pretends();
        let agent = actions
            .iter()
            .any(|action| matches!(action, NodeAction::Agent(_) | NodeAction::WakeAfter(_)));
        assert!(!agent, "{actions:?}");
        self.is(state);
        assert_eq!(self.node.job, None);
        self
    }
}

fn states(actions: &[NodeAction]) -> Vec<ProvisionState> {
    let to = |action: &NodeAction| match action {
        NodeAction::Note(NoteKind::StateChanged { to, .. }) => Some(*to),
        _ => None,
    };
    actions.iter().filter_map(to).collect()
}

#[test]
fn a_rescue_boots_the_agent_and_hands_the_hash_over_once() {
    let mut rig = NodeTestRig::new(Active);
    rig.rescues().is(Rescuing);
    assert_eq!(rig.node.instance_info[crate::RESCUE_HASH], HASH);
    rig.boots().is(RescueWait);
    rig.handle(NodeEvent::Heartbeat).is(Rescuing);
    assert_eq!(rig.agent_order(), AgentOrder::FinishRescue);
    assert!(boots_agent(&rig.node));
    rig.agent(Ok(AgentEvent::Finished)).is(Rescue);
    assert!(rig.node.instance_info.is_empty());
    assert_eq!(rig.node.power_state, Some(PowerState::On));
}

#[test]
fn no_note_shows_the_rescue_password() {
    let mut rig = NodeTestRig::new(Active);
    rig.rescues();
    assert!(!format!("{:?}", rig.actions).contains(HASH));
    rig.boots().handle(NodeEvent::Heartbeat);
    assert!(!format!("{:?}", rig.actions).contains(HASH));
}

#[test]
fn a_rescue_that_is_not_answered_boots_again_and_then_fails() {
    let mut rig = NodeTestRig::new(Active);
    rig.rescues();
    for boot in 1..=rig.limits.boots_max {
        if boot == 1 {
            rig.boots();
        } else {
            rig.boots_again();
        }
        rig.handle(NodeEvent::Heartbeat);
        for _ in 1..rig.limits.tries_max {
            rig.agent(unreachable()).is(Rescuing);
            rig.handle(NodeEvent::TimerExpired);
        }
        rig.agent(unreachable());
        let last = boot == rig.limits.boots_max;
        rig.is(if last { RescueFail } else { Rescuing });
    }
    assert!(!rig.node.instance_info.contains_key(crate::RESCUE_HASH));
}

#[test]
fn an_aborted_rescue_removes_the_password_and_is_named_in_the_error() {
    let mut rig = NodeTestRig::new(Active);
    rig.rescues().boots();
    rig.apply_verb(Verb::Abort, vec![]).is(RescueFail);
    assert!(rig.node.instance_info.is_empty());
    assert!(rig.node.last_error.as_ref().unwrap().contains("aborted"));
}

#[test]
fn unrescue_goes_off_and_starts_the_disk() {
    let mut rig = NodeTestRig::new(Rescue);
    rig.apply_verb(Verb::Unrescue, vec![]).is(Unrescuing);
    rig.power(PowerOrder::Off, OFF);
    rig.power(SET_DISK, TAKEN)
        .power(PowerOrder::On, TAKEN)
        .is(Active);
}

#[test]
fn a_service_runs_its_steps_in_order_and_returns_to_the_instance() {
    let mut rig = NodeTestRig::new(Active);
    rig.apply_verb(Verb::Service, vec![offered("b", 0), offered("a", 0)])
        .is(Servicing);
    rig.boots().is(ServiceWait);
    rig.handle(NodeEvent::Heartbeat).is(Servicing);
    assert_eq!(rig.agent_order(), AgentOrder::GetSteps(StepKind::Service));
    rig.agent(steps_are(&[
        offered("a", 9),
        offered("b", 0),
        offered("c", 99),
    ]));
    for name in ["b", "a"] {
        rig.agent(Ok(AgentEvent::Accepted)).is(ServiceWait);
        rig.handle(NodeEvent::Heartbeat)
            .agent(done(name))
            .is(Servicing);
    }
    assert_eq!(rig.agent_order(), AgentOrder::Sync);
    rig.agent(Ok(AgentEvent::Finished));
    rig.power(PowerOrder::Off, OFF);
    rig.power(SET_DISK, TAKEN)
        .power(PowerOrder::On, TAKEN)
        .is(Active);
    assert!(!rig.node.maintenance);
}

#[test]
fn a_hold_stops_until_unhold_and_the_agents_next_heartbeat_continues() {
    let mut rig = NodeTestRig::new(Manageable);
    rig.apply_verb(Verb::Clean, vec![power("hold"), offered("a", 0)]);
    rig.boots().handle(NodeEvent::Heartbeat);
    rig.agent(steps_are(&[offered("a", 0)])).is(CleanHold);
    for event in [
        NodeEvent::Heartbeat,
        NodeEvent::TimerExpired,
        NodeEvent::Restarted,
    ] {
        rig.handle(event).is(CleanHold);
        assert_eq!(rig.actions, []);
    }
    rig.apply_verb(Verb::Unhold, vec![]).is(CleanWait);
    rig.wants(&NodeAction::WakeAfter(rig.limits.agent_wait_ms));
    rig.handle(NodeEvent::Heartbeat).is(Cleaning);
    assert!(matches!(rig.agent_order(), AgentOrder::Execute { step, .. } if step.step == "a"));
}

#[test]
fn every_job_with_steps_can_be_held_without_an_agent() {
    for (state, verb, held, end) in [
        (Manageable, Verb::Clean, CleanHold, Manageable),
        (Available, Verb::Deploy, DeployHold, Active),
        (Active, Verb::Service, ServiceHold, Active),
    ] {
        let mut rig = NodeTestRig::fake(state);
        rig.apply_verb(verb, vec![power("hold")]);
        rig.pretends();
        rig.is(held);
        rig.apply_verb(Verb::Unhold, vec![]).at_rest(end);
    }
}

#[test]
fn a_wait_ends_after_its_time_or_with_a_heartbeat() {
    let mut rig = NodeTestRig::new(Manageable);
    let timed = of("power", "wait", json!({"seconds": 7}));
    rig.apply_verb(Verb::Clean, vec![timed, power("wait"), power("hold")]);
    rig.boots()
        .handle(NodeEvent::Heartbeat)
        .agent(steps_are(&[]));
    rig.is(CleanWait).wants(&NodeAction::WakeAfter(7000));
    rig.handle(NodeEvent::Heartbeat).is(CleanWait);
    assert_eq!(rig.actions, []);
    rig.handle(NodeEvent::Restarted)
        .wants(&NodeAction::WakeAfter(7000));
    rig.handle(NodeEvent::TimerExpired).is(CleanWait);
    rig.handle(NodeEvent::Heartbeat).is(CleanHold);
}

#[test]
fn power_steps_between_agents_steps_boot_the_agent_again() {
    let mut rig = NodeTestRig::new(Manageable);
    rig.apply_verb(Verb::Clean, vec![power("power_off"), offered("a", 0)]);
    rig.boots()
        .handle(NodeEvent::Heartbeat)
        .agent(steps_are(&[offered("a", 0)]));
    rig.power(PowerOrder::Off, OFF);
    rig.power(SET_PXE, TAKEN).power(PowerOrder::On, TAKEN);
    rig.is(CleanWait);
    rig.handle(NodeEvent::Heartbeat);
    assert!(matches!(rig.agent_order(), AgentOrder::Execute { .. }));
}

#[test]
fn steps_without_ramdisk_leave_the_machine_as_it_is() {
    let mut rig = NodeTestRig::new(Active);
    rig.node.power_state = Some(PowerState::On);
    rig.apply_verb_with(
        Verb::Service,
        VerbArgs {
            steps: vec![power("power_on"), power("reboot")],
            disable_ramdisk: true,
            ..VerbArgs::default()
        },
    );
    assert!(!boots_agent(&rig.node));
    rig.power(PowerOrder::Cycle, TAKEN).is(Active);
    assert_eq!(rig.node.job, None);
}

#[test]
fn a_machine_of_unknown_power_state_is_switched_on_by_a_step() {
    let mut rig = NodeTestRig::new(Manageable);
    let steps = vec![power("power_on")];
    let disable_ramdisk = true;
    rig.apply_verb_with(
        Verb::Clean,
        VerbArgs {
            steps,
            disable_ramdisk,
            ..VerbArgs::default()
        },
    );
    rig.power(PowerOrder::On, TAKEN).is(Manageable);
    assert_eq!(rig.node.power_state, Some(PowerState::On));
}

#[test]
fn a_fake_node_goes_through_all_states_at_once() {
    let mut rig = NodeTestRig::fake(Enroll);
    rig.apply_verb(Verb::Manage, vec![]).at_rest(Manageable);
    rig.apply_verb(Verb::Inspect, vec![]);
    assert_eq!(states(&rig.actions), [Inspecting, Manageable]);
    assert!(rig.node.inspection_finished_at.is_some());
    assert_eq!(rig.node.inventory, None);
    rig.apply_verb(Verb::Provide, vec![]);
    assert_eq!(states(&rig.pretends()), [Cleaning, Available]);
    rig.apply_verb(Verb::Active, vec![]);
    assert_eq!(states(&rig.pretends()), [Deploying, Active]);
    assert_eq!(rig.node.power_state, Some(PowerState::On));
    rig.rescues();
    assert_eq!(states(&rig.pretends()), [Rescuing, Rescue]);
    rig.apply_verb(Verb::Unrescue, vec![]).at_rest(Active);
    rig.apply_verb(Verb::Rebuild, vec![]).at_rest(Active);
    rig.apply_verb(Verb::Deleted, vec![]);
    assert_eq!(states(&rig.pretends()), [Deleting, Cleaning, Available]);
    assert_eq!(rig.node.power_state, Some(PowerState::Off));
    rig.apply_verb(Verb::Manage, vec![])
        .apply_verb(Verb::Adopt, vec![])
        .at_rest(Active);
}

#[test]
fn a_fake_node_stores_what_its_steps_set() {
    let mut rig = NodeTestRig::fake(Manageable);
    let raid = json!({"logical_disks": [{"size_gb": 1, "raid_level": "1"}]});
    rig.node
        .attributes
        .set("target_raid_config", Some(raid.clone()))
        .unwrap();
    let settings = json!({"settings": [{"name": "Turbo", "value": "off"}, {"name": 3}]});
    let steps = vec![
        of("bios", "apply_configuration", settings),
        of("raid", "create_configuration", json!({})),
        of("firmware", "update", json!({})),
        of("deploy", "erase_devices_metadata", json!({})),
    ];
    rig.apply_verb(Verb::Clean, steps).at_rest(Manageable);
    assert_eq!(json!(rig.node.attributes.raid_config), raid);
    let stored = &rig.node.driver_internal_info["bios_settings"];
    assert_eq!(*stored, json!({"Turbo": "off"}));
    let steps = vec![
        of("bios", "factory_reset", json!({})),
        of("raid", "delete_configuration", json!({})),
    ];
    rig.apply_verb(Verb::Clean, steps).at_rest(Manageable);
    assert!(rig.node.attributes.raid_config.is_empty());
    assert!(rig.node.driver_internal_info.is_empty());
}

#[test]
fn a_step_a_fake_node_does_not_have_fails_by_name_without_maintenance() {
    let dance = of("deploy", "dance", json!({}));
    let mut rig = NodeTestRig::fake(Manageable);
    rig.apply_verb(Verb::Clean, vec![dance.clone()])
        .at_rest(CleanFail);
    assert!(rig.node.last_error.as_ref().unwrap().contains("step dance"));
    assert!(!rig.node.maintenance);
    let mut rig = NodeTestRig::fake(Active);
    rig.apply_verb(Verb::Service, vec![dance])
        .at_rest(ServiceFail);
    let mut rig = NodeTestRig::fake(Manageable);
    rig.node.attributes.interfaces.bios = Some(BiosInterface::NoBios);
    let bios = of("bios", "factory_reset", json!({}));
    rig.apply_verb(Verb::Clean, vec![bios]).at_rest(CleanFail);
}

#[test]
fn fake_hardware_with_a_real_agent_boots_it() {
    let mut rig = NodeTestRig::fake(Available);
    rig.node.attributes.interfaces.deploy = Some(DeployInterface::Direct);
    rig.node.attributes.interfaces.boot = Some(BootInterface::Ipxe);
    rig.apply_verb(Verb::Active, vec![offered("write_image", 80)]);
    rig.boots().is(DeployWait);
}
