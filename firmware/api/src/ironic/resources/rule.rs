//! Inspection rules: actions on the inventory from an agent.
//!
//! The box does not run rules yet, so a new or changed rule is refused with 501. It is validated
//! before that: each operation's arguments are known, and a malformed rule is refused with 400 as
//! in Ironic. Rules that an earlier version stored are listed, shown and deleted.

use serde_json::{Value, json};
use trivet_model::RackOrder;

use super::{
    ApiRoute, Column, Field, LIST_QUERY_ARGS, ListKind, Resource, ResourceKind, ResourceSpec,
    ValueShape,
};
use super::{
    admin_only, allow_delete, created, crud, flag, links, stored_field, updated, uuid, write,
};
use crate::ApiOutcome;
use crate::table::access::Access;
use crate::table::call::{ApiCall, empty, order};
use crate::table::error::ApiFault;
use crate::table::field::{FieldWrite, columns, field};
use crate::table::route::{ApiArg, arg};
use FieldWrite::{Always, AtCreation, Never};

/// Most conditions, and most actions, of one rule. Ours.
pub(crate) const OPERATIONS_MAX: usize = 256;

/// Highest priority of an operator's rule, as in Ironic.
const PRIORITY_MAX: u64 = 9999;

/// The only phase.
const PHASE: &str = "main";

const FIELDS: &[Field<Resource>] = &[
    field("actions", 96, ValueShape::List, Always, operations),
    field("conditions", 96, ValueShape::List, Always, operations),
    field("created_at", 96, ValueShape::Text, Never, created),
    field("description", 96, ValueShape::Text, Always, stored_field),
    field("links", 96, ValueShape::Links, Never, links),
    field("phase", 96, ValueShape::Text, Always, |rule, _, name| {
        json!(rule.text(name).unwrap_or(PHASE))
    }),
    field(
        "priority",
        96,
        ValueShape::Number,
        Always,
        |rule, _, name| rule.fields.get(name).cloned().unwrap_or(json!(0)),
    ),
    field("sensitive", 96, ValueShape::Flag, Always, flag),
    field("updated_at", 96, ValueShape::Text, Never, updated),
    field("uuid", 96, ValueShape::Uuid, AtCreation, uuid),
];

fn all() -> Vec<Column> {
    columns(FIELDS)
}

pub(crate) const SPEC: ResourceSpec = ResourceSpec {
    kind: ResourceKind::InspectionRule,
    path: "inspection_rules",
    by_name: false,
    list: ListKind {
        name: "inspection_rules",
        table: FIELDS,
        short: &["uuid", "priority", "phase", "description", "links"],
        detail_of_all_versions: false,
    },
    required: &["actions"],
    check,
    passes: |call, rule| {
        let phase = call.query.last("phase");
        Ok(phase.is_none_or(|phase| rule.text("phase").unwrap_or(PHASE) == phase))
    },
    check_deletable: allow_delete,
};

const FILTERS: &[ApiArg] = &[arg("phase", 96, ValueShape::Text)];

const fn rows() -> [ApiRoute; 6] {
    let path = &["v1", "inspection_rules"];
    let [list, make, show, change, remove] = admin_only(crud(
        path,
        &["v1", "inspection_rules", "{rule}"],
        96,
        "inspection_rules",
        all,
        &[LIST_QUERY_ARGS, FILTERS],
    ));
    let (make, change) = (make.answered_by(create), change.answered_by(update));
    let clear = ApiRoute::new("DELETE", path, 96, "Remove every rule", |_| {
        let kind = ResourceKind::InspectionRule;
        order(RackOrder::DeleteResources(kind), empty(204, None))
    })
    .for_(Access::Admin);
    [list, make, show, change, remove, clear]
}

pub(crate) const ROUTES: &[ApiRoute] = &rows();

fn create(call: &ApiCall<'_>) -> Result<ApiOutcome, ApiFault> {
    write::create(call)?;
    Err(never_run())
}

fn update(call: &ApiCall<'_>) -> Result<ApiOutcome, ApiFault> {
    write::update(call)?;
    Err(never_run())
}

/// The error for rules, also for the inspector's API.
pub(crate) fn never_run() -> ApiFault {
    ApiFault::not_implemented(
        "This box does not run inspection rules yet, so it stores none. Read the inventory \
         (/v1/nodes/<node>/inventory) after an inspection and set the node's fields from it.",
    )
}

/// A sensitive rule does not show its conditions and actions.
fn operations(rule: &Resource, _: &ApiCall<'_>, name: &'static str) -> Value {
    if rule.fields.get("sensitive") == Some(&Value::Bool(true)) {
        return Value::Null;
    }
    rule.fields.get(name).cloned().unwrap_or(json!([]))
}

/// An operation: its name, its required arguments and its optional ones.
type RuleOperation = (
    &'static str,
    &'static [&'static str],
    &'static [&'static str],
);

const CONDITIONS: &[RuleOperation] = &[
    ("eq", &["values"], &["force_strings"]),
    ("lt", &["values"], &["force_strings"]),
    ("gt", &["values"], &["force_strings"]),
    ("is-empty", &["value"], &[]),
    ("in-net", &["address", "subnet"], &[]),
    ("matches", &["value", "regex"], &[]),
    ("contains", &["value", "regex"], &[]),
    ("one-of", &["value"], &["values"]),
    ("is-none", &["value"], &[]),
    ("is-true", &["value"], &[]),
    ("is-false", &["value"], &[]),
];

const ACTIONS: &[RuleOperation] = &[
    ("fail", &["msg"], &[]),
    ("log", &["msg"], &["level"]),
    ("set-attribute", &["path", "value"], &[]),
    ("extend-attribute", &["path", "value"], &["unique"]),
    ("del-attribute", &["path"], &[]),
    ("set-capability", &["name", "value"], &[]),
    ("unset-capability", &["name"], &[]),
    ("add-trait", &["name"], &[]),
    ("remove-trait", &["name"], &[]),
    ("set-plugin-data", &["path", "value"], &[]),
    ("extend-plugin-data", &["path", "value"], &["unique"]),
    ("unset-plugin-data", &["path"], &[]),
    ("set-port-attribute", &["port_id", "path", "value"], &[]),
    (
        "extend-port-attribute",
        &["port_id", "path", "value"],
        &["unique"],
    ),
    ("del-port-attribute", &["port_id", "path"], &[]),
    (
        "api-call",
        &["url"],
        &["headers", "proxies", "timeout", "retries", "backoff_factor"],
    ),
];

fn check(_: &ApiCall<'_>, old: Option<&Resource>, rule: &mut Resource) -> Result<(), ApiFault> {
    let hidden = |rule: &Resource| rule.fields.get("sensitive") == Some(&Value::Bool(true));
    if old.is_some_and(hidden) && !hidden(rule) {
        return Err(ApiFault::bad(
            "Inspection rules cannot have the sensitive flag unset.",
        ));
    }
    let phase = rule.text("phase").unwrap_or(PHASE);
    if phase != PHASE {
        return Err(ApiFault::bad(format!(
            "Invalid phase: {}. Valid phases are: {PHASE}",
            phase.escape_debug()
        )));
    }
    let priority = rule.fields.get("priority").map(Value::as_u64);
    if priority.is_some_and(|number| number.is_none_or(|number| number > PRIORITY_MAX)) {
        return Err(ApiFault::bad(format!(
            "Priority must be between 0 and {PRIORITY_MAX} for user-defined rules."
        )));
    }
    for (name, known) in [("actions", ACTIONS), ("conditions", CONDITIONS)] {
        let items = rule.fields.get(name).and_then(Value::as_array);
        let items = items.map(Vec::as_slice).unwrap_or_default();
        if items.len() > OPERATIONS_MAX || (name == "actions" && items.is_empty()) {
            return Err(ApiFault::bad(format!(
                "{name} must hold at least one and at most {OPERATIONS_MAX} entries."
            )));
        }
        for item in items {
            check_operation(name, known, item)?;
        }
    }
    Ok(())
}

fn check_operation(list: &str, known: &[RuleOperation], item: &Value) -> Result<(), ApiFault> {
    let condition = list == "conditions";
    let what = if condition { "condition" } else { "action" };
    let written = item.get("op").and_then(Value::as_str).unwrap_or_default();
    // An exclamation mark inverts a condition.
    let op = match written.strip_prefix('!') {
        Some(rest) if condition => rest,
        _ => written,
    };
    let Some((_, needed, optional)) = known.iter().find(|(name, ..)| *name == op) else {
        let op = written.escape_debug();
        return Err(ApiFault::bad(format!("Unsupported {what} operator: {op}")));
    };
    let invalid = |why: String| {
        ApiFault::bad(format!(
            "Invalid parameters for {what} operator {op}: {why}"
        ))
    };
    match item.get("args") {
        Some(Value::Object(args)) => {
            let missing = needed.iter().find(|name| !args.contains_key(**name));
            if let Some(name) = missing {
                return Err(invalid(format!("missing required argument(s): {name}")));
            }
            let fits = |name: &&str| needed.contains(name) || optional.contains(name);
            let strange = args.keys().map(String::as_str).find(|name| !fits(name));
            if let Some(name) = strange {
                let name = name.escape_debug();
                return Err(invalid(format!("unexpected argument(s): {name}")));
            }
        }
        Some(Value::Array(args)) => {
            if let Some(name) = needed.get(args.len()) {
                return Err(invalid(format!("missing required argument(s): {name}")));
            }
            if args.len() > needed.len() + optional.len() {
                return Err(invalid("too many arguments".to_owned()));
            }
        }
        _ => return Err(invalid("args must be either a list or dictionary".into())),
    }
    let multiple = item.get("multiple").map(|value| value.as_str());
    if multiple.is_some_and(|word| !matches!(word, Some("any" | "all" | "first" | "last"))) {
        return Err(invalid("multiple is any, all, first or last".to_owned()));
    }
    match item.get("loop") {
        None | Some(Value::Array(_) | Value::Object(_)) => Ok(()),
        Some(_) => Err(invalid("loop must be a list or an object".to_owned())),
    }
}
