//! Rescue, service, holds, and nodes that only pretend.

use trivet_model::secret::Hidden;

use super::*;

const HASH: &str = "$6$salt$hash";

fn power(name: &str) -> Step {
    Step {
        interface: "power".into(),
        ..offered(name, 0)
    }
}

fn of(interface: &str, name: &str, args: Value) -> Step {
    Step {
        interface: interface.into(),
        args,
        ..offered(name, 0)
    }
}

impl Rig {
    fn fake(state: ProvisionState) -> Self {
        let mut rig = Self::new(state);
        rig.node.driver = "fake-hardware".into();
        rig
    }

    fn asks(&mut self, verb: Verb, args: VerbArgs) -> &mut Self {
        let (node, actions) = ask(NOW, &self.limits, &self.node, verb, args).unwrap();
        (self.node, self.actions) = (node, actions);
        self
    }

    fn rescues(&mut self) -> &mut Self {
        self.asks(
            Verb::Rescue,
            VerbArgs {
                rescue_password: Some(Hidden::new(HASH)),
                ..VerbArgs::default()
            },
        )
    }

    /// Answers power orders as a pretended machine does, until none is left.
    fn pretends(&mut self) -> Vec<Action> {
        let mut all = Vec::new();
        let mut open = self.actions.clone();
        while !open.is_empty() {
            let action = open.remove(0);
            if let Action::Power(order) = &action {
                let state = match order {
                    PowerOrder::Status => self.node.power_state.unwrap_or(PowerState::Off),
                    PowerOrder::Off | PowerOrder::SoftOff => PowerState::Off,
                    _ => PowerState::On,
                };
                let answer = match order {
                    PowerOrder::SetBoot { .. } => TAKEN,
                    _ => Ok(PowerAnswer::Power(state)),
                };
                self.hear(Event::Power(*order, answer));
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
            .any(|action| matches!(action, Action::Agent(_) | Action::WakeAfter(_)));
        assert!(!agent, "{actions:?}");
        self.is(state);
        assert_eq!(self.node.job, None);
        self
    }
}

fn states(actions: &[Action]) -> Vec<ProvisionState> {
    let to = |action: &Action| match action {
        Action::Note(NoteKind::StateChanged { to, .. }) => Some(*to),
        _ => None,
    };
    actions.iter().filter_map(to).collect()
}

#[test]
fn a_rescue_boots_the_agent_and_hands_the_hash_over_once() {
    let mut rig = Rig::new(Active);
    rig.rescues().is(Rescuing);
    assert_eq!(rig.node.instance_info[crate::RESCUE_HASH], HASH);
    rig.boots().is(RescueWait);
    rig.hear(Event::Beat).is(Rescuing);
    assert_eq!(rig.agent_order(), AgentOrder::FinishRescue);
    assert!(boots_agent(&rig.node));
    rig.agent(Ok(AgentEvent::Finished)).is(Rescue);
    assert!(rig.node.instance_info.is_empty());
    assert_eq!(rig.node.power_state, Some(PowerState::On));
}

#[test]
fn no_note_shows_the_rescue_password() {
    let mut rig = Rig::new(Active);
    rig.rescues();
    assert!(!format!("{:?}", rig.actions).contains(HASH));
    rig.boots().hear(Event::Beat);
    assert!(!format!("{:?}", rig.actions).contains(HASH));
}

#[test]
fn a_rescue_that_is_not_answered_boots_again_and_then_fails() {
    let mut rig = Rig::new(Active);
    rig.rescues();
    for boot in 1..=rig.limits.boots_max {
        if boot == 1 {
            rig.boots();
        } else {
            rig.boots_again();
        }
        rig.hear(Event::Beat);
        for _ in 1..rig.limits.tries_max {
            rig.agent(unreachable()).is(Rescuing);
            rig.hear(Event::Woke);
        }
        rig.agent(unreachable());
        let last = boot == rig.limits.boots_max;
        rig.is(if last { RescueFail } else { Rescuing });
    }
    assert!(!rig.node.instance_info.contains_key(crate::RESCUE_HASH));
}

#[test]
fn an_aborted_rescue_forgets_the_password_and_says_aborted() {
    let mut rig = Rig::new(Active);
    rig.rescues().boots();
    rig.ask(Verb::Abort, vec![]).is(RescueFail);
    assert!(rig.node.instance_info.is_empty());
    assert!(rig.node.last_error.as_ref().unwrap().contains("aborted"));
}

#[test]
fn unrescue_goes_off_and_starts_the_disk() {
    let mut rig = Rig::new(Rescue);
    rig.ask(Verb::Unrescue, vec![]).is(Unrescuing);
    rig.power(PowerOrder::Off, OFF);
    rig.power(SET_DISK, TAKEN)
        .power(PowerOrder::On, TAKEN)
        .is(Active);
}

#[test]
fn a_service_runs_its_steps_in_order_and_returns_to_the_instance() {
    let mut rig = Rig::new(Active);
    rig.ask(Verb::Service, vec![offered("b", 0), offered("a", 0)])
        .is(Servicing);
    rig.boots().is(ServiceWait);
    rig.hear(Event::Beat).is(Servicing);
    assert_eq!(rig.agent_order(), AgentOrder::GetSteps(StepKind::Service));
    rig.agent(steps_are(&[
        offered("a", 9),
        offered("b", 0),
        offered("c", 99),
    ]));
    for name in ["b", "a"] {
        rig.agent(Ok(AgentEvent::Accepted)).is(ServiceWait);
        rig.hear(Event::Beat).agent(done(name)).is(Servicing);
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
fn a_hold_stops_until_unhold_and_the_agents_next_beat_goes_on() {
    let mut rig = Rig::new(Manageable);
    rig.ask(Verb::Clean, vec![power("hold"), offered("a", 0)]);
    rig.boots().hear(Event::Beat);
    rig.agent(steps_are(&[offered("a", 0)])).is(CleanHold);
    for event in [Event::Beat, Event::Woke, Event::Restarted] {
        rig.hear(event).is(CleanHold);
        assert_eq!(rig.actions, []);
    }
    rig.ask(Verb::Unhold, vec![]).is(CleanWait);
    rig.wants(&Action::WakeAfter(rig.limits.agent_wait_ms));
    rig.hear(Event::Beat).is(Cleaning);
    assert!(matches!(rig.agent_order(), AgentOrder::Execute { step, .. } if step.step == "a"));
}

#[test]
fn every_job_with_steps_can_be_held_without_an_agent() {
    for (state, verb, held, end) in [
        (Manageable, Verb::Clean, CleanHold, Manageable),
        (Available, Verb::Deploy, DeployHold, Active),
        (Active, Verb::Service, ServiceHold, Active),
    ] {
        let mut rig = Rig::fake(state);
        rig.ask(verb, vec![power("hold")]);
        rig.pretends();
        rig.is(held);
        rig.ask(Verb::Unhold, vec![]).at_rest(end);
    }
}

#[test]
fn a_pause_lets_time_pass_and_one_without_a_time_ends_with_a_beat() {
    let mut rig = Rig::new(Manageable);
    let timed = of("power", "wait", json!({"seconds": 7}));
    rig.ask(Verb::Clean, vec![timed, power("wait"), power("hold")]);
    rig.boots().hear(Event::Beat).agent(steps_are(&[]));
    rig.is(CleanWait).wants(&Action::WakeAfter(7000));
    rig.hear(Event::Beat).is(CleanWait);
    assert_eq!(rig.actions, []);
    rig.hear(Event::Restarted).wants(&Action::WakeAfter(7000));
    rig.hear(Event::Woke).is(CleanWait);
    rig.hear(Event::Beat).is(CleanHold);
}

#[test]
fn power_steps_between_agents_steps_boot_the_agent_again() {
    let mut rig = Rig::new(Manageable);
    rig.ask(Verb::Clean, vec![power("power_off"), offered("a", 0)]);
    rig.boots()
        .hear(Event::Beat)
        .agent(steps_are(&[offered("a", 0)]));
    rig.power(PowerOrder::Off, OFF);
    rig.power(SET_PXE, TAKEN).power(PowerOrder::On, TAKEN);
    rig.is(CleanWait);
    rig.hear(Event::Beat);
    assert!(matches!(rig.agent_order(), AgentOrder::Execute { .. }));
}

#[test]
fn steps_without_ramdisk_leave_the_machine_as_it_is() {
    let mut rig = Rig::new(Active);
    rig.node.power_state = Some(PowerState::On);
    rig.asks(
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
fn a_machine_of_which_nothing_is_known_is_switched_on_when_a_step_says_so() {
    let mut rig = Rig::new(Manageable);
    let steps = vec![power("power_on")];
    let disable_ramdisk = true;
    rig.asks(
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
fn a_pretended_node_goes_through_its_whole_life_at_once() {
    let mut rig = Rig::fake(Enroll);
    rig.ask(Verb::Manage, vec![]).at_rest(Manageable);
    rig.ask(Verb::Inspect, vec![]);
    assert_eq!(states(&rig.actions), [Inspecting, Manageable]);
    assert!(rig.node.inspection_finished_at.is_some());
    assert_eq!(rig.node.inventory, None);
    rig.ask(Verb::Provide, vec![]);
    assert_eq!(states(&rig.pretends()), [Cleaning, Available]);
    rig.ask(Verb::Active, vec![]);
    assert_eq!(states(&rig.pretends()), [Deploying, Active]);
    assert_eq!(rig.node.power_state, Some(PowerState::On));
    rig.rescues();
    assert_eq!(states(&rig.pretends()), [Rescuing, Rescue]);
    rig.ask(Verb::Unrescue, vec![]).at_rest(Active);
    rig.ask(Verb::Rebuild, vec![]).at_rest(Active);
    rig.ask(Verb::Deleted, vec![]);
    assert_eq!(states(&rig.pretends()), [Deleting, Cleaning, Available]);
    assert_eq!(rig.node.power_state, Some(PowerState::Off));
    rig.ask(Verb::Manage, vec![])
        .ask(Verb::Adopt, vec![])
        .at_rest(Active);
}

#[test]
fn a_pretended_node_keeps_what_its_steps_set() {
    let mut rig = Rig::fake(Manageable);
    let raid = json!({"logical_disks": [{"size_gb": 1, "raid_level": "1"}]});
    rig.node
        .kept
        .insert("target_raid_config".into(), raid.clone());
    let settings = json!({"settings": [{"name": "Turbo", "value": "off"}, {"name": 3}]});
    let steps = vec![
        of("bios", "apply_configuration", settings),
        of("raid", "create_configuration", json!({})),
        of("firmware", "update", json!({})),
        of("deploy", "erase_devices_metadata", json!({})),
    ];
    rig.ask(Verb::Clean, steps).at_rest(Manageable);
    assert_eq!(rig.node.kept["raid_config"], raid);
    let kept = &rig.node.driver_internal_info["bios_settings"];
    assert_eq!(*kept, json!({"Turbo": "off"}));
    let steps = vec![
        of("bios", "factory_reset", json!({})),
        of("raid", "delete_configuration", json!({})),
    ];
    rig.ask(Verb::Clean, steps).at_rest(Manageable);
    assert!(!rig.node.kept.contains_key("raid_config"));
    assert!(rig.node.driver_internal_info.is_empty());
}

#[test]
fn a_step_a_pretended_node_does_not_have_fails_by_name_without_maintenance() {
    let dance = of("deploy", "dance", json!({}));
    let mut rig = Rig::fake(Manageable);
    rig.ask(Verb::Clean, vec![dance.clone()]).at_rest(CleanFail);
    assert!(rig.node.last_error.as_ref().unwrap().contains("step dance"));
    assert!(!rig.node.maintenance);
    let mut rig = Rig::fake(Active);
    rig.ask(Verb::Service, vec![dance]).at_rest(ServiceFail);
    let mut rig = Rig::fake(Manageable);
    rig.node
        .kept
        .insert("bios_interface".into(), "no-bios".into());
    let bios = of("bios", "factory_reset", json!({}));
    rig.ask(Verb::Clean, vec![bios]).at_rest(CleanFail);
}

#[test]
fn a_rehearsal_with_a_real_agent_boots_it() {
    let mut rig = Rig::fake(Available);
    for (kind, name) in [("deploy", "direct"), ("boot", "ipxe")] {
        rig.node
            .kept
            .insert(format!("{kind}_interface"), name.into());
    }
    rig.ask(Verb::Active, vec![offered("write_image", 80)]);
    rig.boots().is(DeployWait);
}
