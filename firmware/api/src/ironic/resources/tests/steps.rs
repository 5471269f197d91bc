//! Deploy templates, runbooks and inspection rules.

use super::*;

fn template(steps: &Value) -> Value {
    json!({"name": "CUSTOM_A", "steps": steps})
}

#[test]
fn steps_have_a_shape() {
    let mut bench = ResourceBench::new();
    let path = "/v1/deploy_templates";
    let good = json!({"interface": "bios", "step": "apply", "args": {}, "priority": 1});
    let with = |key: &str, value: Value| {
        let mut step = good.clone();
        step[key] = value;
        template(&json!([step]))
    };
    let without = |key: &str| {
        let mut step = good.clone();
        step.as_object_mut().unwrap().remove(key);
        template(&json!([step]))
    };
    for (body, message) in [
        (template(&json!([])), "[] should be non-empty"),
        (
            json!({"name": "", "steps": [good.clone()]}),
            "template: '' should be non-empty",
        ),
        (template(&json!(["x"])), "object"),
        (template(&json!("x")), "list"),
        (without("interface"), "'interface' is a required"),
        (without("step"), "'step' is a required"),
        (without("args"), "'args' is a required"),
        (without("priority"), "'priority' is a required"),
        (
            with("interface", json!("network")),
            "'network' is not one of ['vendor', 'power', ",
        ),
        (with("step", json!("")), "'' should be non-empty"),
        (with("args", json!([])), "args"),
        (
            with("priority", json!(-1)),
            "-1 is less than the minimum of 0",
        ),
        (
            with("priority", json!("one")),
            "'one' does not match '^[0-9]+$'",
        ),
        (
            with("priority", json!(1.5)),
            "1.5 is not valid under any of the given schemas. Possible root cause: 1.5 is not of \
             type 'integer'",
        ),
        (with("order", json!(1)), "'order' was unexpected"),
        (template(&json!([good, good])), "Duplicate deploy steps"),
        (template(&Value::Array(vec![good.clone(); 300])), "at most"),
    ] {
        let sentence = bench.refuses("POST", path, &body, 400);
        assert!(sentence.contains(message), "{sentence}");
    }
    for name in ["custom_a", "A", "CUSTOM_", ""] {
        let body = json!({"name": name, "steps": [good]});
        bench.refuses("POST", path, &body, 400);
    }
    // A number as text is converted to a number.
    let made = bench.makes(path, &with("priority", json!("150")));
    assert_eq!(made["steps"][0]["priority"], 150);
    let patch = json!([{"op": "replace", "path": "/steps/0/interface", "value": "x"}]);
    bench.refuses("PATCH", "/v1/deploy_templates/CUSTOM_A", &patch, 400);
    let patch = json!([{"op": "remove", "path": "/steps"}]);
    bench.refuses("PATCH", "/v1/deploy_templates/CUSTOM_A", &patch, 400);
    let patch = json!([{"op": "replace", "path": "/name", "value": null}]);
    bench.refuses("PATCH", "/v1/deploy_templates/CUSTOM_A", &patch, 400);
}

/// A step with a secret.
fn step(name: &str, secret: &str) -> Value {
    let args = json!({ "password": secret });
    json!({"interface": "raid", "step": name, "priority": 1, "args": args})
}

#[test]
fn secrets_in_steps_stay_with_their_step() {
    let mut bench = ResourceBench::new();
    let body = template(&json!([step("a", "one"), step("b", "two")]));
    let made = bench.makes("/v1/deploy_templates", &body);
    assert_eq!(made["steps"][0]["args"]["password"], "******");
    // Written back in another order.
    let turned = json!([made["steps"][1], made["steps"][0]]);
    let path = "/v1/deploy_templates/CUSTOM_A";
    bench.patches(path, "replace", "/steps", &turned);
    let patch = json!([{"op": "remove", "path": "/steps/1"}]);
    assert_eq!(bench.send("PATCH", path, &patch).status, 200);
    let stored = bench.0.view.resources.values().next().unwrap();
    assert_eq!(stored.fields["steps"], json!([step("b", "two")]));
}

fn runbook() -> Value {
    json!({"name": "CUSTOM_A", "steps": [{"interface": "bios", "step": "x", "order": "1"}]})
}

#[test]
fn a_public_runbook_has_no_owner() {
    let mut bench = ResourceBench::new();
    let mut body = runbook();
    body["owner"] = json!("somebody");
    let made = bench.makes("/v1/runbooks", &body);
    let step = json!({"interface": "bios", "step": "x", "order": 1, "args": {}});
    assert_eq!(made["steps"], json!([step]));
    assert_eq!(made["public"], false);
    let path = "/v1/runbooks/CUSTOM_A";
    let public = bench.patches(path, "replace", "/public", &json!(true));
    assert_eq!(
        (&public["public"], &public["owner"]),
        (&json!(true), &Value::Null)
    );
    let patch = json!([{"op": "add", "path": "/owner", "value": "somebody"}]);
    let message = bench.refuses("PATCH", path, &patch, 400);
    let words = "Couldn't apply patch to '/owner'. Reason: There cannot be an owner for a public";
    assert!(message.starts_with(words), "{message}");
    let patch = json!([
        {"op": "replace", "path": "/public", "value": false},
        {"op": "add", "path": "/owner", "value": "somebody"},
    ]);
    assert_eq!(bench.send("PATCH", path, &patch).status, 200);
}

#[test]
fn names_are_traits_until_runbooks_have_traits() {
    let mut bench = ResourceBench::new();
    let mut body = runbook();
    body["name"] = json!("any-name");
    let response = bench.send_at("1.111", "POST", "/v1/runbooks", &body);
    assert_eq!(response.status, 400);
    body["description"] = json!("why");
    let response = bench.send_at("1.111", "POST", "/v1/runbooks", &body);
    assert_eq!(response.status, 406);
    let made = bench.makes("/v1/runbooks", &body);
    assert_eq!(
        (&made["description"], &made["traits"]),
        (&json!("why"), &json!([]))
    );
    // Older clients can change it all the same.
    let patch = json!([{"op": "add", "path": "/extra/a", "value": 1}]);
    let response = bench.send_at("1.111", "PATCH", "/v1/runbooks/any-name", &patch);
    assert_eq!(response.status, 200, "{}", response.text());
    assert_eq!(response.value().get("traits"), None);
}

#[test]
fn a_runbook_has_traits() {
    let mut bench = ResourceBench::new();
    bench.makes("/v1/runbooks", &runbook());
    let path = "/v1/runbooks/CUSTOM_A/traits";
    let body = json!({"traits": ["CUSTOM_B", "CUSTOM_A", "CUSTOM_B"]});
    assert_eq!(bench.send("PUT", path, &body).status, 204);
    assert_eq!(
        bench.shows(path),
        json!({"traits": ["CUSTOM_A", "CUSTOM_B"]})
    );
    let one = format!("{path}/CUSTOM_C");
    let response = bench.send("PUT", &one, &Value::Null);
    assert_eq!(response.status, 204);
    assert!(response.header("Location").unwrap().ends_with(&one));
    assert_eq!(bench.send("DELETE", &one, &Value::Null).status, 204);
    assert_eq!(bench.send("DELETE", &one, &Value::Null).status, 204);
    assert_eq!(bench.shows(path)["traits"].as_array().unwrap().len(), 2);
    for (path, body) in [
        (path, json!({"traits": ["x"]})),
        (path, json!({"traits": [1]})),
        (path, json!({})),
        (one.as_str(), json!({"a": 1})),
    ] {
        bench.refuses("PUT", path, &body, 400);
    }
    let many: Vec<String> = (0..51).map(|at| format!("CUSTOM_{at}")).collect();
    bench.refuses("PUT", path, &json!({ "traits": many }), 400);
    assert_eq!(bench.send("DELETE", path, &Value::Null).status, 204);
    assert_eq!(bench.shows(path), json!({"traits": []}));
    assert_eq!(
        bench.send_at("1.111", "GET", path, &Value::Null).status,
        404
    );
    assert_eq!(access("PUT", path), Access::Admin);
}

#[test]
fn rules_know_their_operations() {
    let mut bench = ResourceBench::new();
    let path = "/v1/inspection_rules";
    let fail = json!({"op": "fail", "args": {"msg": "x"}});
    let acts = |action: Value| json!({"actions": [action]});
    let when = |condition: Value| json!({"actions": [fail], "conditions": [condition]});
    for (body, message) in [
        (json!({"actions": []}), "at least one"),
        (
            acts(json!({"op": "dance", "args": {}})),
            "Unsupported action operator: dance",
        ),
        (
            acts(json!({"op": "!fail", "args": {"msg": 1}})),
            "Unsupported action",
        ),
        (
            acts(json!({"op": "fail", "args": {}})),
            "missing required argument(s): msg",
        ),
        (
            acts(json!({"op": "fail", "args": {"msg": 1, "x": 1}})),
            "unexpected argument(s): x",
        ),
        (acts(json!({"op": "fail"})), "list or dictionary"),
        (acts(json!({"op": "fail", "args": ["a", "b"]})), "too many"),
        (
            acts(json!({"op": "set-attribute", "args": ["a"]})),
            "missing required",
        ),
        (
            acts(json!({"op": "fail", "args": ["a"], "loop": 1})),
            "loop",
        ),
        (
            when(json!({"op": "!!eq", "args": {"values": []}})),
            "Unsupported condition",
        ),
        (
            when(json!({"op": "eq", "args": {"values": []}, "multiple": "some"})),
            "multiple",
        ),
        (when(json!(5)), "Unsupported condition"),
        (
            json!({"actions": [fail], "phase": "early"}),
            "Invalid phase: early",
        ),
        (json!({"actions": [fail], "priority": -1}), "Priority"),
        (json!({"actions": [fail], "priority": 10_000}), "Priority"),
    ] {
        let sentence = bench.refuses("POST", path, &body, 400);
        assert!(sentence.contains(message), "{sentence}");
    }
    let good = json!({
        "actions": [fail, {"op": "set-attribute", "args": ["/driver", "x"], "loop": [1]}],
        "conditions": [{"op": "!eq", "args": {"values": ["{x}", 1]}, "multiple": "all"}],
        "priority": 9999, "phase": "main",
    });
    let message = bench.refuses("POST", path, &good, 501);
    assert!(
        message.contains("does not run inspection rules"),
        "{message}"
    );
    let one = stored_rule(&mut bench, &good);
    let listed = bench.shows(&format!("{path}?phase=main"));
    assert_eq!(listed["inspection_rules"][0]["priority"], 9999);
    let listed = bench.shows(&format!("{path}?phase=x"));
    assert_eq!(listed["inspection_rules"], json!([]));
    assert_eq!(bench.shows(&one)["actions"], good["actions"]);
    assert_eq!(bench.send("DELETE", &one, &Value::Null).status, 204);
}

/// A rule as an earlier version of the box stored it; returns its path.
fn stored_rule(bench: &mut ResourceBench, fields: &Value) -> String {
    let id = "00000000-0000-4000-a000-000000000001".parse().unwrap();
    let mut rule = Resource::new(id, ResourceKind::InspectionRule, NOW);
    rule.fields = fields.as_object().unwrap().clone();
    bench.store(rule);
    format!("/v1/inspection_rules/{id}")
}

#[test]
fn a_rule_that_never_runs_is_refused_with_501_and_nothing_is_stored() {
    let mut bench = ResourceBench::new();
    let body = json!({"actions": [{"op": "fail", "args": {"msg": "no"}}]});
    bench.refuses("POST", "/v1/inspection_rules", &body, 501);
    let listed = bench.shows("/v1/inspection_rules");
    assert_eq!(listed["inspection_rules"], json!([]));
    let one = stored_rule(&mut bench, &body);
    let patch = json!([{"op": "replace", "path": "/priority", "value": 7}]);
    bench.refuses("PATCH", &one, &patch, 501);
    assert_eq!(bench.shows(&one)["priority"], 0);
}

#[test]
fn a_sensitive_rule_shows_nothing_and_stays_so() {
    let mut bench = ResourceBench::new();
    let fail = json!({"op": "fail", "args": {"msg": "x"}});
    let body = json!({"actions": [fail], "sensitive": true});
    let path = stored_rule(&mut bench, &body);
    let shown = bench.shows(&path);
    assert_eq!(
        (&shown["actions"], &shown["conditions"]),
        (&Value::Null, &Value::Null)
    );
    let patch = json!([{"op": "replace", "path": "/sensitive", "value": false}]);
    let message = bench.refuses("PATCH", &path, &patch, 400);
    assert!(message.contains("sensitive flag unset"), "{message}");
    let stored = bench.0.view.resources.values().next().unwrap();
    assert_eq!(stored.fields["actions"], json!([fail]));
}

#[test]
fn all_rules_go_at_once() {
    let bench = ResourceBench::new();
    let request = send("DELETE", "/v1/inspection_rules", "").at(LATEST);
    let (order, _) = bench.0.order(&request);
    assert_eq!(
        order,
        RackOrder::DeleteResources(ResourceKind::InspectionRule)
    );
    assert_eq!(access("DELETE", "/v1/inspection_rules"), Access::Admin);
}

#[test]
fn wrong_parts_of_a_runbook_are_named_in_ironics_words() {
    let mut bench = ResourceBench::new();
    let steps = json!([{"interface": "bios", "step": "s", "args": {}, "order": 1}]);
    let body = json!({"name": "B", "steps": steps});
    bench.makes("/v1/runbooks", &body);
    let patch = json!([{"op": "replace", "path": "/steps/0/order", "value": -1}]);
    let message = bench.refuses("PATCH", "/v1/runbooks/B", &patch, 400);
    assert!(
        message.contains("-1 is less than the minimum of 0"),
        "{message}"
    );
    for (body, words) in [
        (json!({"traits": "x"}), "'x' is not of type 'array'"),
        (
            json!({}),
            "A single runbook trait may be added via PUT /v1/runbooks/<runbook identifier>",
        ),
        (json!({"traits": [5]}), "5 is not of type 'string'"),
    ] {
        let message = bench.refuses("PUT", "/v1/runbooks/B/traits", &body, 400);
        assert!(message.contains(words), "{message}");
    }
}
