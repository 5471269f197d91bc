//! Machines and BMCs that do, or do not do, as they are told.

use super::*;

#[test]
fn verify_ends_manageable_when_the_bmc_answers() {
    let mut rig = Rig::new(Enroll);
    rig.ask(Verb::Manage, vec![])
        .power(PowerOrder::Status, ON)
        .is(Manageable);
    assert_eq!(rig.node.power_state, Some(PowerState::On));
    assert_eq!(rig.node.job, None);
}

#[test]
fn verify_returns_to_enroll_with_the_reason_when_the_password_is_wrong() {
    let mut rig = Rig::new(Enroll);
    let wrong = Err(PowerError::Login {
        said: "unauthorized name",
    });
    rig.ask(Verb::Manage, vec![])
        .power(PowerOrder::Status, wrong)
        .is(Enroll);
    assert!(
        rig.node
            .last_error
            .as_ref()
            .unwrap()
            .contains("ipmi_password")
    );
    assert_eq!(rig.node.target_provision_state, None);
}

#[test]
fn a_silent_bmc_is_asked_again_and_then_given_up() {
    let mut rig = Rig::new(Enroll);
    rig.ask(Verb::Manage, vec![]);
    for _ in 1..rig.limits.tries_max {
        rig.power(PowerOrder::Status, Err(PowerError::Silent { waited_ms: 9 }))
            .is(Verifying);
        rig.wants(&Action::WakeAfter(rig.limits.retry_ms));
        rig.hear(Event::Woke);
    }
    rig.power(PowerOrder::Status, Err(PowerError::Silent { waited_ms: 9 }))
        .is(Enroll);
}

#[test]
fn a_machine_that_is_never_heard_is_booted_again_and_then_given_up() {
    let mut rig = Rig::new(Available);
    rig.ask(Verb::Active, vec![offered("write_image", 80)]);
    rig.boots().hear(Event::Woke).is(Deploying);
    for _ in 2..rig.limits.boots_max {
        rig.boots_again().hear(Event::Woke).is(Deploying);
    }
    rig.boots_again().hear(Event::Woke).is(DeployFail);
    assert!(rig.node.last_error.as_ref().unwrap().contains("4 boots"));
    assert_eq!(rig.node.target_provision_state, Some(Active));
}

#[test]
fn a_machine_that_was_off_after_all_is_switched_on_instead_of_reset() {
    let mut rig = deploying();
    rig.hear(Event::Woke).power(SET_PXE, TAKEN);
    let off = PowerError::Refused { code: 0xd5 };
    rig.power(PowerOrder::Reset, Err(off))
        .power(PowerOrder::On, TAKEN)
        .hear(Event::SignOfLife)
        .is(DeployWait);
}

#[test]
fn a_bmc_that_fails_is_restarted_once_and_asked_again() {
    let mut rig = Rig::new(Manageable);
    rig.ask(Verb::Inspect, vec![]);
    let refused = || Err(PowerError::Refused { code: 0xff });
    let mut restarts = 0;
    for _ in 1..rig.limits.tries_max {
        rig.power(PowerOrder::Off, refused());
        if rig.actions.contains(&Action::Power(BMC_RESET)) {
            restarts += 1;
            rig.power(BMC_RESET, Err(PowerError::Silent { waited_ms: 9 }));
        }
        rig.wants(&Action::WakeAfter(rig.limits.retry_ms));
        rig.hear(Event::Woke);
    }
    assert_eq!(restarts, 1);
    rig.power(PowerOrder::Off, refused()).is(InspectFail);
}

#[test]
fn a_machine_that_stays_on_has_its_bmc_restarted_and_is_then_given_up() {
    let mut rig = Rig::new(Manageable);
    rig.ask(Verb::Inspect, vec![]);
    let mut restarts = 0;
    for _ in 1..rig.limits.tries_max {
        rig.power(PowerOrder::Off, TAKEN)
            .power(PowerOrder::Status, ON);
        if rig.actions.contains(&Action::Power(BMC_RESET)) {
            restarts += 1;
            rig.power(BMC_RESET, TAKEN);
        }
        rig.hear(Event::Woke);
    }
    assert_eq!(restarts, 1);
    rig.power(PowerOrder::Off, TAKEN)
        .power(PowerOrder::Status, ON)
        .is(InspectFail);
    let why = rig.node.last_error.as_ref().unwrap();
    assert!(why.contains("stays on"), "{why}");
}

#[test]
fn a_machine_that_will_not_go_off_fails_the_job() {
    let mut rig = Rig::new(Available);
    rig.ask(Verb::Active, vec![offered("write_image", 80)]);
    for _ in 1..rig.limits.tries_max {
        rig.power(PowerOrder::Off, TAKEN)
            .power(PowerOrder::Status, ON)
            .is(Deploying);
        rig.hear(Event::Woke);
    }
    rig.power(PowerOrder::Off, TAKEN)
        .power(PowerOrder::Status, ON)
        .is(DeployFail);
}

#[test]
fn a_uefi_machine_is_told_to_boot_as_one() {
    for capabilities in [
        json!("cpu_vt:true,boot_mode:uefi"),
        json!({"boot_mode": "uefi"}),
    ] {
        let mut rig = Rig::new(Available);
        rig.node
            .properties
            .insert("capabilities".into(), capabilities);
        rig.ask(Verb::Active, vec![offered("write_image", 80)]);
        rig.power(PowerOrder::Off, TAKEN)
            .power(PowerOrder::Status, OFF);
        let efi = PowerOrder::SetBoot {
            device: BootDevice::Pxe,
            persistent: false,
            efi: true,
        };
        rig.wants(&Action::Power(efi));
    }
}
