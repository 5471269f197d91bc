//! The route table: one row per method and path.
//!
//! A row has the version of the path, the required role, the query, the body, the response, and the
//! handler. Routing, microversions, access and the `OpenAPI` description are all derived from these
//! rows, so they cannot differ.
//!
//! An unknown path is 404, a known path with another method is 405; a path of a later version than
//! that of the request is unknown.

use crate::ApiOutcome;
use crate::table::access::Access;
use crate::table::call::ApiCall;
use crate::table::error::ApiFault;
use crate::table::field::{Column, ValueShape};

/// One row of the route table.
pub(crate) struct ApiRoute {
    pub(crate) method: &'static str,
    /// The segments of the path; one in braces matches any segment.
    pub(crate) path: &'static [&'static str],
    /// The version that introduced the path.
    pub(crate) since: u16,
    pub(crate) access: Access,
    /// Query arguments, in groups.
    pub(crate) query_args: &'static [&'static [ApiArg]],
    pub(crate) body: BodySchema,
    /// Required fields of a new record.
    pub(crate) needs: &'static [&'static str],
    pub(crate) response: ResponseSchema,
    /// One line for the `OpenAPI` description.
    pub(crate) summary: &'static str,
    pub(crate) answer: fn(&ApiCall<'_>) -> Result<ApiOutcome, ApiFault>,
}

/// One argument of a query, or one key of a body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ApiArg {
    pub(crate) name: &'static str,
    pub(crate) since: u16,
    pub(crate) shape: ValueShape,
    pub(crate) required: bool,
}

/// An optional argument.
pub(crate) const fn arg(name: &'static str, since: u16, shape: ValueShape) -> ApiArg {
    ApiArg {
        name,
        since,
        shape,
        required: false,
    }
}

/// A required argument.
pub(crate) const fn required(name: &'static str, since: u16, shape: ValueShape) -> ApiArg {
    ApiArg {
        required: true,
        ..arg(name, since, shape)
    }
}

/// The schema of a request body.
#[derive(Clone, Copy)]
pub(crate) enum BodySchema {
    /// No body; a body is ignored.
    Nothing,
    /// An object with these keys.
    Args(&'static [ApiArg]),
    /// A new record of this kind.
    Record(Columns),
    /// A JSON patch of a record of this kind.
    Patch(Columns),
    /// Any JSON.
    Any,
    /// Bytes, which the daemon stores.
    Bytes,
}

/// The schema of a successful response.
#[derive(Clone, Copy)]
pub(crate) enum ResponseSchema {
    /// A status and no body.
    Empty(u16),
    /// A list of records under this key.
    List(&'static str, Columns),
    /// One record.
    Record(u16, Columns),
    /// Any JSON.
    Any(u16),
    /// A body of this media type.
    Media(&'static str),
}

/// The columns of a table of fields, see [`crate::table::field::columns`].
pub(crate) type Columns = fn() -> Vec<Column>;

impl ApiRoute {
    /// A row for reading, without a body.
    pub(crate) const fn get(
        path: &'static [&'static str],
        since: u16,
        says: &'static str,
        answer: fn(&ApiCall<'_>) -> Result<ApiOutcome, ApiFault>,
    ) -> Self {
        Self::new("GET", path, since, says, answer)
    }

    /// A row without arguments, body or response yet.
    pub(crate) const fn new(
        method: &'static str,
        path: &'static [&'static str],
        since: u16,
        says: &'static str,
        answer: fn(&ApiCall<'_>) -> Result<ApiOutcome, ApiFault>,
    ) -> Self {
        let reads = matches!(method.as_bytes(), b"GET");
        Self {
            method,
            path,
            since,
            access: if reads {
                Access::Reader
            } else {
                Access::Operator
            },
            query_args: &[],
            body: BodySchema::Nothing,
            needs: &[],
            response: if reads {
                ResponseSchema::Any(200)
            } else {
                ResponseSchema::Empty(204)
            },
            summary: says,
            answer,
        }
    }

    pub(crate) const fn query_args(mut self, query_args: &'static [&'static [ApiArg]]) -> Self {
        self.query_args = query_args;
        self
    }

    pub(crate) const fn body(mut self, takes: BodySchema) -> Self {
        self.body = takes;
        self
    }

    pub(crate) const fn needs(mut self, needs: &'static [&'static str]) -> Self {
        self.needs = needs;
        self
    }

    pub(crate) const fn response(mut self, gives: ResponseSchema) -> Self {
        self.response = gives;
        self
    }

    pub(crate) const fn answered_by(
        mut self,
        answer: fn(&ApiCall<'_>) -> Result<ApiOutcome, ApiFault>,
    ) -> Self {
        self.answer = answer;
        self
    }

    pub(crate) const fn for_(mut self, access: Access) -> Self {
        self.access = access;
        self
    }

    pub(crate) fn matches(&self, segments: &[String]) -> bool {
        self.path.len() == segments.len()
            && self
                .path
                .iter()
                .zip(segments)
                .all(|(word, segment)| word.starts_with('{') || word == segment)
    }

    /// The argument with this name, if the row has it.
    fn query_arg(&self, name: &str) -> Option<&'static ApiArg> {
        let mut query_args = self.query_args.iter().flat_map(|group| group.iter());
        query_args.find(|arg| arg.name == name)
    }
}

/// The row that handles a call; none where no row of this version has the path.
pub(crate) fn select(
    rows: impl Iterator<Item = &'static ApiRoute> + Clone,
    call: &ApiCall<'_>,
) -> Result<Option<&'static ApiRoute>, ApiFault> {
    let mut of_path = rows.filter(|row| row.matches(&call.segments));
    let mut found = of_path.clone().filter(|row| call.has(row.since));
    match found.clone().find(|row| row.method == call.method) {
        Some(row) => Ok(Some(row)),
        // A method of a later version is a path that does not exist yet.
        None if of_path.any(|row| row.method == call.method) => Ok(None),
        None if found.next().is_some() => Err(ApiFault::no_method(call.method)),
        None => Ok(None),
    }
}

/// Refuses arguments that the row does not have, or not yet in this version.
pub(crate) fn check_query(call: &ApiCall<'_>, row: &ApiRoute) -> Result<(), ApiFault> {
    let mut strange = Vec::new();
    for name in call.query.names() {
        match row.query_arg(name) {
            // As in Ironic, these are not arguments here, or not before a later version.
            Some(_) if call.last() == "detail" && ["detail", "fields"].contains(&name) => {
                strange.push(name);
            }
            Some(_) if call.word(1) == "allocations" && name == "detail" => strange.push(name),
            Some(arg) if call.last() == "bios" && !call.has(arg.since) => {
                return Err(ApiFault::bad(format!(
                    "Schema error: Additional properties are not allowed ('{name}' was \
                     unexpected): it needs API version 1.{} or newer.",
                    arg.since
                )));
            }
            Some(arg) if call.has(arg.since) => {}
            Some(arg) => return Err(ApiFault::too_new(arg.name, arg.since)),
            None => strange.push(name),
        }
    }
    if strange.is_empty() {
        return Ok(());
    }
    let strange = strange.join(", ");
    Err(ApiFault::bad(format!(
        "Unexpected arguments: {}",
        strange.escape_debug()
    )))
}
