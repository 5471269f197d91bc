use std::sync::atomic::{AtomicU32, Ordering};

use super::*;

/// A directory that is removed with the test.
struct ManagerDirectory(PathBuf);

impl ManagerDirectory {
    fn new() -> Self {
        static SERIAL: AtomicU32 = AtomicU32::new(0);
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let name = format!("trivet-managers-{}-{serial}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// Writes a script. Another process does it: a file that is open for writing in a child of
    /// this one cannot be executed.
    fn add(&self, name: &str, script: &str) -> PathBuf {
        let path = self.0.join(name);
        let mut shell = Command::new("sh")
            .args(["-c", "cat >\"$0\" && chmod 755 \"$0\""])
            .arg(&path)
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = shell.stdin.take().unwrap();
        input.write_all(script.as_bytes()).unwrap();
        drop(input);
        assert!(shell.wait().unwrap().success());
        path
    }
}

impl Drop for ManagerDirectory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A manager that replies this to a step, and describes itself.
fn script(name: &str, support: u8, execute: &str) -> String {
    format!(
        "#!/bin/sh\ncase $AGENT_CALL in\n\
         describe) echo '{{\"name\": \"{name}\", \"version\": \"2\", \"support\": {support}}}' ;;\n\
         steps) echo '{{\"steps\": [{{\"step\": \"one\", \"priority\": 5}}]}}' ;;\n\
         execute) {execute} ;;\nesac\n"
    )
}

fn execute(manager: &dyn HardwareManager, step: &str) -> Result<Value, ManagerError> {
    let step = json!({"step": step, "args": {"depth": 2}});
    manager.execute(StepKind::Clean, &step, &json!({"uuid": "u"}), &json!([]))
}

#[test]
fn programs_describe_themselves_and_unfit_ones_are_left_out() {
    let directory = ManagerDirectory::new();
    directory.add("10-first", &script("first", 3, "true"));
    directory.add("20-none", &script("none", 0, "true"));
    directory.add("30-twin", &script("first", 1, "true"));
    directory.add("40-silent", "#!/bin/sh\ntrue\n");
    directory.add("50-wrong", "#!/bin/sh\necho nonsense\n");
    directory.add("60-name", &script("a b", 1, "true"));
    let plain = directory.add("70-plain", &script("plain", 1, "true"));
    fs::set_permissions(plain, fs::Permissions::from_mode(0o644)).unwrap();
    let managers = load_programs(&directory.0);
    let facts: Vec<_> = managers
        .iter()
        .map(|one| (one.name(), one.version(), one.evaluate_hardware_support()))
        .collect();
    assert_eq!(facts, [("first", "2", 3)]);
    assert!(load_programs(Path::new("/no/such/directory")).is_empty());
}

#[test]
fn a_program_gets_the_request_and_its_result_is_returned() {
    let directory = ManagerDirectory::new();
    // The request is passed back as the result.
    let reply = "read -r line; echo \"{\\\"result\\\": $line}\"";
    let path = directory.add("echo", &script("echo", 2, reply));
    let manager = ManagerProgram::load(&path).unwrap();
    let got = execute(&manager, "one").unwrap();
    assert_eq!(
        got,
        json!({"call": "execute", "kind": "clean", "node": {"uuid": "u"}, "ports": [],
               "step": {"step": "one", "args": {"depth": 2}}})
    );
    let steps = manager.steps(StepKind::Clean, &Value::Null, &Value::Null);
    assert_eq!(steps.unwrap()[0].priority, 5);
}

#[test]
fn errors_fail_a_step_or_pass_it_on() {
    let directory = ManagerDirectory::new();
    for (name, reply, want) in [
        ("pass", "echo '{\"error\": \"incompatible\"}'", None),
        (
            "fail",
            "echo '{\"error\": \"no such part\"}'",
            Some("fail: no such part"),
        ),
        (
            "exit",
            "exit 3",
            Some("it replied nothing (exit status: 3)"),
        ),
        ("long", "yes", Some("more than")),
    ] {
        let path = directory.add(name, &script(name, 2, reply));
        let manager = ManagerProgram::load(&path).unwrap();
        let error = execute(&manager, "one").unwrap_err();
        match want {
            None => assert_eq!(error, ManagerError::Incompatible),
            Some(words) => {
                let text = error.to_string();
                assert!(text.contains(words), "{name}: {text}");
            }
        }
    }
}

#[test]
fn a_program_that_does_not_end_is_stopped() {
    let directory = ManagerDirectory::new();
    let path = directory.add("slow", "#!/bin/sh\nexec sleep 1000\n");
    let error = call(&path, &json!({"call": "steps"}), Duration::from_millis(50)).unwrap_err();
    assert!(error.contains("did not end"), "{error}");
}

#[test]
fn managers_are_asked_by_name_and_all_for_their_steps() {
    let directory = ManagerDirectory::new();
    directory.add("a", &script("a", 2, "echo '{\"result\": 7}'"));
    directory.add("b", &script("b", 3, "echo '{}'"));
    let managers = load_programs(&directory.0);
    let list = ManagerRequest::ListSteps {
        kind: StepKind::Clean,
        node: Value::Null,
        ports: Value::Null,
    };
    let Ok(AgentWorkOutcome::Steps(StepKind::Clean, steps)) = super::request(&managers, &list)
    else {
        panic!("no steps")
    };
    assert_eq!(steps.keys().collect::<Vec<_>>(), ["a", "b"]);
    let execute = |manager: &str| {
        let request = ManagerRequest::Execute {
            manager: manager.to_owned(),
            kind: StepKind::Clean,
            step: json!({"step": "one"}),
            node: Value::Null,
            ports: Value::Null,
        };
        super::request(&managers, &request)
    };
    assert_eq!(execute("a"), Ok(AgentWorkOutcome::Value(json!(7))));
    assert_eq!(execute("b"), Ok(AgentWorkOutcome::Value(Value::Null)));
    assert_eq!(execute("c"), Err(ManagerError::Incompatible));
}

/// The script in the chapter on the agent works as it stands, and is short.
#[test]
fn the_script_in_the_manual_is_a_manager() {
    let chapter = include_str!("../../../../../firmware/guide/src/agent.md");
    let (_, rest) = chapter.split_once("```sh\n#!/bin/sh").unwrap();
    let (text, _) = rest.split_once("```").unwrap();
    assert!(text.lines().count() < 40);
    let directory = ManagerDirectory::new();
    let flash = directory.add("flash", "#!/bin/sh\necho flashing\n[ \"$1\" = --all ]\n");
    let text = text.replace("/usr/sbin/acme-flash", flash.to_str().unwrap());
    let path = directory.add("acme", &format!("#!/bin/sh{text}"));
    let manager = ManagerProgram::load(&path).unwrap();
    assert_eq!((manager.name(), manager.version()), ("acme", "1.3"));
    assert_eq!(manager.evaluate_hardware_support(), 2);
    let steps = |kind| manager.steps(kind, &json!({}), &json!([])).unwrap();
    assert_eq!(steps(StepKind::Clean)[0].step, "update_firmware");
    assert!(steps(StepKind::Clean)[0].reboot_requested);
    assert!(steps(StepKind::Deploy).is_empty());
    assert_eq!(
        execute(&manager, "update_firmware"),
        Ok(json!("firmware updated"))
    );
    assert_eq!(execute(&manager, "other"), Err(ManagerError::Incompatible));
    fs::remove_file(flash).unwrap();
    assert!(matches!(
        execute(&manager, "update_firmware"),
        Err(ManagerError::Failed(_))
    ));
    assert_eq!(ManagerProgram::load(&path).unwrap().support, SUPPORT_NONE);
}
