//! Tests of whole commands with scripted responses.

use serde_json::json;

use super::*;
use crate::testing::{bad, good, node};

fn wait(goal: &str, limit_ms: u64) -> CommandPlan {
    CommandPlan {
        subject: "node n1".to_owned(),
        requests: vec![CliRequest::new("PUT", "/v1/nodes/n1/states/provision")],
        then: FinalAction::Wait {
            node: "n1".to_owned(),
            goal: WaitGoal::State(goal.to_owned()),
            limit_ms,
        },
    }
}

fn show(view: OutputView) -> CommandPlan {
    CommandPlan {
        subject: "nodes".to_owned(),
        requests: vec![CliRequest::get("/v1/nodes")],
        then: FinalAction::Show(view),
    }
}

/// Runs a command; its output, its requests, its pauses and its exit code.
struct TaskRun {
    outs: Vec<TaskOutput>,
    sent: Vec<CliRequest>,
    now: u64,
    exit: Exit,
}

fn run(
    plan: CommandPlan,
    style: OutputStyle,
    answers: Vec<Result<CliResponse, CliFault>>,
) -> TaskRun {
    run_against(plan, style, answers, true)
}

/// The same. With an older box, a wait that requests the activity of its node gets a
/// 404; neither is among `answers` and the recorded requests.
fn run_against(
    plan: CommandPlan,
    style: OutputStyle,
    answers: Vec<Result<CliResponse, CliFault>>,
    is_older: bool,
) -> TaskRun {
    let is_older = is_older && matches!(plan.then, FinalAction::Wait { .. });
    let mut task = CommandTask::new(plan, style);
    let mut answers = answers.into_iter();
    let mut run = TaskRun {
        outs: Vec::new(),
        sent: Vec::new(),
        now: 5_000,
        exit: Exit::Fine,
    };
    let mut step = task.begin(run.now);
    loop {
        run.outs.append(&mut step.outs);
        step = match step.act {
            TaskAction::Send(request) if is_older && request.path.ends_with("/progress") => {
                task.answered(run.now, Ok(bad(404, "There is nothing here.")))
            }
            TaskAction::Send(request) => {
                run.sent.push(request);
                run.now += 10;
                task.answered(
                    run.now,
                    answers.next().expect("no more requests than answers"),
                )
            }
            TaskAction::Pause(ms) => {
                run.now += ms;
                task.woken()
            }
            TaskAction::End(exit) => {
                run.exit = exit;
                assert_eq!(answers.next(), None, "every answer was requested");
                return run;
            }
        };
    }
}

fn lines(run: &TaskRun) -> Vec<&str> {
    let line = |out: &TaskOutput| matches!(out, TaskOutput::Line(_));
    texts(run, line)
}

fn texts(run: &TaskRun, choose: impl Fn(&TaskOutput) -> bool) -> Vec<&str> {
    let texts = run.outs.iter().filter(|out| choose(out));
    texts
        .filter_map(|out| match out {
            TaskOutput::Line(text) | TaskOutput::Note(text) | TaskOutput::Change(text) => {
                Some(text.as_str())
            }
            TaskOutput::Progress(_) => None,
        })
        .collect()
}

fn notes(run: &TaskRun) -> String {
    texts(run, |out| matches!(out, TaskOutput::Note(_))).join("\n")
}

#[expect(
    clippy::unnecessary_wraps,
    reason = "it stands among answers that did not come"
)]
fn ok(body: Value) -> Result<CliResponse, CliFault> {
    Ok(good(body))
}

fn gone() -> Result<CliResponse, CliFault> {
    Err(CliFault::new(Exit::Unreachable, "cannot reach the box"))
}

const LOCKED: &str = "Node n1 is locked by host box, please retry";

#[test]
fn a_verb_is_followed_to_its_end() {
    let answers = vec![
        ok(Value::Null),
        ok(node("n1", "deploying", Some("active"))),
        ok(node("n1", "deploying", Some("active"))),
        ok(node("n1", "wait call-back", Some("active"))),
        ok(node("n1", "active", None)),
    ];
    let run = run(wait("active", 60_000), OutputStyle::default(), answers);
    assert_eq!(run.exit, Exit::Fine);
    assert_eq!(lines(&run), ["node n1 is active after 0 s"]);
    let changes = texts(&run, |out| matches!(out, TaskOutput::Change(_)));
    assert_eq!(
        changes,
        ["n1: deploying", "n1: wait call-back", "n1: active"]
    );
    let drawn = run
        .outs
        .iter()
        .filter(|out| matches!(out, TaskOutput::Progress(_)));
    assert_eq!(drawn.count(), 4, "the line is drawn at every look");
}

#[test]
fn a_verb_shows_phase_percent_try_and_time_of_its_work_as_a_watch_does() {
    let doing = |phase: &str, percent: u64, elapsed_ms: u64| {
        ok(json!({
            "uuid": "uuid-n1", "doing": format!("Deploying: {phase}"), "percent": percent,
            "try": 2, "tries_max": 4, "since": "t", "elapsed_ms": elapsed_ms,
        }))
    };
    let waits = || ok(node("n1", "wait call-back", Some("active")));
    let answers = vec![
        ok(Value::Null),
        waits(),
        doing("loading initrd, 43 %", 61, 65_000),
        waits(),
        doing("loading initrd, 44 %", 62, 66_000),
        waits(),
        doing("waiting for the agent to report", 63, 67_000),
        ok(node("n1", "active", None)),
    ];
    let run = run_against(
        wait("active", 60_000),
        OutputStyle::default(),
        answers,
        false,
    );
    assert_eq!(run.exit, Exit::Fine);
    assert_eq!(run.sent[2].path, "/trivet/nodes/uuid-n1/progress");
    let changes = texts(&run, |out| matches!(out, TaskOutput::Change(_)));
    assert_eq!(
        changes,
        [
            "n1: wait call-back; 61 %, try 2 of 4, 1 min 05 s: loading initrd, 43 %",
            "n1: wait call-back; 63 %, try 2 of 4, 1 min 07 s: waiting for the agent to report",
            "n1: active"
        ]
    );
    let drawn = run.outs.iter().filter_map(|out| match out {
        TaskOutput::Progress(progress) => Some(progress.line(120)),
        _ => None,
    });
    let drawn: Vec<String> = drawn.collect();
    let first = &drawn[0];
    assert!(
        first.contains("loading initrd, 43 %  try 2 of 4"),
        "{first}"
    );
    assert!(first.ends_with(" 61/100  1 min 05 s"), "{first}");
    assert!(drawn[1].ends_with(" 62/100  1 min 06 s"), "{drawn:?}");
}

#[test]
fn a_verb_shows_state_and_step_where_the_box_reports_no_progress() {
    let mut busy = node("n1", "deploying", Some("active"));
    busy["deploy_step"] = json!({"step": "write_image", "interface": "deploy"});
    let answers = vec![
        ok(Value::Null),
        ok(busy.clone()),
        Ok(bad(404, "There is nothing here.")),
        ok(busy),
        ok(node("n1", "active", None)),
    ];
    let run = run_against(
        wait("active", 60_000),
        OutputStyle::default(),
        answers,
        false,
    );
    assert_eq!(run.exit, Exit::Fine);
    let requested = run.sent.iter();
    let requested = requested.filter(|request| request.path.ends_with("/progress"));
    assert_eq!(requested.count(), 1, "it is requested once");
    let changes = texts(&run, |out| matches!(out, TaskOutput::Change(_)));
    assert_eq!(
        changes,
        ["n1: deploying, step deploy.write_image", "n1: active"]
    );
}

#[test]
fn a_failure_has_code_1_and_its_reason() {
    let mut failed = node("n1", "deploy failed", Some("active"));
    failed["last_error"] = json!("the image does not fit");
    for (json, count) in [(false, 0), (true, 1)] {
        let style = OutputStyle { json, width: None };
        let run = run(
            wait("active", 60_000),
            style,
            vec![ok(Value::Null), ok(failed.clone())],
        );
        assert_eq!(run.exit, Exit::Failed);
        assert!(notes(&run).contains("the image does not fit"));
        assert_eq!(lines(&run).len(), count, "scripts get the node");
    }
}

#[test]
fn a_power_request_with_a_wrong_bmc_password_exits_1_with_the_reason() {
    let plan = CommandPlan {
        subject: "node n1".to_owned(),
        requests: vec![CliRequest::new("PUT", "/v1/nodes/n1/states/power")],
        then: FinalAction::Wait {
            node: "n1".to_owned(),
            goal: WaitGoal::Power("power on".to_owned()),
            limit_ms: 60_000,
        },
    };
    // The node was on before, and its record still says so.
    let mut going = node("n1", "active", None);
    going["target_power_state"] = json!("power on");
    let mut failed = node("n1", "active", None);
    failed["last_error"] = json!("the BMC refused the login");
    let answers = vec![ok(Value::Null), ok(going), ok(failed)];
    let run = run(plan, OutputStyle::default(), answers);
    assert_eq!(run.exit, Exit::Failed);
    assert!(notes(&run).contains("the BMC refused the login"));
    assert!(lines(&run).is_empty(), "{:?}", lines(&run));
}

#[test]
fn a_wait_has_an_end() {
    let mut answers = vec![ok(Value::Null)];
    answers.extend((0..5).map(|_| ok(node("n1", "deploying", Some("active")))));
    let run = run(wait("active", 1_000), OutputStyle::default(), answers);
    assert_eq!(run.exit, Exit::TimedOut);
    assert!(
        notes(&run).contains("still `deploying` after 1 s"),
        "{}",
        notes(&run)
    );
}

#[test]
fn requests_to_locked_nodes_are_retried_a_bounded_number_of_times() {
    let answers = vec![
        Ok(bad(409, LOCKED)),
        Ok(bad(503, "busy")),
        ok(Value::Null),
        ok(node("n1", "active", None)),
    ];
    let good = run(wait("active", 60_000), OutputStyle::default(), answers);
    assert_eq!(good.exit, Exit::Fine);
    assert_eq!(good.sent[0], good.sent[2]);
    assert_eq!(notes(&good).matches("is busy").count(), 1);
    let answers = (0..=TRIES_MAX).map(|_| Ok(bad(409, LOCKED))).collect();
    let never = run(wait("active", 60_000), OutputStyle::default(), answers);
    assert_eq!(never.exit, Exit::Refused);
    assert!(notes(&never).contains("is locked by host box"));
}

#[test]
fn refusals_are_not_retried() {
    for (status, exit) in [
        (400, Exit::Refused),
        (401, Exit::Unauthorised),
        (403, Exit::Refused),
        (404, Exit::NotFound),
        (409, Exit::Refused),
    ] {
        let answers = vec![Ok(bad(status, "No."))];
        let run = run(wait("active", 60_000), OutputStyle::default(), answers);
        assert_eq!(run.exit, exit, "{status}");
        assert!(notes(&run).starts_with("trivet: "), "{}", notes(&run));
    }
}

#[test]
fn a_change_is_not_repeated_automatically() {
    let run = run(wait("active", 60_000), OutputStyle::default(), vec![gone()]);
    assert_eq!(run.exit, Exit::Unreachable);
    assert_eq!(run.sent.len(), 1);
}

#[test]
fn a_box_that_restarts_is_waited_for() {
    let answers = vec![
        ok(Value::Null),
        ok(node("n1", "deploying", Some("active"))),
        gone(),
        gone(),
        ok(node("n1", "active", None)),
    ];
    let back = run(wait("active", 600_000), OutputStyle::default(), answers);
    assert_eq!(back.exit, Exit::Fine);
    let mut answers = vec![ok(Value::Null)];
    let looks = UNREACHABLE_MS_MAX / (TRY_GAP_MS + 10) + 2;
    answers.extend((0..looks).map(|_| gone()));
    let never = run(wait("active", 600_000), OutputStyle::default(), answers);
    assert_eq!(never.exit, Exit::Unreachable);
    let mut answers = vec![ok(Value::Null)];
    answers.extend((0..3).map(|_| gone()));
    let late = run(wait("active", 2_000), OutputStyle::default(), answers);
    assert_eq!(late.exit, Exit::TimedOut);
}

#[test]
fn an_older_box_gets_requests_in_its_own_version() {
    let mut old = bad(406, "Version 1.110 is not supported.");
    old.version_max = Some(82);
    let answers = vec![Ok(old), ok(json!({"nodes": []}))];
    let run = run(show(OutputView::Nodes), OutputStyle::default(), answers);
    assert_eq!(run.exit, Exit::Fine);
    assert_eq!([run.sent[0].version, run.sent[1].version], [VERSION, 82]);
    // A field that is too new for any microversion we could use is a refusal.
    let answers = vec![Ok(bad(406, "no"))];
    assert_eq!(
        self::run(show(OutputView::Nodes), OutputStyle::default(), answers).exit,
        Exit::Refused
    );
}

#[test]
fn pages_are_put_together() {
    let next = "http://elsewhere/v1/nodes?marker=uuid-n1";
    let answers = vec![
        ok(json!({"nodes": [node("n1", "active", None)], "next": next})),
        ok(json!({"nodes": [node("n2", "active", None)]})),
    ];
    let style = OutputStyle {
        json: true,
        width: None,
    };
    let run = run(show(OutputView::Nodes), style, answers);
    assert_eq!(run.sent[1].path, "/v1/nodes?marker=uuid-n1");
    let reported: Value = serde_json::from_str(lines(&run)[0]).unwrap();
    assert_eq!(reported["nodes"].as_array().unwrap().len(), 2);
}

#[test]
fn an_endless_list_is_bounded() {
    let endless = json!({"nodes": [], "next": "http://b/v1/nodes?marker=x"});
    let answers = (0..PAGES_MAX).map(|_| ok(endless.clone())).collect();
    assert_eq!(
        run(show(OutputView::Nodes), OutputStyle::default(), answers).exit,
        Exit::Fine
    );
}

#[test]
fn a_port_is_deleted_by_its_address() {
    let plan = CommandPlan {
        subject: "port aa:bb".to_owned(),
        requests: vec![CliRequest::get("/v1/ports?address=aa%3Abb")],
        then: FinalAction::DeletePort,
    };
    let answers = vec![ok(json!({"ports": [{"uuid": "u 1"}]})), ok(Value::Null)];
    let found = run(plan.clone(), OutputStyle::default(), answers);
    assert_eq!(found.sent[1], CliRequest::new("DELETE", "/v1/ports/u%201"));
    assert_eq!(lines(&found), ["port aa:bb: deleted"]);
    let none = run(plan, OutputStyle::default(), vec![ok(json!({"ports": []}))]);
    assert_eq!((none.exit, none.sent.len()), (Exit::NotFound, 1));
}

#[test]
fn a_box_without_a_list_of_images_is_reported() {
    let run = run(
        show(OutputView::Images),
        OutputStyle::default(),
        vec![Ok(bad(404, "No path."))],
    );
    assert_eq!(run.exit, Exit::NotFound);
    assert!(notes(&run).contains("does not list its images"));
}

#[test]
fn a_box_without_verbs_with_image_is_distinguished_from_a_missing_node() {
    let mut plan = wait("active", 60_000);
    plan.requests = vec![CliRequest::new("PUT", provision_with_image_path("n1"))];
    let path = "The server could not find the requested resource.";
    let old = run(
        plan.clone(),
        OutputStyle::default(),
        vec![Ok(bad(404, path))],
    );
    assert_eq!(old.exit, Exit::NotFound);
    assert!(notes(&old).contains("--instance-info image_source"));
    let node = "Node n1 could not be found.";
    let none = run(plan, OutputStyle::default(), vec![Ok(bad(404, node))]);
    assert!(
        notes(&none).contains("trivet node list"),
        "{}",
        notes(&none)
    );
}

fn watch(nodes: &[&str], until: Option<&str>) -> CommandPlan {
    CommandPlan {
        subject: "nodes".to_owned(),
        requests: Vec::new(),
        then: FinalAction::Watch {
            nodes: nodes.iter().map(|name| (*name).to_owned()).collect(),
            until: until.map(str::to_owned),
            limit_ms: None,
        },
    }
}

#[test]
fn a_watch_of_all_reads_every_page_of_every_poll() {
    let next = "/v1/nodes?marker=uuid-n1";
    let first = |state: &str| json!({"nodes": [node("n1", state, None)], "next": next});
    let answers = vec![
        ok(first("active")),
        ok(json!({"nodes": [node("n2", "deploying", Some("active"))]})),
        ok(json!({"progress": [activity("uuid-n2")]})),
        ok(first("active")),
        ok(json!({"nodes": [node("n2", "active", None)]})),
    ];
    let run = run(watch(&[], Some("active")), OutputStyle::default(), answers);
    assert_eq!(run.exit, Exit::Fine);
    assert_eq!(lines(&run).len(), 3, "{:?}", lines(&run));
    assert!(lines(&run)[1].contains("61 %, try 1 of 4, 2 min 05 s: loading initrd"));
    assert_eq!(run.sent[0], run.sent[3]);
}

fn activity(uuid: &str) -> Value {
    json!({
        "uuid": uuid, "doing": "Deploying: loading initrd, 43 %", "percent": 61, "try": 1,
        "tries_max": 4, "since": "2026-11-16T02:36:50", "elapsed_ms": 125_000,
    })
}

#[test]
fn a_list_and_a_node_show_phase_percent_try_and_elapsed_time() {
    let working = node("n1", "wait call-back", Some("active"));
    let answers = vec![
        ok(json!({"nodes": [working.clone()]})),
        ok(json!({"progress": [activity("uuid-n1")]})),
    ];
    let list = run(show(OutputView::Nodes), OutputStyle::default(), answers);
    assert_eq!(list.sent[1].path, "/trivet/progress");
    let want = "61 %, try 1 of 4, 2 min 05 s: loading initrd, 43 %";
    assert!(lines(&list)[1].ends_with(want), "{:?}", lines(&list));
    let answers = vec![ok(working.clone()), ok(activity("uuid-n1"))];
    let one = run(show(OutputView::Node), OutputStyle::default(), answers);
    assert_eq!(one.sent[1].path, "/trivet/nodes/uuid-n1/progress");
    for (key, value) in [
        ("progress.doing", "Deploying: loading initrd, 43 %"),
        ("progress.elapsed", "2 min 05 s"),
        ("progress.percent", "61"),
        ("progress.try", "1 of 4"),
    ] {
        let row = |line: &&str| line.starts_with(key) && line.ends_with(value);
        assert!(lines(&one).iter().any(row), "{key}: {:?}", lines(&one));
    }
    // Scripts get the JSON of Ironic's API, and no activity is requested for idle
    // nodes.
    let style = OutputStyle {
        json: true,
        width: None,
    };
    run(show(OutputView::Node), style, vec![ok(working)]);
    let rests = ok(json!({"nodes": [node("n1", "active", None)]}));
    run(show(OutputView::Nodes), OutputStyle::default(), vec![rests]);
}

#[test]
fn a_box_without_progress_gets_one_request_and_is_still_listed() {
    let working = || ok(json!({"nodes": [node("n1", "deploying", Some("active"))]}));
    for missing in [Ok(bad(404, "No path.")), gone()] {
        let list = run(
            show(OutputView::Nodes),
            OutputStyle::default(),
            vec![working(), missing],
        );
        assert_eq!(list.exit, Exit::Fine);
        assert!(lines(&list)[1].contains("deploying -> active"));
    }
    let answers = vec![
        working(),
        Ok(bad(404, "No path.")),
        working(),
        ok(json!({"nodes": [node("n1", "active", None)]})),
    ];
    let watched = run(watch(&[], Some("active")), OutputStyle::default(), answers);
    assert_eq!(watched.exit, Exit::Fine);
}

#[test]
fn a_watch_of_one_requests_that_one() {
    let answers = vec![ok(node("n1", "active", None))];
    let run = run(
        watch(&["n1"], Some("active")),
        OutputStyle::default(),
        answers,
    );
    assert!(run.sent[0].path.starts_with("/v1/nodes/n1?fields="));
    let answers = vec![Ok(bad(404, "Node n1 could not be found."))];
    let run = self::run(watch(&["n1"], None), OutputStyle::default(), answers);
    assert_eq!(run.exit, Exit::NotFound);
}

#[test]
fn the_keyboard_stops_a_watch_silently_and_a_wait_with_a_message() {
    let act = |plan: CommandPlan| CommandTask::new(plan, OutputStyle::default()).interrupted();
    assert_eq!(act(watch(&[], None)).act, TaskAction::End(Exit::Fine));
    assert_eq!(
        act(watch(&[], Some("active"))).act,
        TaskAction::End(Exit::Interrupted)
    );
    let mut task = CommandTask::new(wait("active", 1), OutputStyle::default());
    task.begin(0);
    assert!(
        task.interrupted().outs.is_empty(),
        "nothing was accepted yet"
    );
    task.answered(1, ok(Value::Null));
    let step = task.interrupted();
    assert_eq!(step.act, TaskAction::End(Exit::Interrupted));
    assert!(matches!(&step.outs[0], TaskOutput::Note(text) if text.contains("the box continues")));
}

fn image(state: &str, here: u64) -> CliResponse {
    good(json!({
        "name": "a.raw", "state": state, "here": here, "size": 9 << 20, "fault": "it is wrong",
    }))
}

fn fill(limit_ms: u64) -> CommandPlan {
    CommandPlan {
        subject: "image a.raw".to_owned(),
        requests: vec![CliRequest::new("POST", "/trivet/images/a.raw/fill")],
        then: FinalAction::WaitImage {
            image: "a.raw".to_owned(),
            limit_ms,
        },
    }
}

#[test]
fn a_fill_is_waited_for_with_its_progress() {
    let answers = vec![
        good(Value::Null),
        image("failed", 0),
        image("fetching", 5 << 20),
        image("complete", 9 << 20),
    ];
    let answers = answers.into_iter().map(Ok).collect();
    let run = run(fill(60_000), OutputStyle::default(), answers);
    assert_eq!(run.exit, Exit::Fine);
    assert!(lines(&run)[0].starts_with("image a.raw is complete after"));
    let bars = run.outs.iter().filter_map(|out| match out {
        TaskOutput::Progress(progress) => Some(progress.line(80)),
        _ => None,
    });
    let bars: Vec<String> = bars.collect();
    assert!(
        bars[1].contains("fetching  [###########---------] 5/9"),
        "{bars:?}"
    );
}

#[test]
fn a_fill_that_fails_ends_the_wait_with_the_reason() {
    let mut answers = vec![good(Value::Null)];
    answers.extend((0..100).map(|_| image("failed", 0)));
    let mut task = CommandTask::new(fill(60_000), OutputStyle::default());
    let (mut now, mut answers) = (0, answers.into_iter());
    let mut step = task.begin(now);
    let exit = loop {
        step = match step.act {
            TaskAction::Send(_) => task.answered(now, Ok(answers.next().unwrap())),
            TaskAction::Pause(ms) => {
                now += ms;
                task.woken()
            }
            TaskAction::End(exit) => break exit,
        };
    };
    assert_eq!(exit, Exit::Failed);
    let message_of = |out: &TaskOutput| match out {
        TaskOutput::Note(why) => why.contains("failed: it is wrong"),
        _ => false,
    };
    assert!(step.outs.iter().any(message_of), "{:?}", step.outs);
}
