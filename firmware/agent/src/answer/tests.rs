use super::*;
use serde_json::json;

fn execute(kind: StepKind) -> AgentOrder {
    AgentOrder::Execute {
        kind,
        step: JobStep {
            step: "write_image".to_owned(),
            interface: "deploy".to_owned(),
            priority: 80,
            args: json!({}),
            reboot_requested: false,
            abortable: false,
        },
        at: 0,
        versions: BTreeMap::new(),
    }
}

fn of(order: &AgentOrder, status: u16, body: &Value) -> Result<AgentEvent, AgentError> {
    answer(order, status, body.to_string().as_bytes())
}

fn result(name: &str, status: &str, error: &Value, result: &Value) -> Value {
    json!({"id": "x", "command_name": name, "command_status": status,
           "command_error": error, "command_result": result})
}

fn done(name: &str, value: &Value) -> Value {
    result(name, "SUCCEEDED", &Value::Null, value)
}

fn looked(commands: &[Value]) -> Result<AgentEvent, AgentError> {
    of(
        &AgentOrder::ListCommands,
        200,
        &json!({ "commands": commands }),
    )
}

fn write_image_done() -> Value {
    let step = json!({"step": "write_image", "interface": "deploy", "priority": 80});
    done(
        "execute_deploy_step",
        &json!({"deploy_result": "ok", "deploy_step": step}),
    )
}

#[test]
fn reads_the_clean_steps_of_the_transcript() {
    let body = r#"{"id":"5c18a377","command_name":"get_clean_steps",
        "command_status":"SUCCEEDED","command_error":null,
        "command_result":{"clean_steps":{"GenericHardwareManager":[
        {"step":"erase_devices","priority":10,"interface":"deploy","reboot_requested":false,
         "abortable":true},
        {"step":"erase_devices_metadata","priority":99,"interface":"deploy",
         "reboot_requested":false,"abortable":true},
        {"step":"clean_uefi_nvram","priority":0,"interface":"deploy","reboot_requested":false,
         "abortable":true,"argsinfo":{"match_patterns":{"required":false}}}]},
        "hardware_manager_version":{"generic_hardware_manager":"1.2"}}}"#;
    let event = answer(&AgentOrder::GetSteps(StepKind::Clean), 200, body.as_bytes());
    let Ok(AgentEvent::StepsListed {
        steps,
        versions,
        listed,
    }) = event
    else {
        panic!("{event:?}")
    };
    let shown = &listed["deploy"][2];
    assert_eq!(shown["step"], "clean_uefi_nvram");
    assert_eq!(shown["argsinfo"]["match_patterns"]["required"], false);
    assert_eq!(steps.len(), 3);
    assert_eq!(steps[1].priority, 99);
    assert!(steps[1].abortable);
    assert_eq!(versions["generic_hardware_manager"], "1.2");
}

#[test]
fn deploy_steps_have_no_abortable_field() {
    let steps = json!({"M": [{"step": "write_image", "priority": 0, "interface": "deploy",
                              "reboot_requested": false}]});
    let found = json!({"deploy_steps": steps, "hardware_manager_version": null});
    let body = done("get_deploy_steps", &found);
    let event = of(&AgentOrder::GetSteps(StepKind::Deploy), 200, &body);
    let Ok(AgentEvent::StepsListed {
        steps, versions, ..
    }) = event
    else {
        panic!("{event:?}")
    };
    assert!(!steps[0].abortable);
    assert!(versions.is_empty());
}

#[test]
fn a_step_that_cannot_be_read_fails_the_list() {
    for found in [
        json!({"clean_steps": {"M": [{"priority": 10}]}}),
        json!({"clean_steps": []}),
        json!({"deploy_steps": {}}),
        json!(null),
        json!("text"),
    ] {
        let body = done("get_clean_steps", &found);
        let event = of(&AgentOrder::GetSteps(StepKind::Clean), 200, &body);
        assert!(
            matches!(event, Err(AgentError::Nonsense { .. })),
            "{event:?}"
        );
    }
}

#[test]
fn takes_as_many_steps_as_allowed_and_not_one_more() {
    let list = |count: usize| {
        let steps = vec![json!({"step": "s"}); count];
        let body = done("get_clean_steps", &json!({"clean_steps": {"M": steps}}));
        of(&AgentOrder::GetSteps(StepKind::Clean), 200, &body)
    };
    assert!(list(STEPS_MAX).is_ok());
    assert!(matches!(
        list(STEPS_MAX + 1),
        Err(AgentError::Nonsense { .. })
    ));
}

#[test]
fn an_agent_that_has_run_no_step_is_idle() {
    assert_eq!(looked(&[]), Ok(AgentEvent::Idle));
    let steps = done("get_deploy_steps", &json!({}));
    assert_eq!(looked(&[steps.clone(), steps]), Ok(AgentEvent::Idle));
}

#[test]
fn the_last_step_decides() {
    let running = result("execute_deploy_step", "RUNNING", &Value::Null, &Value::Null);
    assert_eq!(
        looked(&[write_image_done(), running]),
        Ok(AgentEvent::StepRunning)
    );
    let step = json!({"step": "a", "interface": "raid", "reboot_requested": true, "trivet_at": 3});
    let config = json!({"logical_disks": []});
    let rebooting = done(
        "execute_clean_step",
        &json!({"clean_step": step, "clean_result": config}),
    );
    assert_eq!(
        looked(&[done("get_clean_steps", &json!({})), rebooting]),
        Ok(AgentEvent::StepDone {
            step: "a".to_owned(),
            interface: "raid".to_owned(),
            at: Some(3),
            reboot_requested: true,
            result: config,
            image_was_on_disk: false,
        })
    );
}

#[test]
fn steps_of_an_earlier_job_of_the_same_agent_mean_nothing() {
    let failed = result("execute_clean_step", "FAILED", &json!("x"), &Value::Null);
    let relisted = done("get_deploy_steps", &json!({}));
    for earlier in [write_image_done(), failed] {
        assert_eq!(looked(&[earlier, relisted.clone()]), Ok(AgentEvent::Idle));
    }
}

#[test]
fn a_list_that_is_too_long_to_keep_is_kept_without_what_arguments_mean() {
    let step = |long: usize| {
        json!({"step": "s", "interface": "raid",
               "argsinfo": {"a": {"description": "x".repeat(long)}}})
    };
    let listed = |long| {
        let body = done(
            "get_clean_steps",
            &json!({"clean_steps": {"M": [step(long)]}}),
        );
        match of(&AgentOrder::GetSteps(StepKind::Clean), 200, &body) {
            Ok(AgentEvent::StepsListed { listed, .. }) => listed,
            other => panic!("{other:?}"),
        }
    };
    assert!(listed(10)["raid"][0]["argsinfo"].is_object());
    assert!(
        listed(LISTED_BYTES_MAX)["raid"][0]
            .get("argsinfo")
            .is_none()
    );
}

#[test]
fn steps_and_versions_that_no_record_holds_are_not_taken() {
    let order = AgentOrder::GetSteps(StepKind::Clean);
    let name = "x".repeat(STEPS_BYTES_MAX);
    let steps = json!({"clean_steps": {"M": [{"step": name}]}});
    let refused = of(&order, 200, &done("get_clean_steps", &steps));
    assert!(matches!(refused, Err(AgentError::Nonsense { .. })));
    let versions = |found: Value| {
        let list = json!({"clean_steps": {}, "hardware_manager_version": found});
        match of(&order, 200, &done("get_clean_steps", &list)) {
            Ok(AgentEvent::StepsListed { versions, .. }) => versions.len(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(versions(json!({"a": "1", "b": "2"})), 2);
    // One that would never compare as equal: none is compared.
    assert_eq!(versions(json!({"a": "1", "b": 2})), 0);
    assert_eq!(versions(json!({"a": "1".repeat(VERSIONS_BYTES_MAX)})), 0);
}

#[test]
fn written_partitions_are_read_from_keys_with_spaces() {
    let found = json!({"root uuid": "r", "efi system partition uuid": "e", "partitions": {},
                       "PReP Boot partition uuid": ""});
    let body = done("get_partition_uuids", &found);
    let want = BootPartitions {
        root: Some("r".to_owned()),
        efi: Some("e".to_owned()),
        prep: None,
    };
    let event = of(&AgentOrder::FindPartitions, 200, &body);
    assert_eq!(event, Ok(AgentEvent::PartitionsFound(want)));
    let long = done("get_partition_uuids", &json!({"root uuid": "r".repeat(65)}));
    let event = of(&AgentOrder::FindPartitions, 200, &long);
    assert_eq!(
        event,
        Ok(AgentEvent::PartitionsFound(BootPartitions::default()))
    );
}

#[test]
fn a_boot_loader_is_polled_until_it_is_done() {
    let at = |status, error: &Value| {
        let last = result("install_bootloader", status, error, &Value::Null);
        looked(&[write_image_done(), last])
    };
    assert_eq!(at("RUNNING", &Value::Null), Ok(AgentEvent::StepRunning));
    let done = Ok(AgentEvent::BootloaderDone(Ok(())));
    assert_eq!(at("SUCCEEDED", &Value::Null), done);
    let failed = Ok(AgentEvent::BootloaderDone(Err("no ESP".to_owned())));
    assert_eq!(at("FAILED", &json!({"details": "no ESP"})), failed);
}

#[test]
fn commands_after_the_step_do_not_hide_it() {
    let event = looked(&[write_image_done(), done("sync", &Value::Null)]);
    assert!(
        matches!(event, Ok(AgentEvent::StepDone { .. })),
        "{event:?}"
    );
}

#[test]
fn an_agent_that_works_or_leaves_is_waited_for() {
    let flow = result("start_flow", "RUNNING", &Value::Null, &Value::Null);
    assert_eq!(
        looked(&[write_image_done(), flow]),
        Ok(AgentEvent::StepRunning)
    );
    let off = done("power_off", &Value::Null);
    assert_eq!(
        looked(&[write_image_done(), off]),
        Ok(AgentEvent::StepRunning)
    );
}

#[test]
fn a_failed_step_has_the_agents_error_text() {
    let error = json!({"type": "HardwareManagerMethodNotFound", "code": 500,
                       "message": "No HardwareManager found to handle method",
                       "details": "Could not find method: no_such_step"});
    let failed = result("execute_clean_step", "FAILED", &error, &Value::Null);
    let want = Ok(AgentEvent::StepFailed {
        step: None,
        message: "Could not find method: no_such_step".to_owned(),
    });
    assert_eq!(looked(std::slice::from_ref(&failed)), want);
    assert_eq!(of(&execute(StepKind::Clean), 200, &failed), want);
    let plain = result(
        "execute_clean_step",
        "FAILED",
        &json!("it broke"),
        &Value::Null,
    );
    let message = "it broke".to_owned();
    assert_eq!(
        looked(&[plain]),
        Ok(AgentEvent::StepFailed {
            step: None,
            message
        })
    );
}

#[test]
fn a_version_mismatch_is_not_a_failure() {
    let error = json!({"type": "VersionMismatch", "code": 409, "message": "m", "details": "d"});
    let body = result(
        "execute_clean_step",
        "CLEAN_VERSION_MISMATCH",
        &error,
        &Value::Null,
    );
    assert_eq!(
        of(&execute(StepKind::Clean), 200, &body),
        Ok(AgentEvent::VersionMismatch)
    );
    assert_eq!(looked(&[body]), Ok(AgentEvent::VersionMismatch));
}

#[test]
fn a_started_step_is_accepted_and_a_quick_one_is_done() {
    let running = result("execute_deploy_step", "RUNNING", &Value::Null, &Value::Null);
    assert_eq!(
        of(&execute(StepKind::Deploy), 200, &running),
        Ok(AgentEvent::Accepted)
    );
    let event = of(&execute(StepKind::Deploy), 200, &write_image_done());
    assert!(
        matches!(event, Ok(AgentEvent::StepDone { .. })),
        "{event:?}"
    );
}

#[test]
fn a_step_that_succeeded_without_a_name_is_nonsense() {
    let event = looked(&[done("execute_deploy_step", &json!({"deploy_result": "ok"}))]);
    assert!(
        matches!(event, Err(AgentError::Nonsense { .. })),
        "{event:?}"
    );
}

#[test]
fn standby_commands_finish_or_are_under_way() {
    let sync = done("sync", &Value::Null);
    assert_eq!(of(&AgentOrder::Sync, 200, &sync), Ok(AgentEvent::Finished));
    let off = result("power_off", "RUNNING", &Value::Null, &Value::Null);
    assert_eq!(
        of(&AgentOrder::PowerOff, 200, &off),
        Ok(AgentEvent::Accepted)
    );
    let failed = result("sync", "FAILED", &json!({"message": "m"}), &Value::Null);
    let message = "m".to_owned();
    assert_eq!(
        of(&AgentOrder::Sync, 200, &failed),
        Err(AgentError::Refused { message })
    );
}

#[test]
fn a_lockdown_is_done_or_refused_by_an_agent_that_does_not_know_it() {
    let locked = done("lockdown", &Value::Null);
    assert_eq!(
        of(&AgentOrder::Lockdown, 200, &locked),
        Ok(AgentEvent::Finished)
    );
    let fault = json!({"faultcode": "Client", "faultstring": "Extension system is not found"});
    let event = of(&AgentOrder::Lockdown, 404, &fault);
    assert!(
        matches!(event, Err(AgentError::Refused { .. })),
        "{event:?}"
    );
}

#[test]
fn a_busy_agent_is_busy_whatever_the_status() {
    let fault = json!({"faultcode": "Client",
                       "faultstring": "Agent is busy: executing command start_flow"});
    for status in [409, 500] {
        let event = of(&execute(StepKind::Clean), status, &fault);
        assert_eq!(event, Ok(AgentEvent::Busy));
    }
    assert_eq!(answer(&AgentOrder::Sync, 409, b""), Ok(AgentEvent::Busy));
}

#[test]
fn a_refused_token_is_distinguished() {
    let fault = json!({"faultcode": "Client", "faultstring": "401 Unauthorized: Token invalid."});
    assert_eq!(
        of(&AgentOrder::ListCommands, 401, &fault),
        Err(AgentError::TokenRefused)
    );
}

#[test]
fn other_refusals_carry_the_agents_words() {
    for (status, words) in [
        (400, "Invalid command: Unknown command: no_such"),
        (404, "Not found: Extension with id iscsi not found."),
        (405, "405 Method Not Allowed"),
        (500, "Object of type TypeError is not JSON serializable"),
    ] {
        let fault = json!({"faultcode": "Client", "faultstring": words});
        let message = words.to_owned();
        assert_eq!(
            of(&AgentOrder::ListCommands, status, &fault),
            Err(AgentError::Refused { message })
        );
    }
}

#[test]
fn a_redirect_is_nonsense_and_shows_no_token() {
    let body = b"<p>see <a href=\"/v1/commands/?agent_token=SECRETSECRET\">here</a>";
    let error = answer(&AgentOrder::ListCommands, 308, body)
        .unwrap_err()
        .to_string();
    assert!(error.contains("status 308"), "{error}");
    assert!(!error.contains("SECRET"), "{error}");
}

#[test]
fn an_invalid_reply_is_an_error() {
    for body in [&b""[..], b"{", b"[]", b"{\"commands\": 1}", b"\xff\xfe"] {
        let event = answer(&AgentOrder::ListCommands, 200, body);
        assert!(
            matches!(event, Err(AgentError::Nonsense { .. })),
            "{event:?}"
        );
    }
    let odd = result("execute_clean_step", "PAUSED", &Value::Null, &Value::Null);
    assert!(matches!(looked(&[odd]), Err(AgentError::Nonsense { .. })));
}

#[test]
fn an_answer_may_be_as_long_as_allowed_and_not_one_byte_longer() {
    let mut body = b"{\"commands\": []}".to_vec();
    body.resize(ANSWER_BYTES_MAX, b' ');
    assert_eq!(
        answer(&AgentOrder::ListCommands, 200, &body),
        Ok(AgentEvent::Idle)
    );
    body.push(b' ');
    assert!(answer(&AgentOrder::ListCommands, 200, &body).is_err());
}

#[test]
fn the_last_order_to_write_an_image_ahead_is_read() {
    use trivet_model::ImageAheadReport as Report;
    let read = |commands: &[Value]| {
        let list = json!({ "commands": commands });
        match of(&AgentOrder::ReadImageAhead, 200, &list) {
            Ok(AgentEvent::ImageAhead(report)) => Ok(report),
            Ok(other) => panic!("{other:?}"),
            Err(error) => Err(error),
        }
    };
    let name = "write_image_ahead";
    let running = result(name, "RUNNING", &Value::Null, &Value::Null);
    let failed = result(
        name,
        "FAILED",
        &json!({"details": "disk full"}),
        &Value::Null,
    );
    let digest = trivet_model::Digest::Sha256([0xab; 32]);
    let facts = json!({"image_bytes": 9, "os_hash_value": digest.to_string()});
    let written = done(name, &facts);
    let other = done("get_deploy_steps", &json!({}));
    assert_eq!(read(&[]), Ok(Report::Unknown));
    assert_eq!(
        read(&[other.clone(), write_image_done()]),
        Ok(Report::Unknown)
    );
    assert_eq!(read(&[failed.clone(), running]), Ok(Report::Running));
    let bytes = 9;
    let want = Report::Written { digest, bytes };
    assert_eq!(read(&[failed.clone(), written, other]), Ok(want));
    let message = "disk full".to_owned();
    assert_eq!(read(&[failed]), Ok(Report::Failed { message }));
    for facts in [json!({}), json!({"image_bytes": 9}), Value::Null] {
        let error = read(&[done(name, &facts)]).unwrap_err();
        assert!(error.to_string().contains("not which one"), "{error}");
    }
    assert!(read(&[result(name, "LOST", &Value::Null, &Value::Null)]).is_err());
}

#[test]
fn a_step_that_fetched_nothing_of_its_image_says_so() {
    for (reported, image_is_on_disk) in [(json!(true), true), (json!("yes"), false)] {
        let mut list = write_image_done();
        list["command_result"]["image_was_on_disk"] = reported;
        let event = looked(&[list]).unwrap();
        let AgentEvent::StepDone {
            image_was_on_disk, ..
        } = event
        else {
            panic!("{event:?}");
        };
        assert_eq!(image_was_on_disk, image_is_on_disk);
    }
}
