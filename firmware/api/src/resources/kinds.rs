//! The kinds, as tables.

use super::{Column, Field, Kind, LIST_ASKS, Resource, ResourceKind, Route, Shape, Spec};
use super::{anything, created, crud, every, flag, items, kept, links, name, node, object};
use super::{of_node, updated, uuid};
use crate::Outcome;
use crate::call::{Call, reply};
use crate::error::Fault;
use crate::field::{Write, columns, field};
use crate::route::{Arg, arg};
use Write::{Always, AtCreation, InPatch, Never};
use serde_json::json;

const NODE_ASK: &[Arg] = &[arg("node", 1, Shape::Text)];

const PORTGROUP_FIELDS: &[Field<Resource>] = &[
    field("address", 23, Shape::Text, Always, kept),
    field("created_at", 23, Shape::Text, Never, created),
    field("extra", 23, Shape::Object, Always, object),
    field("internal_info", 23, Shape::Object, Never, object),
    field("links", 23, Shape::Links, Never, links),
    field("mode", 26, Shape::Text, Always, kept),
    field("name", 23, Shape::Text, Always, name),
    field("node_uuid", 23, Shape::Uuid, Always, node),
    field("properties", 26, Shape::Object, Always, object),
    field("standalone_ports_supported", 23, Shape::Flag, Always, flag),
    field("updated_at", 23, Shape::Text, Never, updated),
    field("uuid", 23, Shape::Uuid, AtCreation, uuid),
];

fn portgroup_columns() -> Vec<Column> {
    columns(PORTGROUP_FIELDS)
}

pub(crate) const PORTGROUP: Spec = Spec {
    kind: ResourceKind::PortGroup,
    path: "portgroups",
    noun: "Portgroup",
    list: Kind {
        name: "portgroups",
        table: PORTGROUP_FIELDS,
        short: &["uuid", "address", "name", "links"],
    },
    required: &["node_uuid"],
    check: anything,
    passes: of_node,
};

const ALLOCATION_FIELDS: &[Field<Resource>] = &[
    field("candidate_nodes", 52, Shape::List, AtCreation, items),
    field("created_at", 52, Shape::Text, Never, created),
    field("extra", 52, Shape::Object, Always, object),
    field("last_error", 52, Shape::Text, Never, kept),
    field("links", 52, Shape::Links, Never, links),
    field("name", 52, Shape::Text, Always, name),
    field("node_uuid", 52, Shape::Uuid, Never, node),
    field("owner", 60, Shape::Text, AtCreation, kept),
    field("resource_class", 52, Shape::Text, AtCreation, kept),
    field("state", 52, Shape::Text, Never, kept),
    field("traits", 52, Shape::List, AtCreation, items),
    field("updated_at", 52, Shape::Text, Never, updated),
    field("uuid", 52, Shape::Uuid, AtCreation, uuid),
];

fn allocation_columns() -> Vec<Column> {
    columns(ALLOCATION_FIELDS)
}

pub(crate) const ALLOCATION: Spec = Spec {
    kind: ResourceKind::Allocation,
    path: "allocations",
    noun: "Allocation",
    list: Kind {
        name: "allocations",
        table: ALLOCATION_FIELDS,
        short: &[
            "uuid",
            "name",
            "node_uuid",
            "resource_class",
            "state",
            "traits",
            "candidate_nodes",
            "last_error",
            "extra",
            "owner",
            "links",
            "created_at",
            "updated_at",
        ],
    },
    required: &["resource_class"],
    check: anything,
    passes: every,
};

const TEMPLATE_FIELDS: &[Field<Resource>] = &[
    field("created_at", 55, Shape::Text, Never, created),
    field("extra", 55, Shape::Object, Always, object),
    field("links", 55, Shape::Links, Never, links),
    field("name", 55, Shape::Text, Always, name),
    field("steps", 55, Shape::List, Always, items),
    field("updated_at", 55, Shape::Text, Never, updated),
    field("uuid", 55, Shape::Uuid, AtCreation, uuid),
];

fn template_columns() -> Vec<Column> {
    columns(TEMPLATE_FIELDS)
}

pub(crate) const TEMPLATE: Spec = Spec {
    kind: ResourceKind::DeployTemplate,
    path: "deploy_templates",
    noun: "Deploy template",
    list: Kind {
        name: "deploy_templates",
        table: TEMPLATE_FIELDS,
        short: &["uuid", "name", "links"],
    },
    required: &["name", "steps"],
    check: anything,
    passes: every,
};

const RUNBOOK_FIELDS: &[Field<Resource>] = &[
    field("created_at", 92, Shape::Text, Never, created),
    field("disable_ramdisk", 92, Shape::Flag, Always, flag),
    field("extra", 92, Shape::Object, Always, object),
    field("links", 92, Shape::Links, Never, links),
    field("name", 92, Shape::Text, Always, name),
    field("owner", 92, Shape::Text, Always, kept),
    field("public", 92, Shape::Flag, InPatch, flag),
    field("steps", 92, Shape::List, Always, items),
    field("updated_at", 92, Shape::Text, Never, updated),
    field("uuid", 92, Shape::Uuid, AtCreation, uuid),
];

fn runbook_columns() -> Vec<Column> {
    columns(RUNBOOK_FIELDS)
}

pub(crate) const RUNBOOK: Spec = Spec {
    kind: ResourceKind::Runbook,
    path: "runbooks",
    noun: "Runbook",
    list: Kind {
        name: "runbooks",
        table: RUNBOOK_FIELDS,
        short: &["uuid", "name", "links"],
    },
    required: &["name", "steps"],
    check: anything,
    passes: every,
};

const RULE_FIELDS: &[Field<Resource>] = &[
    field("actions", 96, Shape::List, Always, items),
    field("conditions", 96, Shape::List, Always, items),
    field("created_at", 96, Shape::Text, Never, created),
    field("description", 96, Shape::Text, Always, kept),
    field("links", 96, Shape::Links, Never, links),
    field("phase", 96, Shape::Text, Always, kept),
    field("priority", 96, Shape::Number, Always, kept),
    field("sensitive", 96, Shape::Flag, Always, flag),
    field("updated_at", 96, Shape::Text, Never, updated),
    field("uuid", 96, Shape::Uuid, AtCreation, uuid),
];

fn rule_columns() -> Vec<Column> {
    columns(RULE_FIELDS)
}

pub(crate) const RULE: Spec = Spec {
    kind: ResourceKind::InspectionRule,
    path: "inspection_rules",
    noun: "Inspection rule",
    list: Kind {
        name: "inspection_rules",
        table: RULE_FIELDS,
        short: &["uuid", "description", "links"],
    },
    required: &["actions"],
    check: anything,
    passes: every,
};

const CONNECTOR_FIELDS: &[Field<Resource>] = &[
    field("connector_id", 32, Shape::Text, Always, kept),
    field("created_at", 32, Shape::Text, Never, created),
    field("extra", 32, Shape::Object, Always, object),
    field("links", 32, Shape::Links, Never, links),
    field("node_uuid", 32, Shape::Uuid, Always, node),
    field("type", 32, Shape::Text, Always, kept),
    field("updated_at", 32, Shape::Text, Never, updated),
    field("uuid", 32, Shape::Uuid, AtCreation, uuid),
];

fn connector_columns() -> Vec<Column> {
    columns(CONNECTOR_FIELDS)
}

pub(crate) const CONNECTOR: Spec = Spec {
    kind: ResourceKind::VolumeConnector,
    path: "volume/connectors",
    noun: "Volume connector",
    list: Kind {
        name: "connectors",
        table: CONNECTOR_FIELDS,
        short: &["uuid", "node_uuid", "type", "connector_id", "links"],
    },
    required: &["node_uuid", "type", "connector_id"],
    check: anything,
    passes: of_node,
};

const TARGET_FIELDS: &[Field<Resource>] = &[
    field("boot_index", 32, Shape::Number, Always, kept),
    field("created_at", 32, Shape::Text, Never, created),
    field("extra", 32, Shape::Object, Always, object),
    field("links", 32, Shape::Links, Never, links),
    field("node_uuid", 32, Shape::Uuid, Always, node),
    field("properties", 32, Shape::Object, Always, object),
    field("updated_at", 32, Shape::Text, Never, updated),
    field("uuid", 32, Shape::Uuid, AtCreation, uuid),
    field("volume_id", 32, Shape::Text, Always, kept),
    field("volume_type", 32, Shape::Text, Always, kept),
];

fn target_columns() -> Vec<Column> {
    columns(TARGET_FIELDS)
}

pub(crate) const TARGET: Spec = Spec {
    kind: ResourceKind::VolumeTarget,
    path: "volume/targets",
    noun: "Volume target",
    list: Kind {
        name: "targets",
        table: TARGET_FIELDS,
        short: &[
            "uuid",
            "node_uuid",
            "volume_type",
            "boot_index",
            "volume_id",
            "links",
        ],
    },
    required: &["node_uuid", "volume_type", "boot_index", "volume_id"],
    check: anything,
    passes: of_node,
};

pub(crate) const PORTGROUPS: &[Route] = &crud(
    &["v1", "portgroups"],
    &["v1", "portgroups", "{ident}"],
    23,
    "portgroups",
    portgroup_columns,
    &[LIST_ASKS, NODE_ASK],
);

pub(crate) const ALLOCATIONS: &[Route] = &crud(
    &["v1", "allocations"],
    &["v1", "allocations", "{ident}"],
    52,
    "allocations",
    allocation_columns,
    &[LIST_ASKS],
);

pub(crate) const TEMPLATES: &[Route] = &crud(
    &["v1", "deploy_templates"],
    &["v1", "deploy_templates", "{ident}"],
    55,
    "deploy_templates",
    template_columns,
    &[LIST_ASKS],
);

pub(crate) const RUNBOOKS: &[Route] = &crud(
    &["v1", "runbooks"],
    &["v1", "runbooks", "{ident}"],
    92,
    "runbooks",
    runbook_columns,
    &[LIST_ASKS],
);

pub(crate) const RULES: &[Route] = &crud(
    &["v1", "inspection_rules"],
    &["v1", "inspection_rules", "{ident}"],
    96,
    "inspection_rules",
    rule_columns,
    &[LIST_ASKS],
);

const fn volume_rows() -> [Route; 11] {
    let [a, b, c, d, e] = crud(
        &["v1", "volume", "connectors"],
        &["v1", "volume", "connectors", "{ident}"],
        32,
        "connectors",
        connector_columns,
        &[LIST_ASKS, NODE_ASK],
    );
    let [f, g, h, i, j] = crud(
        &["v1", "volume", "targets"],
        &["v1", "volume", "targets", "{ident}"],
        32,
        "targets",
        target_columns,
        &[LIST_ASKS, NODE_ASK],
    );
    let root = Route::get(&["v1", "volume"], 32, "Where volumes are", volume);
    [root, a, b, c, d, e, f, g, h, i, j]
}

pub(crate) const VOLUME: &[Route] = &volume_rows();

fn volume(call: &Call<'_>) -> Result<Outcome, Fault> {
    reply(&json!({
        "links": call.links("volume/"),
        "connectors": call.links("volume/connectors"),
        "targets": call.links("volume/targets"),
    }))
}
