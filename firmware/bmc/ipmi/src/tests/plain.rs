//! Suite 0: it has no authentication, so it is used only if the operator selects it.

use trivet_model::{PowerAnswer, PowerError, PowerOrder, PowerState};

use super::rig::{ACCEPTED, IpmiTestRig, IpmiWireFaults, setup, target};
use crate::bmc::IpmiSimulatorSetup;
use crate::wire::packet::{self, KIND_IPMI, RmcpPacket};
use crate::{IpmiCipherSuite, IpmiTarget};

fn suite_0_target() -> IpmiTarget {
    IpmiTarget {
        suite: Some(IpmiCipherSuite::Plain),
        ..target()
    }
}

fn suite_0_setup() -> IpmiSimulatorSetup {
    IpmiSimulatorSetup {
        suites: vec![IpmiCipherSuite::Plain],
        ..setup()
    }
}

#[test]
fn a_selected_suite_0_gives_a_session_without_protection() {
    let mut rig = IpmiTestRig::new(suite_0_target(), suite_0_setup());
    assert_eq!(rig.run(PowerOrder::On), ACCEPTED);
    let on = Ok(PowerAnswer::Power(PowerState::On));
    assert_eq!(rig.run(PowerOrder::Status), on);
    let Some(RmcpPacket::RmcpPlus(last)) = rig.sent.last().and_then(|it| RmcpPacket::parse(it))
    else {
        panic!("an RMCP+ packet");
    };
    assert!(!last.encrypted && !last.authenticated && last.session_id != 0);
}

#[test]
fn there_is_no_fallback_to_it() {
    let mut rig = IpmiTestRig::new(target(), suite_0_setup());
    assert_eq!(rig.run(PowerOrder::On), Err(PowerError::NoSuite));
    assert!(rig.machine.done.is_empty());
}

#[test]
fn a_careful_bmc_refuses_it() {
    let mut rig = IpmiTestRig::new(suite_0_target(), setup());
    assert_eq!(rig.run(PowerOrder::On), Err(PowerError::NoSuite));
}

#[test]
fn a_protected_session_accepts_no_plain_packet() {
    let mut rig = IpmiTestRig::new(target(), setup());
    assert_eq!(rig.run(PowerOrder::On), ACCEPTED);
    let Some(RmcpPacket::RmcpPlus(last)) = rig.sent.last().and_then(|it| RmcpPacket::parse(it))
    else {
        panic!("an RMCP+ packet");
    };
    // Power off, like a request of this session but without its protection.
    let text = [0x20, 0x00, 0xe0, 0x81, 0x04, 0x02, 0x00, 0x79];
    let forged = packet::emit_rmcp_plus(KIND_IPMI, last.session_id, last.sequence + 1, &text);
    rig.bmc
        .datagram(1, &forged, &mut rig.machine, &mut rig.entropy);
    assert_eq!(rig.machine.done, [PowerOrder::On]);
}

#[test]
fn copies_and_losses_do_no_harm() {
    for seed in 0..100 {
        let faults = IpmiWireFaults {
            lost: 100,
            doubled: 200,
            bent: 0,
            late_ms: 400,
        };
        let mut rig = IpmiTestRig::seeded(seed, faults);
        rig.session = crate::IpmiSession::new(suite_0_target(), crate::IpmiTiming::default());
        rig.bmc = crate::bmc::IpmiSimulator::new(suite_0_setup());
        match rig.run(PowerOrder::On) {
            Ok(_) => assert_eq!(rig.machine.power, PowerState::On, "seed {seed}"),
            Err(error) => assert!(matches!(error, PowerError::NoResponse { .. }), "{error}"),
        }
    }
}
