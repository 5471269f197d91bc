//! What the tests of this crate share.

use serde_json::{Value, json};

use crate::request::CliResponse;

/// Files by name, for tests.
pub(crate) fn files(name: &str) -> Result<String, String> {
    match name {
        "number" => Ok("12345\n".to_owned()),
        "password" => Ok("hunter2\r\n".to_owned()),
        "list" => Ok("[]".to_owned()),
        "steps" => Ok(r#"[{"interface": "deploy", "step": "erase_devices"}]"#.to_owned()),
        "object" => Ok(r#"{"meta_data": {"name": "a"}}"#.to_owned()),
        "text" => Ok("H4sIAAAA\n".to_owned()),
        other => Err(format!("{other} cannot be read: no such file")),
    }
}

/// A successful response.
pub(crate) fn good(body: Value) -> CliResponse {
    let status = if body.is_null() { 202 } else { 200 };
    CliResponse {
        status,
        body,
        version_max: Some(110),
    }
}

/// An error response in the box's form.
pub(crate) fn bad(status: u16, sentence: &str) -> CliResponse {
    let inner = json!({"faultcode": "Client", "faultstring": sentence}).to_string();
    CliResponse {
        status,
        body: json!({ "error_message": inner }),
        version_max: Some(110),
    }
}

/// A node in a state, with a target state.
pub(crate) fn node(name: &str, state: &str, target: Option<&str>) -> Value {
    json!({
        "uuid": format!("uuid-{name}"), "name": name, "provision_state": state,
        "target_provision_state": target, "power_state": "power on",
        "target_power_state": null, "last_error": null, "maintenance": false,
        "clean_step": {}, "deploy_step": {}, "driver_internal_info": {},
    })
}
