//! One-time tokens for the boot mailbox of a BMC.

use trivet_model::NodeEnrolment;

use super::*;

/// An inspection up to the request for its token.
fn inspecting() -> NodeTestRig {
    let mut rig = NodeTestRig::new(Manageable);
    rig.limits.sends_tokens = true;
    rig.apply_verb(Verb::Inspect, vec![]);
    rig.power(PowerOrder::Off, OFF).power(SET_PXE, TAKEN);
    rig.wants(&NodeAction::SendToken);
    rig
}

fn enrolment() -> NodeEnrolment {
    NodeEnrolment {
        token: "a token".to_owned(),
        redeemed: None,
    }
}

#[test]
fn the_token_is_sent_before_the_machine_is_switched_on() {
    let mut rig = inspecting();
    assert!(!rig.actions.contains(&NodeAction::Power(PowerOrder::On)));
    assert!(
        awaits_reset(&rig.node),
        "an agent that calls now is an old one"
    );
    assert!(boots_agent(&rig.node));
    rig.handle(NodeEvent::TokenSent);
    rig.wants(&NodeAction::Power(PowerOrder::On));
}

/// The token that was made before may have arrived or not: the rack makes another one.
#[test]
fn after_a_restart_of_the_box_a_token_is_sent_again() {
    let mut rig = inspecting();
    rig.node.enrolment = Some(enrolment());
    rig.actions.clear();
    rig.handle(NodeEvent::Restarted);
    rig.wants(&NodeAction::SendToken);
}

#[test]
fn each_boot_ends_the_enrolment_of_the_one_before() {
    let mut rig = inspecting();
    rig.handle(NodeEvent::TokenSent);
    rig.node.enrolment = Some(enrolment());
    rig.power(PowerOrder::On, TAKEN);
    assert!(rig.node.enrolment.is_some());
    // Not seen in time: the machine is booted again.
    rig.handle(NodeEvent::TimerExpired);
    assert_eq!(rig.node.enrolment, None);
    rig.power(SET_PXE, TAKEN).wants(&NodeAction::SendToken);
}

#[test]
fn a_job_that_ends_clears_the_mailbox_if_it_has_sent_a_token() {
    for sent in [false, true] {
        let mut rig = inspecting();
        rig.node.enrolment = sent.then(enrolment);
        rig.handle(NodeEvent::NotInspected { why: "x".into() });
        rig.handle(NodeEvent::BootFileUnusable {
            why: "no kernel".into(),
        });
        assert!(rig.node.job.is_none());
        assert_eq!(rig.node.enrolment, None);
        assert_eq!(rig.actions.contains(&NodeAction::ClearMailbox), sent);
    }
}

#[test]
fn a_late_answer_about_a_token_switches_nothing_on() {
    let mut rig = inspecting();
    rig.handle(NodeEvent::TokenSent);
    rig.power(PowerOrder::On, TAKEN);
    rig.actions.clear();
    rig.handle(NodeEvent::TokenSent);
    assert!(rig.actions.is_empty(), "{:?}", rig.actions);
}

/// With fast track the agent stays, and so does its certificate until it ends.
#[test]
fn an_agent_that_keeps_running_keeps_its_certificate() {
    let mut rig = NodeTestRig::new(Manageable);
    rig.limits.fast_track = true;
    rig.apply_verb(Verb::Provide, vec![]).boots();
    rig.node.agent = Some(trivet_model::AgentSession {
        url: Some("https://192.0.2.9:9999".to_owned()),
        ..trivet_model::AgentSession::legacy()
    });
    rig.node.enrolment = Some(enrolment());
    rig.handle(NodeEvent::Heartbeat)
        .agent(steps_are(&[offered("erase_devices_metadata", 9)]));
    rig.agent(Ok(AgentEvent::Accepted))
        .handle(NodeEvent::Heartbeat);
    rig.agent(done("erase_devices_metadata")).is(Available);
    assert_eq!(rig.node.enrolment, Some(enrolment()));
    let available = rig.node.clone();
    rig.apply_verb(Verb::Active, vec![offered("write_image", 80)]);
    rig.wants(&NodeAction::Note(NoteKind::AgentReused));
    assert_eq!(rig.node.enrolment, Some(enrolment()));
    rig.node = available;
    rig.actions.clear();
    rig.handle(NodeEvent::TimerExpired);
    assert_eq!(rig.node.enrolment, None);
    rig.wants(&NodeAction::ClearMailbox);
}
