//! A node with the fields that Ironic does not have: `/trivet/nodes/<ident>`.
//!
//! These fields are outside `/v1`, so that clients of Ironic get exactly Ironic's fields. A
//! new field is one row of the table below.

use serde_json::{Value, json};
use trivet_model::Node;
use trivet_model::node::{JsonObject, NodeLocation};
use trivet_model::view::NodeView;

use crate::ironic::nodes::fields::FIELDS;
use crate::ironic::nodes::{replace, unlocked};
use crate::table::call::{ApiCall, reply};
use crate::table::error::ApiFault;
use crate::table::field::{TEXT_CHARS_MAX, is_longer};
use crate::table::route::{ApiRoute, BodySchema};
use crate::table::{body, field};
use crate::{ApiOutcome, ResponsePlan};

/// Sets a field; null means its default.
type OwnFieldWriter = fn(&mut Node, &Value) -> Result<(), ApiFault>;

/// A field of Trivet.
struct OwnField {
    name: &'static str,
    show: fn(&Node) -> Value,
    /// None: the field cannot be written.
    write: Option<OwnFieldWriter>,
}

/// Every field of a node that Ironic does not have, by name.
const OWN_FIELDS: &[OwnField] = &[
    OwnField {
        name: "location",
        show: |node| json!(node.location),
        write: Some(set_location),
    },
    OwnField {
        name: "revision",
        show: |node| json!(node.revision),
        write: None,
    },
];

/// The highest rack unit. Ours: the highest racks that are sold have 58.
const UNIT_MAX: u32 = 100;

/// A part that is left out keeps its value.
fn set_location(node: &mut Node, value: &Value) -> Result<(), ApiFault> {
    let mut whole = value.clone();
    if let (Some(new), Some(old)) = (whole.as_object_mut(), &node.location) {
        new.entry("rack").or_insert_with(|| json!(old.rack));
        new.entry("unit").or_insert_with(|| json!(old.unit));
    }
    let location: Option<NodeLocation> = serde_json::from_value(whole).map_err(|_| {
        ApiFault::bad("location must be an object such as {\"rack\": \"r1\", \"unit\": 17}.")
    })?;
    if let Some(NodeLocation { rack, unit }) = &location {
        let is_printable = !rack.trim().is_empty() && !rack.chars().any(char::is_control);
        if !is_printable || is_longer(rack, TEXT_CHARS_MAX) {
            return Err(ApiFault::bad(format!(
                "The rack of a location has 1 to {TEXT_CHARS_MAX} characters, none of them a \
                 control character."
            )));
        }
        if unit.is_some_and(|unit| !(1..=UNIT_MAX).contains(&unit)) {
            let sentence = format!("The unit of a location is a number from 1 to {UNIT_MAX}.");
            return Err(ApiFault::bad(sentence));
        }
    }
    node.location = location;
    Ok(())
}

pub(crate) const ROUTES: &[ApiRoute] = &[
    ApiRoute::get(
        &["trivet", "nodes", "{node}"],
        1,
        "Show a node with Ironic's fields and Trivet's own",
        |call| show(call, call.this()?),
    ),
    ApiRoute::new(
        "PATCH",
        &["trivet", "nodes", "{node}"],
        1,
        "Change Trivet's own fields of a node: an object of fields, null for the default",
        |call| update(call, call.this()?),
    )
    .body(BodySchema::Any),
];

fn show(call: &ApiCall<'_>, view: &NodeView) -> Result<ApiOutcome, ApiFault> {
    let ironic = field::available_fields(FIELDS, call).into_iter();
    let mut shown: JsonObject = ironic
        .map(|field| (field.name.to_owned(), field.show(view, call)))
        .collect();
    for field in OWN_FIELDS {
        shown.insert(field.name.to_owned(), (field.show)(&view.node));
    }
    reply(&Value::Object(shown))
}

fn update(call: &ApiCall<'_>, view: &NodeView) -> Result<ApiOutcome, ApiFault> {
    let changes = body::object(call)?;
    unlocked(call, &view.node)?;
    let mut node = Node::clone(&view.node);
    for (name, value) in &changes {
        let field = OWN_FIELDS.iter().find(|field| field.name == name);
        let write = field.and_then(|field| field.write).ok_or_else(|| {
            let name = name.escape_debug();
            ApiFault::bad(format!("\"{name}\" is not a field that can be set here."))
        })?;
        write(&mut node, value)?;
    }
    let then = ResponsePlan::Empty {
        status: 204,
        location: None,
    };
    replace(view, node, then)
}

#[cfg(test)]
mod tests {
    use trivet_model::ProvisionState;

    use super::*;
    use crate::testing::{ApiBench, get, send};

    const PATH: &str = "/trivet/nodes/node-1";

    #[test]
    fn a_node_is_shown_with_the_fields_of_ironic_and_of_trivet() {
        let mut bench = ApiBench::with(ProvisionState::Available);
        bench.change(|node| node.revision = 5);
        let shown = bench.reply(&get(PATH)).value();
        assert_eq!(shown["revision"], 5);
        let path = format!("/v1/nodes/{}", shown["uuid"].as_str().unwrap());
        let mut ironic = bench.reply(&get(&path)).value();
        for field in OWN_FIELDS {
            assert!(ironic.get(field.name).is_none(), "{}", field.name);
            ironic[field.name] = shown[field.name].clone();
        }
        assert_eq!(shown, ironic);
        bench.refuses(&get("/trivet/nodes/nobody"), 404);
    }

    #[test]
    fn a_location_is_set_shown_and_removed() {
        let mut bench = ApiBench::with(ProvisionState::Available);
        assert_eq!(bench.reply(&get(PATH)).value()["location"], Value::Null);
        for location in [
            json!({"rack": "r1", "unit": 17}),
            json!({"rack": "r2", "unit": null}),
            Value::Null,
        ] {
            let body = json!({ "location": location }).to_string();
            assert_eq!(bench.done(&send("PATCH", PATH, &body)).status, 204);
            assert_eq!(bench.reply(&get(PATH)).value()["location"], location);
        }
        let long = "r".repeat(TEXT_CHARS_MAX + 1);
        for wrong in [
            json!("r1"),
            json!({"rack": ""}),
            json!({"rack": long}),
            json!({"unit": 1}),
            json!({"rack": "r\u{1b}[2J"}),
            json!({"rack": " "}),
            json!({"rack": "r", "unit": -1}),
            json!({"rack": "r", "unit": 0}),
            json!({"rack": "r", "unit": UNIT_MAX + 1}),
            json!({"rack": "r", "row": 1}),
        ] {
            let body = json!({ "location": wrong }).to_string();
            bench.refuses(&send("PATCH", PATH, &body), 400);
        }
    }

    #[test]
    fn a_part_of_a_location_that_is_left_out_keeps_its_value() {
        let mut bench = ApiBench::with(ProvisionState::Available);
        for (change, want) in [
            (
                json!({"rack": "r1", "unit": 17}),
                json!({"rack": "r1", "unit": 17}),
            ),
            (json!({"rack": "r2"}), json!({"rack": "r2", "unit": 17})),
            (json!({"unit": 18}), json!({"rack": "r2", "unit": 18})),
            (json!({"unit": null}), json!({"rack": "r2", "unit": null})),
        ] {
            let body = json!({ "location": change }).to_string();
            assert_eq!(bench.done(&send("PATCH", PATH, &body)).status, 204);
            assert_eq!(bench.reply(&get(PATH)).value()["location"], want);
        }
    }

    #[test]
    fn fields_that_cannot_be_written_are_refused() {
        let bench = ApiBench::with(ProvisionState::Available);
        for body in [r#"{"revision": 1}"#, r#"{"driver": "x"}"#, "[]", ""] {
            bench.refuses(&send("PATCH", PATH, body), 400);
        }
    }
}
