#![expect(clippy::unnecessary_wraps, reason = "answers of the world are results")]

use serde_json::{Value, json};

use super::*;

const MAC: MacAddr = MacAddr([0x52, 0x54, 0, 0xaa, 0xbb, 1]);
const ID: &str = "6a5e2c1a-90a7-4d17-9e5f-aa0f6f3a1b2c";

/// The output of virsh (libvirt 9) for two machines.
fn listed(state: &str) -> String {
    format!(
        "domain 00000000-90a7-4d17-9e5f-aa0f6f3a1b2c\nrunning\n\n Interface   Type      Source    \
         Model    MAC\n-----------------------------------------------\n vnet0       network   \
         default   virtio   52:54:00:aa:bb:99\n\ndomain {ID}\n{state}\n\n Interface   Type      \
         Source    Model    MAC\n-----------------------------------------------\n -           \
         bridge    br0       virtio   52:54:00:AA:BB:01\n\n"
    )
}

fn ran(status: i32, printed: &str, complained: &str) -> Result<SshCommandOutput, String> {
    Ok(SshCommandOutput {
        status,
        stdout: printed.into(),
        stderr: complained.into(),
    })
}

#[track_caller]
fn error(next: SshPowerStep) -> (String, bool) {
    match next {
        SshPowerStep::Done(Err(PowerError::Host { message, lasting })) => (message, lasting),
        other => panic!("{other:?}"),
    }
}

fn found(order: PowerOrder, state: &str) -> (SshPowerScript, SshPowerStep) {
    let mut script = SshPowerScript::new(order, vec![MAC], None);
    assert!(matches!(script.begin(), SshPowerStep::Run(line) if line.contains("list --all")));
    let next = script.handle_output(ran(0, &listed(state), ""));
    (script, next)
}

#[test]
fn the_state_of_the_right_machine_is_returned() {
    for (word, state) in [
        ("running", PowerState::On),
        ("shut off", PowerState::Off),
        ("paused", PowerState::On),
        ("in shutdown", PowerState::On),
        ("crashed", PowerState::Off),
    ] {
        let (_, next) = found(PowerOrder::Status, word);
        assert_eq!(
            next,
            SshPowerStep::Done(Ok(PowerAnswer::Power(state))),
            "{word}"
        );
    }
}

#[test]
fn orders_become_lines_for_that_machine_alone() {
    let on = PowerAnswer::Power(PowerState::On);
    for (order, state, line, answer) in [
        (PowerOrder::On, "shut off", format!("start {ID}"), on),
        (
            PowerOrder::Off,
            "running",
            format!("destroy {ID}"),
            PowerAnswer::Power(PowerState::Off),
        ),
        (
            PowerOrder::SoftOff,
            "running",
            format!("shutdown {ID}"),
            PowerAnswer::Accepted,
        ),
        (PowerOrder::Reset, "running", format!("reset {ID}"), on),
        (
            PowerOrder::Cycle,
            "running",
            format!("destroy {ID} && virsh -c qemu:///system start {ID}"),
            on,
        ),
        (PowerOrder::Cycle, "shut off", format!("start {ID}"), on),
    ] {
        let (mut script, next) = found(order, state);
        let SshPowerStep::Run(run) = next else {
            panic!("{order:?}: {next:?}");
        };
        assert!(run.ends_with(&line), "{run}");
        assert_eq!(
            script.handle_output(ran(0, "", "")),
            SshPowerStep::Done(Ok(answer)),
            "{order:?}"
        );
    }
}

#[test]
fn what_is_so_already_needs_no_second_line() {
    for (order, word, state) in [
        (PowerOrder::On, "running", PowerState::On),
        (PowerOrder::Off, "shut off", PowerState::Off),
        (PowerOrder::SoftOff, "shut off", PowerState::Off),
    ] {
        let (_, next) = found(order, word);
        assert_eq!(next, SshPowerStep::Done(Ok(PowerAnswer::Power(state))));
    }
}

#[test]
fn a_machine_that_is_not_there_is_named_by_its_address() {
    let mut script = SshPowerScript::new(PowerOrder::On, vec![MacAddr([2; 6])], None);
    let (message, lasting) = error(script.handle_output(ran(0, &listed("running"), "")));
    assert!(
        message.contains("02:02:02:02:02:02") && lasting,
        "{message}"
    );
    let (message, lasting) = error(SshPowerScript::new(PowerOrder::On, vec![], None).begin());
    assert!(message.contains("no port") && lasting, "{message}");
}

#[test]
fn failures_are_distinguished() {
    for (status, complained, part, lasting) in [
        (
            255,
            "root@h: Permission denied (publickey).",
            "ssh_username",
            true,
        ),
        (255, "Host key verification failed.", "known_hosts", true),
        (
            255,
            "ssh: connect to host h port 22: refused",
            "cannot be reached",
            false,
        ),
        (127, "bash: virsh: command not found", "no virsh", true),
        (
            1,
            "error: failed to connect to the hypervisor",
            "hypervisor",
            false,
        ),
        (1, "", "no reason given", false),
    ] {
        let mut script = SshPowerScript::new(PowerOrder::Status, vec![MAC], None);
        let (reply, lasts) = error(script.handle_output(ran(status, "", complained)));
        assert!(reply.contains(part), "{reply}");
        assert_eq!(lasts, lasting, "{reply}");
    }
    let mut script = SshPowerScript::new(PowerOrder::Status, vec![MAC], None);
    let (reply, lasts) = error(script.handle_output(Err("no answer within 60000 ms".into())));
    assert!(reply.contains("60000") && !lasts);
}

#[test]
fn no_printed_word_reaches_a_command_line() {
    for id in [
        "$(reboot)",
        "6a5e2c1a-90a7-4d17-9e5f-aa0f6f3a1b2c;reboot",
        "6a5e2c1a-90a7-4d17-9e5f-aa0f6f3a1b2\n",
        "6a5e2c1a_90a7-4d17-9e5f-aa0f6f3a1b2c",
    ] {
        let printed = format!("domain {id}\nrunning\n- b br0 virtio {MAC}\n");
        let mut script = SshPowerScript::new(PowerOrder::Off, vec![MAC], None);
        let next = script.handle_output(ran(0, &printed, ""));
        assert!(matches!(next, SshPowerStep::Done(Err(_))), "{next:?}");
    }
}

#[test]
fn messages_of_a_host_are_truncated_and_plain() {
    let long = format!("first\n{}\u{7}", "x".repeat(1000));
    let mut script = SshPowerScript::new(PowerOrder::Status, vec![MAC], None);
    let (message, _) = error(script.handle_output(ran(1, "", &long)));
    assert!(message.len() < 400 && !message.contains('\u{7}') && !message.contains("first"));
}

fn info() -> Value {
    json!({
        "ssh_address": "192.0.2.7", "ssh_username": "virt-user", "ssh_key_filename": "/k/id %h",
    })
}

fn target(info: &Value) -> Result<SshTarget, PowerError> {
    SshTarget::of(info.as_object().unwrap())
}

#[test]
fn driver_info_has_the_host_to_log_in_to() {
    let read = target(&info()).unwrap();
    assert_eq!(
        (read.host.address.as_str(), read.host.port),
        ("192.0.2.7", 22)
    );
    assert_eq!(
        read.host.key,
        trivet_bmc::ssh_host::SshPrivateKey::File("/k/id %h".into())
    );
    let mut other = info();
    other["ssh_port"] = json!("2222");
    other["ssh_key_filename"] = Value::Null;
    other["ssh_key_contents"] = json!("-----BEGIN\nx\n-----END");
    let read = target(&other).unwrap();
    assert_eq!(read.host.port, 2222);
    assert!(!format!("{read:?}").contains("BEGIN"));
}

#[test]
fn words_that_would_mean_something_to_a_shell_or_to_ssh_are_refused() {
    for (key, value) in [
        ("ssh_address", json!("-oProxyCommand=reboot")),
        ("ssh_address", json!("h;reboot")),
        ("ssh_address", json!("h reboot")),
        ("ssh_address", json!("")),
        ("ssh_username", json!("-l")),
        ("ssh_username", json!("root@other")),
        ("ssh_username", json!("$(id)")),
        ("ssh_username", json!(7)),
        ("ssh_port", json!(0)),
        ("ssh_port", json!(65_536)),
        ("ssh_port", json!("22x")),
        ("ssh_key_filename", json!("relative")),
        ("ssh_key_filename", json!("/a\nb")),
        (
            "ssh_key_filename",
            json!(format!("/{}", "x".repeat(20_000))),
        ),
        ("ssh_virt_type", json!("vbox")),
    ] {
        let mut wrong = info();
        wrong[key] = value.clone();
        assert!(target(&wrong).is_err(), "{key} {value}");
    }
    let mut both = info();
    both["ssh_key_contents"] = json!("k");
    assert!(target(&both).is_err());
}

/// A `driver_info` with the operator's own commands.
fn given(more: &[(&str, &str)]) -> Result<SshPowerCommands, PowerError> {
    let mut info = json!({
        "ssh_power_on": "outlet 7 on",
        "ssh_power_off": "outlet 7 off",
        "ssh_power_status": "outlet 7",
    });
    for (key, value) in more {
        info[*key] = (*value).into();
    }
    let Value::Object(info) = info else {
        unreachable!()
    };
    SshPowerCommands::of(&info)
}

/// Runs an order where the status command printed this; returns the next command line.
fn by_commands(
    order: PowerOrder,
    printed: &str,
    more: &[(&str, &str)],
) -> (SshPowerScript, SshPowerStep) {
    let mut script = SshPowerScript::new(order, vec![], Some(given(more).unwrap()));
    assert_eq!(script.begin(), SshPowerStep::Run("outlet 7".into()));
    let next = script.handle_output(ran(0, printed, ""));
    (script, next)
}

#[test]
fn given_commands_are_run_as_they_are() {
    let (on, off) = (PowerState::On, PowerState::Off);
    for (order, printed, line, leads_to) in [
        (PowerOrder::On, "off\n", "outlet 7 on", on),
        (PowerOrder::Off, "outlet 7 is ON", "outlet 7 off", off),
        (PowerOrder::Cycle, "0", "outlet 7 on", on),
        (
            PowerOrder::Cycle,
            "running",
            "{ outlet 7 off; } && { outlet 7 on; }",
            on,
        ),
        (
            PowerOrder::Reset,
            "on",
            "{ outlet 7 off; } && { outlet 7 on; }",
            on,
        ),
    ] {
        let (mut script, next) = by_commands(order, printed, &[]);
        assert_eq!(next, SshPowerStep::Run(line.into()), "{order:?}");
        let done = SshPowerStep::Done(Ok(PowerAnswer::Power(leads_to)));
        assert_eq!(script.handle_output(ran(0, "whatever", "")), done);
    }
    let reset = [("ssh_power_reset", "kick 7")];
    let (_, next) = by_commands(PowerOrder::Reset, "on", &reset);
    assert_eq!(next, SshPowerStep::Run("kick 7".into()));
}

#[test]
fn what_is_already_so_needs_no_command() {
    for (order, printed, state) in [
        (PowerOrder::Status, "state: Off", PowerState::Off),
        (PowerOrder::On, "on", PowerState::On),
        (PowerOrder::Off, "stopped", PowerState::Off),
        (PowerOrder::SoftOff, "down", PowerState::Off),
    ] {
        let (_, next) = by_commands(order, printed, &[]);
        assert_eq!(
            next,
            SshPowerStep::Done(Ok(PowerAnswer::Power(state))),
            "{order:?}"
        );
    }
    let boot = by_commands(PowerOrder::ReadBoot, "on", &[]).1;
    assert_eq!(boot, SshPowerStep::Done(Ok(PowerAnswer::Accepted)));
}

#[test]
fn a_soft_order_wants_a_command_of_its_own() {
    let (_, next) = by_commands(PowerOrder::SoftOff, "on", &[]);
    assert!(
        matches!(next, SshPowerStep::Done(Err(PowerError::Unsupported { message }))
        if message.contains("ssh_power_soft_off"))
    );
    let soft = [("ssh_power_soft_off", "ask 7")];
    let (mut script, next) = by_commands(PowerOrder::SoftOff, "on", &soft);
    assert_eq!(next, SshPowerStep::Run("ask 7".into()));
    let taken = SshPowerStep::Done(Ok(PowerAnswer::Accepted));
    assert_eq!(script.handle_output(ran(0, "", "")), taken);
}

#[test]
fn an_unknown_status_and_a_failed_command_are_reported() {
    for printed in ["", "maybe", "on fire"] {
        let (message, lasting) = error(by_commands(PowerOrder::On, printed, &[]).1);
        assert!(
            message.contains("last word must be on or off") && lasting,
            "{message}"
        );
    }
    let mut script = SshPowerScript::new(PowerOrder::On, vec![], Some(given(&[]).unwrap()));
    let (message, lasting) = error(script.handle_output(ran(1, "", "outlet: no such number")));
    assert!(!lasting && message == "the command on the host failed: outlet: no such number");
    let (message, _) = error(script.handle_output(ran(127, "", "sh: outlet: not found")));
    assert!(message.contains("outlet: not found"), "{message}");
}

#[test]
fn commands_that_are_missing_or_no_line_are_named() {
    for (key, value) in [
        ("ssh_power_on", ""),
        ("ssh_power_off", ""),
        ("ssh_power_status", ""),
        ("ssh_power_off", "a\nb"),
        ("ssh_power_status", " "),
        ("ssh_power_on", &"x".repeat(2000)),
    ] {
        let text = given(&[(key, value)]).unwrap_err().to_string();
        assert!(text.contains(key), "{text}");
    }
}
