use serde_json::{Value, json};
use trivet_model::bmc_request::MediaDevice;
use trivet_model::secret::SecretText;
use trivet_model::{BmcFailureCause, BootDevice, PowerAnswer, PowerError, PowerOrder, PowerState};

use super::rig::{RedfishTestRig, cause, deliver, json_answer, lost};
use crate::service::RedfishSimulatorSetup;
use crate::{BmcHttpResponse, RedfishOperation, RedfishReply};

const ACCEPTED: Result<PowerAnswer, PowerError> = Ok(PowerAnswer::Accepted);

fn slow(task_ms: u64) -> RedfishTestRig {
    RedfishTestRig::new(RedfishSimulatorSetup {
        task_ms: Some(task_ms),
        ..RedfishSimulatorSetup::default()
    })
}

/// A BMC whose reset becomes a task with these responses; the last one repeats forever.
fn with_task(accepted: BmcHttpResponse, looks: Vec<BmcHttpResponse>) -> RedfishTestRig {
    let mut looks = looks.into_iter().peekable();
    RedfishTestRig::against(move |request| match request.path.as_str() {
        "/redfish/v1/Systems" => json_answer(
            200,
            &json!({"Members": [{"@odata.id": "/redfish/v1/Systems/1"}]}),
        ),
        "/redfish/v1/Systems/1" => json_answer(
            200,
            &json!({"PowerState": "Off", "Actions": {"#ComputerSystem.Reset": {"target": "/r"}}}),
        ),
        "/r" => accepted.clone(),
        _ => {
            let answer = looks.peek().cloned().unwrap_or_default();
            if looks.size_hint().0 > 1 {
                looks.next();
            }
            answer
        }
    })
}

fn monitor() -> BmcHttpResponse {
    BmcHttpResponse {
        location: Some("/monitor/1".to_owned()),
        ..json_answer(202, &Value::Null)
    }
}

#[test]
fn a_task_is_followed_to_its_end() {
    let mut rig = slow(5_000);
    let before = rig.now;
    assert_eq!(rig.order(PowerOrder::On), ACCEPTED);
    assert!(rig.now.since_ms(before) >= 5_000);
    assert_eq!(rig.service.machine(0).unwrap().power, PowerState::On);
    let boot = PowerOrder::SetBoot {
        device: BootDevice::Pxe,
        persistent: true,
        efi: true,
    };
    assert_eq!(rig.order(boot), ACCEPTED);
    let url = SecretText::new("http://192.0.2.1/a.iso");
    let device = MediaDevice::Cdrom;
    assert_eq!(
        rig.operation(RedfishOperation::InsertMedia { device, url }),
        Ok(RedfishReply::Done)
    );
    assert_eq!(rig.service.take_actions().len(), 3);
}

#[test]
fn a_task_that_fails_is_a_refusal_with_its_message() {
    let mut rig = slow(1_000);
    let text = rig.order(PowerOrder::Nmi).unwrap_err().to_string();
    assert!(text.contains("Not in this state"), "{text}");
    // A request for the present state succeeds.
    assert_eq!(rig.order(PowerOrder::Off), ACCEPTED);
}

#[test]
fn a_task_without_end_is_given_up_within_bounds() {
    let mut rig = slow(u64::MAX / 4);
    let before = rig.now;
    assert_eq!(cause(rig.order(PowerOrder::On)), BmcFailureCause::Busy);
    assert!(rig.now.since_ms(before) <= 400_000);
    assert!(rig.requests.len() < 100);
}

#[test]
fn the_bmc_sets_the_poll_interval_within_bounds() {
    for (seconds, most_ms) in [(7, 7_100), (1_000_000, 30_100), (u64::MAX, 30_100)] {
        let accepted = BmcHttpResponse {
            retry_after_s: Some(seconds),
            ..monitor()
        };
        let mut rig = with_task(accepted, vec![json_answer(204, &Value::Null)]);
        let before = rig.now;
        assert_eq!(rig.order(PowerOrder::On), ACCEPTED);
        let took = rig.now.since_ms(before);
        assert!((most_ms - 200..=most_ms).contains(&took), "{took}");
    }
}

#[test]
fn states_of_tasks_are_read() {
    let state = |state: &str| json_answer(200, &json!({"TaskState": state}));
    let runs = vec![
        state("New"),
        state("Pending"),
        state("Running"),
        state("Completed"),
    ];
    let mut rig = with_task(monitor(), runs);
    assert_eq!(rig.order(PowerOrder::Nmi), ACCEPTED);
    for word in ["Exception", "Killed", "Cancelled", "Interrupted"] {
        let mut rig = with_task(monitor(), vec![state(word)]);
        assert_eq!(cause(rig.order(PowerOrder::Nmi)), BmcFailureCause::Refused);
    }
    let critical = json!({"TaskState": "Completed", "TaskStatus": "Critical"});
    let mut rig = with_task(monitor(), vec![json_answer(200, &critical)]);
    assert_eq!(cause(rig.order(PowerOrder::Nmi)), BmcFailureCause::Refused);
}

#[test]
fn a_monitor_that_is_gone_or_answers_itself_has_ended() {
    for answer in [
        json_answer(404, &Value::Null),
        json_answer(410, &Value::Null),
        json_answer(204, &Value::Null),
        json_answer(200, &json!({"PowerState": "On"})),
    ] {
        let mut rig = with_task(monitor(), vec![answer]);
        assert_eq!(rig.order(PowerOrder::Nmi), ACCEPTED);
    }
    let mut rig = with_task(monitor(), vec![json_answer(400, &Value::Null)]);
    assert_eq!(cause(rig.order(PowerOrder::Nmi)), BmcFailureCause::Refused);
}

#[test]
fn a_task_without_a_monitor_is_accepted() {
    let mut rig = with_task(json_answer(202, &Value::Null), Vec::new());
    assert_eq!(rig.order(PowerOrder::Nmi), ACCEPTED);
    // The body can name the task itself.
    let body = json!({"@odata.id": "/monitor/1"});
    let mut rig = with_task(
        json_answer(202, &body),
        vec![json_answer(204, &Value::Null)],
    );
    assert_eq!(rig.order(PowerOrder::Nmi), ACCEPTED);
    assert_eq!(rig.requests.last().unwrap().path, "/monitor/1");
}

#[test]
fn a_monitor_on_another_host_is_not_polled() {
    let accepted = BmcHttpResponse {
        location: Some("https://evil.example/monitor/1".to_owned()),
        ..monitor()
    };
    let mut rig = with_task(accepted, Vec::new());
    assert_eq!(
        cause(rig.order(PowerOrder::Nmi)),
        BmcFailureCause::InvalidResponse
    );
}

#[test]
fn polling_a_task_survives_lost_connections() {
    let mut rig = slow(5_000);
    let mut number = 0;
    rig.wire(move |now, request, service, entropy| {
        number += 1;
        if request.path.contains("TaskMonitors") && number % 2 == 0 {
            return Err(lost());
        }
        deliver(now, request, service, entropy)
    });
    assert_eq!(rig.order(PowerOrder::On), ACCEPTED);
    assert_eq!(rig.service.take_actions().len(), 1);
}
