//! One node as a response.

use trivet_model::view::NodeView;

use super::fields::FIELDS;
use crate::table::call::ApiCall;
use crate::table::error::ApiFault;
use crate::table::field::RenderedRecord;
use crate::table::{field, list};
use crate::{ApiOutcome, Response};

/// `GET /v1/nodes/<ident>`.
pub(crate) fn show(call: &ApiCall<'_>, view: &NodeView) -> Result<ApiOutcome, ApiFault> {
    let fields = match list::requested_fields(FIELDS, call)? {
        Some(fields) => fields,
        None => field::available_fields(FIELDS, call),
    };
    let shown = RenderedRecord {
        fields: &fields,
        record: view,
        call,
    };
    Ok(ApiOutcome::Reply(Response::json(200, &shown)))
}

/// The whole node, as the response to a creation or a patch.
pub(crate) fn whole(call: &ApiCall<'_>, view: &NodeView, created: bool) -> Response {
    let shown = RenderedRecord {
        fields: &field::available_fields(FIELDS, call),
        record: view,
        call,
    };
    if !created {
        return Response::json(200, &shown);
    }
    let location = call.location(&format!("nodes/{}", view.node.id));
    Response::json(201, &shown).with_location(Some(location))
}
