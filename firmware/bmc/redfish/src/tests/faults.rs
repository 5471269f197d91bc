//! Seeded faults: with any fault on the network, every order ends with a confirmed result or a
//! named error, and a request that must not be repeated is sent once.

use serde_json::json;
use trivet_bmc::http::BmcHttpError;
use trivet_model::bmc_request::MediaDevice;
use trivet_model::secret::SecretText;
use trivet_model::{
    BmcFailureCause, BootDevice, PowerAnswer, PowerOrder, PowerState, SeededRandom,
};

use super::rig::{RedfishTestRig, cause, deliver, lost, unreachable};
use crate::service::{RedfishSimulatorAction, RedfishSimulatorSetup};
use crate::{BmcHttpMethod, BmcHttpResponse, RedfishOperation, RedfishReply};

/// A faulty network to a faulty BMC. The BMC may or may not have received a lost request; a
/// repeated response belongs to the previous request.
fn bad(rig: &mut RedfishTestRig, seed: u64) {
    let mut random = SeededRandom::new(seed);
    let mut before: Option<BmcHttpResponse> = None;
    rig.wire(move |now, request, service, entropy| {
        match random.below(40) {
            0 => return Err(unreachable()),
            1 => return Err(lost()),
            2 => {
                let _ = deliver(now, request, service, entropy);
                return Err(lost());
            }
            3 => service.faults.busy = (1, random.below(5)),
            4 => service.drop_sessions(),
            5 => service.faults.truncated = 1,
            6 => service.restart(now.after_ms(random.below(15_000))),
            7 => service.faults.reported_power = Some(PowerState::On),
            8 => service.faults.reported_power = None,
            9 if request.method == BmcHttpMethod::Get => {
                // The previous request gets its response a second time.
                if let Some(old) = before.take() {
                    return Ok(old);
                }
            }
            _ => {}
        }
        let answer = deliver(now, request, service, entropy)?;
        before = Some(answer.clone());
        Ok(answer)
    });
}

fn setup(seed: u64) -> RedfishSimulatorSetup {
    RedfishSimulatorSetup {
        lag_ms: (seed % 12) * 1_000,
        task_ms: seed.is_multiple_of(3).then_some(3_000),
        sessions: !seed.is_multiple_of(5),
        ..RedfishSimulatorSetup::default()
    }
}

/// Number of resets of this type since the last call.
fn resets(rig: &mut RedfishTestRig, word: &str) -> usize {
    let actions = rig.service.take_actions();
    let wanted = RedfishSimulatorAction::Reset(0, word.to_owned());
    actions.iter().filter(|action| **action == wanted).count()
}

#[test]
fn every_order_ends_and_what_counts_is_done_once_at_most() {
    for seed in 0..300 {
        let mut rig = RedfishTestRig::new(setup(seed));
        rig.service.machine(0).unwrap().power = PowerState::On;
        bad(&mut rig, seed);
        for order in [PowerOrder::Nmi, PowerOrder::Cycle, PowerOrder::Reset] {
            let answer = rig.order(order);
            let actions = rig.service.take_actions();
            assert!(
                actions.len() <= 1,
                "seed {seed}: {order:?} {actions:?} {answer:?}"
            );
            if let Err(error) = answer {
                assert!(!error.to_string().is_empty());
            }
        }
        let _ = rig.order(PowerOrder::BmcReset { warm: true });
        assert!(rig.service.take_actions().len() <= 1, "seed {seed}");
    }
}

#[test]
fn with_long_timeouts_every_machine_reaches_its_target() {
    for seed in 0..200 {
        let mut rig = RedfishTestRig::new(setup(seed));
        bad(&mut rig, 1_000 + seed);
        for (order, end) in [
            (PowerOrder::On, PowerState::On),
            (PowerOrder::Off, PowerState::Off),
        ] {
            let mut tries = 0;
            // As a job does: sends the order until it is accepted, then polls the state.
            while rig.service.machine(0).unwrap().power != end {
                tries += 1;
                assert!(tries < 200, "seed {seed}: {order:?}");
                let taken = rig.order(order) == Ok(PowerAnswer::Accepted);
                rig.wait(if taken { 12_000 } else { 5_000 });
                let _ = rig.order(PowerOrder::Status);
            }
        }
        assert!(resets(&mut rig, "On") >= 1, "seed {seed}");
    }
}

#[test]
fn a_boot_device_that_was_accepted_is_set() {
    let order = PowerOrder::SetBoot {
        device: BootDevice::Pxe,
        persistent: false,
        efi: true,
    };
    let mut accepted = 0;
    for seed in 0..200 {
        let mut rig = RedfishTestRig::new(setup(seed));
        bad(&mut rig, 2_000 + seed);
        if rig.order(order) == Ok(PowerAnswer::Accepted) {
            accepted += 1;
            assert_eq!(
                rig.service.machine(0).unwrap().boot[0],
                "Pxe",
                "seed {seed}"
            );
        }
    }
    assert!(accepted > 100, "{accepted}");
}

#[test]
fn an_image_that_was_reported_is_in() {
    let mut done = 0;
    for seed in 0..200 {
        let mut rig = RedfishTestRig::new(setup(seed));
        bad(&mut rig, 3_000 + seed);
        let url = SecretText::new("http://192.0.2.1/a.iso");
        let device = MediaDevice::Cdrom;
        if rig.operation(RedfishOperation::InsertMedia { device, url }) == Ok(RedfishReply::Done) {
            done += 1;
            assert!(
                rig.service.machine(0).unwrap().media.is_some(),
                "seed {seed}"
            );
        }
    }
    assert!(done > 50, "{done}");
}

#[test]
fn a_bmc_that_ignores_resets_is_seen_by_its_state() {
    let mut rig = RedfishTestRig::new(RedfishSimulatorSetup::default());
    rig.service.faults.ignores_resets = true;
    assert_eq!(rig.order(PowerOrder::On), Ok(PowerAnswer::Accepted));
    rig.wait(60_000);
    let off = Ok(PowerAnswer::Power(PowerState::Off));
    assert_eq!(rig.order(PowerOrder::Status), off);
}

/// Each further attempt would take as long as the first one: the caller is told after one.
#[test]
fn a_bmc_that_accepts_connections_and_never_answers_is_reported_after_one_timeout() {
    for more in [json!({}), json!({"redfish_auth_type": "basic"})] {
        let mut rig = RedfishTestRig::with(RedfishSimulatorSetup::default(), more);
        rig.wire(|_, _, _, _| Err(BmcHttpError::Silent));
        let result = rig.order(PowerOrder::Status);
        assert_eq!(rig.take_requests().len(), 1);
        let message = result.clone().unwrap_err().to_string();
        assert!(message.contains("did not answer within 20 s"), "{message}");
        assert_eq!(cause(result), BmcFailureCause::Unreachable);
    }
}
