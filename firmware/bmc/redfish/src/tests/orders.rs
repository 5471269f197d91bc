use serde_json::{Value, json};
use trivet_model::power::{HardwareHealth, RawBytes};
use trivet_model::{BmcFailureCause, BootDevice, PowerAnswer, PowerError, PowerOrder, PowerState};

use super::rig::{RedfishTestRig, body, cause, deliver, json_answer, lost};
use crate::BmcHttpMethod;
use crate::service::{RedfishSimulatorAction, RedfishSimulatorSetup};

const ACCEPTED: Result<PowerAnswer, PowerError> = Ok(PowerAnswer::Accepted);

const ON: Result<PowerAnswer, PowerError> = Ok(PowerAnswer::Power(PowerState::On));
const OFF: Result<PowerAnswer, PowerError> = Ok(PowerAnswer::Power(PowerState::Off));

fn reset(word: &str) -> RedfishSimulatorAction {
    RedfishSimulatorAction::Reset(0, word.to_owned())
}

fn running() -> RedfishTestRig {
    let mut rig = RedfishTestRig::new(RedfishSimulatorSetup::default());
    rig.service.machine(0).unwrap().power = PowerState::On;
    rig
}

const PXE: PowerOrder = PowerOrder::SetBoot {
    device: BootDevice::Pxe,
    persistent: false,
    efi: false,
};

#[test]
fn reads_the_power_of_the_only_system() {
    let mut rig = RedfishTestRig::new(RedfishSimulatorSetup::default());
    assert_eq!(rig.order(PowerOrder::Status), OFF);
    assert_eq!(
        rig.take_requests(),
        [
            "POST /redfish/v1/SessionService/Sessions",
            "GET /redfish/v1/Systems",
            "GET /redfish/v1/Systems/1",
        ]
    );
    // The second order uses the cached session and path.
    assert_eq!(rig.order(PowerOrder::Status), OFF);
    assert_eq!(rig.take_requests(), ["GET /redfish/v1/Systems/1"]);
}

#[test]
fn switches_on_and_off_with_a_lag() {
    let mut rig = RedfishTestRig::new(RedfishSimulatorSetup {
        lag_ms: 11_000,
        ..RedfishSimulatorSetup::default()
    });
    assert_eq!(rig.order(PowerOrder::On), ACCEPTED);
    assert_eq!(rig.order(PowerOrder::Status), OFF);
    rig.wait(11_000);
    assert_eq!(rig.order(PowerOrder::Status), ON);
    assert_eq!(rig.order(PowerOrder::Off), ACCEPTED);
    // The machine is shutting down, and still counts as on.
    assert_eq!(rig.order(PowerOrder::Status), ON);
    rig.wait(11_000);
    assert_eq!(rig.order(PowerOrder::Status), OFF);
    assert_eq!(rig.service.take_actions(), [reset("On"), reset("ForceOff")]);
}

#[test]
fn each_order_has_its_reset_type() {
    for (order, word) in [
        (PowerOrder::SoftOff, "GracefulShutdown"),
        (PowerOrder::Cycle, "PowerCycle"),
        (PowerOrder::Reset, "ForceRestart"),
        (PowerOrder::Nmi, "Nmi"),
    ] {
        let mut rig = running();
        assert_eq!(rig.order(order), ACCEPTED);
        assert_eq!(rig.service.take_actions(), [reset(word)]);
    }
}

#[test]
fn what_is_off_is_switched_on_instead_of_restarted() {
    for order in [PowerOrder::Cycle, PowerOrder::Reset] {
        let mut rig = RedfishTestRig::new(RedfishSimulatorSetup::default());
        assert_eq!(rig.order(order), ACCEPTED);
        assert_eq!(rig.service.take_actions(), [reset("On")]);
    }
}

#[test]
fn a_needless_switch_that_is_refused_is_done() {
    let mut rig = running();
    assert_eq!(rig.order(PowerOrder::On), ACCEPTED);
    assert_eq!(rig.service.take_actions(), [reset("On")]);
    let mut rig = RedfishTestRig::new(RedfishSimulatorSetup::default());
    assert_eq!(rig.order(PowerOrder::Off), ACCEPTED);
    assert_eq!(rig.order(PowerOrder::SoftOff), ACCEPTED);
}

/// The BMC reports "on" for a machine that is off: the reset is sent all the same.
#[test]
fn a_wrong_power_state_does_not_keep_a_machine_off() {
    let mut rig = RedfishTestRig::new(RedfishSimulatorSetup::default());
    rig.service.faults.reported_power = Some(PowerState::On);
    assert_eq!(rig.order(PowerOrder::On), ACCEPTED);
    assert_eq!(rig.service.machine(0).unwrap().power, PowerState::On);
}

#[test]
fn a_refusal_that_matters_is_quoted() {
    let mut rig = RedfishTestRig::new(RedfishSimulatorSetup::default());
    let answer = rig.order(PowerOrder::Nmi);
    let text = answer.as_ref().unwrap_err().to_string();
    assert!(
        text.contains("409") && text.contains("Not in this state"),
        "{text}"
    );
    assert_eq!(cause(answer), BmcFailureCause::Refused);
}

#[test]
fn a_lost_switch_counts_by_what_is_read_after_it() {
    for received in [true, false] {
        let mut rig = RedfishTestRig::new(RedfishSimulatorSetup::default());
        rig.wire(move |now, request, service, entropy| {
            if !request.path.ends_with("ComputerSystem.Reset") {
                return deliver(now, request, service, entropy);
            }
            if received {
                let _ = deliver(now, request, service, entropy);
            }
            Err(lost())
        });
        let answer = rig.order(PowerOrder::On);
        if received {
            assert_eq!(answer, ACCEPTED);
        } else {
            assert_eq!(cause(answer), BmcFailureCause::Unreachable);
        }
        // The client must not send it again.
        assert!(rig.service.take_actions().len() <= 1);
    }
}

#[test]
fn a_restart_is_never_sent_twice() {
    for order in [
        PowerOrder::Cycle,
        PowerOrder::Reset,
        PowerOrder::Nmi,
        PowerOrder::BmcReset { warm: true },
    ] {
        let mut rig = running();
        rig.wire(|now, request, service, entropy| {
            let answer = deliver(now, request, service, entropy);
            let acts = request.path.contains("/Actions/");
            if acts { Err(lost()) } else { answer }
        });
        let answer = rig.order(order);
        let posts = rig
            .requests
            .iter()
            .filter(|one| one.path.contains("/Actions/"));
        assert_eq!(posts.count(), 1, "{order:?}");
        // A BMC that restarts sends no response, and that is expected.
        assert_eq!(answer.is_ok(), matches!(order, PowerOrder::BmcReset { .. }));
    }
}

#[test]
fn a_busy_bmc_is_retried_except_for_restarts() {
    let mut rig = running();
    assert_eq!(rig.order(PowerOrder::Status), ON);
    rig.service.faults.busy = (2, 5);
    let before = rig.now;
    assert_eq!(rig.order(PowerOrder::Status), ON);
    assert!(
        rig.now.since_ms(before) >= 10_000,
        "Retry-After is honoured"
    );
    rig.service.faults.busy = (3, 0);
    assert_eq!(cause(rig.order(PowerOrder::Status)), BmcFailureCause::Busy);
    // The BMC is busy when the reset itself is sent.
    for (order, tries) in [
        (PowerOrder::On, 3),
        (PowerOrder::Nmi, 1),
        (PowerOrder::Cycle, 1),
    ] {
        let mut rig = running();
        rig.wire(|now, request, service, entropy| {
            if request.method == BmcHttpMethod::Post && request.path.contains("/Actions/") {
                service.faults.busy = (1, 0);
            }
            deliver(now, request, service, entropy)
        });
        // A machine that is on counts as switched on, even if the BMC is busy.
        assert_eq!(rig.order(order).is_ok(), order == PowerOrder::On);
        let posts = rig
            .requests
            .iter()
            .filter(|one| one.path.contains("/Actions/"));
        assert_eq!(posts.count(), tries, "{order:?}");
    }
}

#[test]
fn restarts_the_bmc_and_logs_in_again_after_it() {
    for (warm, word) in [(true, "GracefulRestart"), (false, "ForceRestart")] {
        let mut rig = running();
        assert_eq!(rig.order(PowerOrder::BmcReset { warm }), ACCEPTED);
        let last = rig.requests.last().unwrap();
        assert_eq!(body(last), json!({"ResetType": word}));
        // It does not respond for 20 s; then its sessions are gone.
        assert_eq!(
            cause(rig.order(PowerOrder::Status)),
            BmcFailureCause::Unreachable
        );
        rig.wait(20_000);
        assert_eq!(rig.order(PowerOrder::Status), ON);
        assert_eq!(
            rig.service.take_actions(),
            [RedfishSimulatorAction::ManagerReset]
        );
    }
}

#[test]
fn sets_a_boot_device_and_reads_it_back() {
    let mut rig = RedfishTestRig::new(RedfishSimulatorSetup::default());
    for (device, word) in [
        (BootDevice::Pxe, "Pxe"),
        (BootDevice::Disk, "Hdd"),
        (BootDevice::Cdrom, "Cd"),
        (BootDevice::Bios, "BiosSetup"),
    ] {
        for persistent in [false, true] {
            let order = PowerOrder::SetBoot {
                device,
                persistent,
                efi: false,
            };
            assert_eq!(rig.order(order), ACCEPTED);
            let enabled = if persistent { "Continuous" } else { "Once" };
            let boot = &rig.service.machine(0).unwrap().boot;
            assert_eq!(boot[..3], [word, enabled, "UEFI"]);
            let want = PowerAnswer::Boot {
                device: Some(device),
                persistent,
                efi: true,
            };
            assert_eq!(rig.order(PowerOrder::ReadBoot), Ok(want));
        }
    }
}

#[test]
fn an_override_that_is_disabled_is_no_boot_device() {
    let mut rig = RedfishTestRig::new(RedfishSimulatorSetup::default());
    let machine = rig.service.machine(0).unwrap();
    machine.boot = ["Pxe", "Disabled", "Legacy", ""].map(str::to_owned);
    let want = PowerAnswer::Boot {
        device: None,
        persistent: false,
        efi: false,
    };
    assert_eq!(rig.order(PowerOrder::ReadBoot), Ok(want));
}

#[test]
fn the_mode_is_changed_only_to_uefi_and_only_when_it_is_wanted() {
    let order = |efi| PowerOrder::SetBoot {
        device: BootDevice::Pxe,
        persistent: false,
        efi,
    };
    for (is, efi, then) in [
        ("Legacy", true, "UEFI"),
        ("Legacy", false, "Legacy"),
        ("UEFI", false, "UEFI"),
    ] {
        let mut rig = RedfishTestRig::new(RedfishSimulatorSetup::default());
        rig.service.machine(0).unwrap().boot[2] = is.to_owned();
        assert_eq!(rig.order(order(efi)), ACCEPTED);
        assert_eq!(rig.service.machine(0).unwrap().boot[2], then);
        let sent = rig
            .requests
            .iter()
            .find(|one| one.method == BmcHttpMethod::Patch);
        let mode = body(sent.unwrap())["Boot"]["BootSourceOverrideMode"].clone();
        assert_eq!(mode.is_null(), is == then);
    }
}

#[test]
fn an_order_that_redfish_does_not_have_is_refused_with_a_sentence() {
    let mut rig = RedfishTestRig::new(RedfishSimulatorSetup::default());
    let safe = PowerOrder::SetBoot {
        device: BootDevice::Safe,
        persistent: false,
        efi: false,
    };
    let raw = PowerOrder::Raw {
        netfn: 6,
        command: 1,
        data: RawBytes::new(&[]).unwrap(),
    };
    for order in [safe, raw] {
        let Err(PowerError::Unsupported { message }) = rig.order(order) else {
            panic!("{order:?}");
        };
        assert!(message.contains("Redfish"), "{message}");
    }
    assert!(rig.requests.is_empty());
}

/// A BMC with one system resource, which a PATCH does not change.
fn fixed(system: Value) -> RedfishTestRig {
    RedfishTestRig::against(
        move |request| match (request.method, request.path.as_str()) {
            (BmcHttpMethod::Get, "/redfish/v1/Systems") => json_answer(
                200,
                &json!({"Members": [{"@odata.id": "/redfish/v1/Systems/1"}]}),
            ),
            (BmcHttpMethod::Get, _) => json_answer(200, &system),
            _ => json_answer(204, &Value::Null),
        },
    )
}

#[test]
fn a_boot_device_that_reads_back_as_another_is_an_error() {
    let boot = json!({"BootSourceOverrideTarget": "Hdd"});
    let mut rig = fixed(json!({"Boot": boot}));
    assert_eq!(cause(rig.order(PXE)), BmcFailureCause::NotApplied);
    // Dell applies it at the next boot, and other BMCs announce that they do.
    for more in [
        json!({"Manufacturer": "Dell Inc."}),
        json!({"@Redfish.Settings": {}}),
    ] {
        let mut system = more;
        system["Boot"] = boot.clone();
        assert_eq!(fixed(system).order(PXE), ACCEPTED);
    }
}

/// As sushy-tools does.
#[test]
fn once_need_not_read_back_as_once() {
    let boot = json!({
        "BootSourceOverrideTarget": "Pxe", "BootSourceOverrideEnabled": "Continuous",
    });
    assert_eq!(fixed(json!({"Boot": boot})).order(PXE), ACCEPTED);
}

#[test]
fn reset_types_are_chosen_among_those_the_bmc_accepts() {
    let system = |words: Value| {
        json!({"PowerState": "On", "Actions": {"#ComputerSystem.Reset": {
            "target": "/reset", "ResetType@Redfish.AllowableValues": words,
        }}})
    };
    let sent = |words: Value, order| {
        let mut rig = fixed(system(words));
        let answer = rig.order(order);
        let word = body(rig.requests.last().unwrap())["ResetType"].clone();
        (answer, word)
    };
    let all = json!(["On", "ForceOff", "ForceRestart", "PowerCycle"]);
    assert_eq!(
        sent(all.clone(), PowerOrder::Cycle),
        (ACCEPTED, json!("PowerCycle"))
    );
    assert_eq!(
        sent(all, PowerOrder::Reset),
        (ACCEPTED, json!("ForceRestart"))
    );
    let few = json!(["ForceOn", "ForceRestart"]);
    assert_eq!(
        sent(few.clone(), PowerOrder::Cycle),
        (ACCEPTED, json!("ForceRestart"))
    );
    assert_eq!(
        sent(few.clone(), PowerOrder::On),
        (ACCEPTED, json!("ForceOn"))
    );
    let lacks = sent(few, PowerOrder::SoftOff).0;
    assert!(
        matches!(lacks, Err(PowerError::Unsupported { .. })),
        "{lacks:?}"
    );
    // Without a list of accepted values, the most common one is sent.
    assert_eq!(
        sent(Value::Null, PowerOrder::Cycle),
        (ACCEPTED, json!("ForceRestart"))
    );
    assert_eq!(
        sent(Value::Null, PowerOrder::Off),
        (ACCEPTED, json!("ForceOff"))
    );
}

#[test]
fn a_boot_device_is_chosen_among_those_the_bmc_offers() {
    let boot = json!({
        "BootSourceOverrideTarget": "UsbCd",
        "BootSourceOverrideTarget@Redfish.AllowableValues": ["Hdd", "UsbCd"],
    });
    let mut rig = fixed(json!({"Boot": boot}));
    let cd = PowerOrder::SetBoot {
        device: BootDevice::Cdrom,
        persistent: false,
        efi: false,
    };
    assert_eq!(rig.order(cd), ACCEPTED);
    assert!(matches!(
        rig.order(PXE),
        Err(PowerError::Unsupported { .. })
    ));
}

#[test]
fn more_than_one_system_needs_an_identifier() {
    let setup = RedfishSimulatorSetup {
        machines: 2,
        ..RedfishSimulatorSetup::default()
    };
    let mut rig = RedfishTestRig::new(setup.clone());
    let text = rig.order(PowerOrder::Status).unwrap_err().to_string();
    assert!(text.contains("redfish_system_id"), "{text}");
    let second = json!({"redfish_system_id": "/redfish/v1/Systems/2"});
    let mut rig = RedfishTestRig::with(setup, second);
    assert_eq!(rig.order(PowerOrder::On), ACCEPTED);
    assert_eq!(
        rig.service.take_actions(),
        [RedfishSimulatorAction::Reset(1, "On".to_owned())]
    );
}

#[test]
fn a_change_names_the_mark_it_is_based_on() {
    let mut rig = RedfishTestRig::new(RedfishSimulatorSetup::default());
    assert_eq!(rig.order(PXE), ACCEPTED);
    let patch = rig
        .requests
        .iter()
        .find(|one| one.method == BmcHttpMethod::Patch)
        .unwrap();
    assert_eq!(patch.if_match.as_deref(), Some("W/\"1\""));
    // Another client changes the resource first, once.
    let mut raced = false;
    rig.wire(move |now, request, service, entropy| {
        if request.method == BmcHttpMethod::Patch && !raced {
            raced = true;
            let mut other = request.clone();
            other.if_match = None;
            deliver(now, &other, service, entropy)?;
        }
        deliver(now, request, service, entropy)
    });
    rig.take_requests();
    assert_eq!(rig.order(PXE), ACCEPTED);
    let patches = rig
        .requests
        .iter()
        .filter(|one| one.method == BmcHttpMethod::Patch);
    let marks: Vec<_> = patches.map(|one| one.if_match.clone().unwrap()).collect();
    assert_eq!(marks, ["W/\"2\"", "\"3\""]);
}

#[test]
fn a_change_that_is_always_too_late_is_given_up() {
    let mut rig = RedfishTestRig::new(RedfishSimulatorSetup::default());
    rig.wire(|now, request, service, entropy| {
        if request.method == BmcHttpMethod::Patch {
            return Ok(json_answer(412, &Value::Null));
        }
        deliver(now, request, service, entropy)
    });
    assert_eq!(cause(rig.order(PXE)), BmcFailureCause::Refused);
    let patches = rig
        .requests
        .iter()
        .filter(|one| one.method == BmcHttpMethod::Patch);
    assert_eq!(patches.count(), 2);
}

#[test]
fn orders_wait_in_line_and_the_line_has_an_end() {
    let mut rig = RedfishTestRig::new(RedfishSimulatorSetup::default());
    for id in 0..crate::ORDERS_WAITING_MAX {
        let id = 100 + u64::try_from(id).unwrap();
        assert_eq!(rig.session.order(rig.now, id, PowerOrder::Status), Ok(()));
    }
    let more = rig.session.order(rig.now, 1, PowerOrder::Status);
    assert_eq!(more, Err(PowerError::QueueFull));
    let mut seen = Vec::new();
    while seen.len() < crate::ORDERS_WAITING_MAX {
        match rig.session.answer() {
            Some((id, answer)) => {
                assert_eq!(answer, OFF);
                seen.push(id);
            }
            None => rig.step(),
        }
    }
    assert!(seen.is_sorted());
    assert_eq!(rig.session.deadline(), None);
}

#[test]
fn the_health_of_the_hardware_is_read_with_the_power_state() {
    let mut rig = RedfishTestRig::new(RedfishSimulatorSetup::default());
    assert_eq!(rig.session.changed_health(), None);
    let mut seen = Vec::new();
    for health in ["OK", "OK", "Critical", "Purple", "Warning"] {
        rig.service.machine(0).unwrap().health = health;
        rig.order(PowerOrder::Status).unwrap();
        seen.push(rig.session.changed_health());
        assert_eq!(rig.session.changed_health(), None, "once");
    }
    let is = |health| Some(Some(health));
    let wanted = [
        is(HardwareHealth::Ok),
        None,
        is(HardwareHealth::Critical),
        // No value of the standard.
        Some(None),
        is(HardwareHealth::Warning),
    ];
    assert_eq!(seen, wanted);
}
