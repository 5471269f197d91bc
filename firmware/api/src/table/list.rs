//! Lists: fields, order, and one page at a time.
//!
//! The order is total (the sort key, then the order of creation), so a marker whose record no
//! longer passes the filter still has a position.
//!
//! A list of nodes or ports takes its page from an index. Without an index every record is
//! examined: for a sort key other than those of `NodeKey::sorts`, or for filters without a
//! `NodeKey` that few nodes pass. Lists of resources examine all records of a kind.

use core::cmp::Ordering;

use serde::ser::{Serialize, SerializeMap as _, Serializer};
use serde_json::Value;
use uuid::Uuid;

use crate::table::call::ApiCall;
use crate::table::error::ApiFault;
use crate::table::field::{self, Field, RenderedRecord, ValueShape};
use crate::table::route::{ApiArg, arg};
use crate::{ApiOutcome, Response};

/// Most records in one page. Go clients never request a second page.
pub(crate) const PAGE_RECORDS_MAX: usize = 1000;

/// Arguments of every list.
pub(crate) const LIST_QUERY_ARGS: &[ApiArg] = &[
    arg("fields", 8, ValueShape::Text),
    arg("detail", 1, ValueShape::Flag),
    arg("limit", 1, ValueShape::Number),
    arg("marker", 1, ValueShape::Text),
    arg("sort_key", 1, ValueShape::Text),
    arg("sort_dir", 1, ValueShape::Word(&["asc", "desc"])),
];

/// The argument of every path that shows one record.
pub(crate) const FIELDS_QUERY_ARGS: &[ApiArg] = &[arg("fields", 8, ValueShape::Text)];

/// A record that can be listed.
pub(crate) trait ListRecord {
    /// Its UUID as text.
    fn uuid(&self) -> String;
    /// Its position in the order of creation.
    fn serial(&self) -> u64;
}

/// One kind of list.
pub(crate) struct ListKind<R: 'static> {
    /// Key of the response and of the path, such as `nodes`.
    pub(crate) name: &'static str,
    pub(crate) table: &'static [Field<R>],
    /// Fields of short entries.
    pub(crate) short: &'static [&'static str],
    /// Detailed lists have the fields of all versions, as Ironic's lists of portgroups have.
    pub(crate) detail_of_all_versions: bool,
}

/// The names in `fields=`, and always `links`; `None` if it is absent.
pub(crate) fn requested_names(call: &ApiCall<'_>) -> Option<Vec<String>> {
    call.query.last("fields")?;
    let mut names: Vec<String> = call
        .query
        .all("fields")
        .flat_map(|list| list.split(','))
        .map(str::trim)
        .filter(|name| !name.is_empty())
        .map(str::to_ascii_lowercase)
        .collect();
    names.push("links".to_owned());
    names.sort_unstable();
    names.dedup();
    Some(names)
}

/// The fields in `fields=`; `None` if it is absent.
pub(crate) fn requested_fields<R>(
    table: &'static [Field<R>],
    call: &ApiCall<'_>,
) -> Result<Option<Vec<&'static Field<R>>>, ApiFault> {
    let Some(names) = requested_names(call) else {
        return Ok(None);
    };
    names
        .into_iter()
        .map(|name| field::named(table, &name, call))
        .collect::<Result<Vec<_>, _>>()
        .map(Some)
}

/// The begin and the order of a page, for a walk along an index.
pub(crate) struct PageStart<'r, R> {
    /// The field it is sorted by; `None` for the order of creation.
    pub(crate) by: Option<&'static str>,
    pub(crate) descending: bool,
    /// The marker: the page begins after it.
    pub(crate) after: Option<&'r R>,
}

/// An iterator over records that can be on a page.
pub(crate) struct RecordWalk<'r, R: 'r> {
    records: Box<dyn Iterator<Item = &'r R> + 'r>,
    /// In the order of the list and from the marker on. Otherwise it has all records of the list,
    /// in any order.
    ordered: bool,
}

impl<'r, R: 'r> RecordWalk<'r, R> {
    pub(crate) fn new(records: impl Iterator<Item = &'r R> + 'r, ordered: bool) -> Self {
        let records = Box::new(records);
        Self { records, ordered }
    }
}

/// Lists whose marker can be a name.
const BY_NAME: [&str; 4] = [
    "conductors",
    "deploy_templates",
    "inspection_rules",
    "runbooks",
];

/// Fields that Ironic does not sort by, beside those that are objects or lists: they are not in the
/// table of the records.
const UNSORTABLE: [&str; 6] = [
    "alive",
    "allocation_uuid",
    "chassis_uuid",
    "conductor",
    "node_uuid",
    "portgroup_uuid",
];

/// One page of the records that pass. Each of the walks reaches all of them.
pub(crate) fn page<'r, R: ListRecord>(
    call: &ApiCall<'_>,
    kind: &ListKind<R>,
    walks: impl FnOnce(&PageStart<'r, R>) -> Vec<RecordWalk<'r, R>>,
    passes: impl Fn(&R) -> bool,
    find: impl Fn(&str) -> Option<&'r R>,
    detailed_path: bool,
) -> Result<ApiOutcome, ApiFault> {
    let fields = fields(call, kind, detailed_path)?;
    let limit = limit(call)?;
    let order = ListOrder::read(kind.table, call)?;
    let after = match call.query.last("marker") {
        None => None,
        Some(marker) if marker.parse::<Uuid>().is_err() && !BY_NAME.contains(&kind.name) => {
            return Err(field::expected_uuid("marker", marker));
        }
        Some(marker) => Some(find(marker).ok_or_else(|| {
            ApiFault::not_found(format!(
                "Marker {} could not be found.",
                marker.escape_debug()
            ))
        })?),
    };
    let cut = PageStart {
        by: order.by.map(|field| field.name),
        descending: order.descending,
        after,
    };
    let (mut records, ordered) = select(walks(&cut), passes, limit);
    if !ordered {
        records = order.paginate(records, after, limit, call);
    }
    let last = records.last().filter(|_| records.len() == limit);
    let next = last.map(|last| next(call, limit, &last.uuid()));
    let shown = records.iter().map(|record| RenderedRecord {
        fields: &fields,
        record: *record,
        call,
    });
    let page = ListPage {
        name: kind.name,
        shown: shown.collect(),
        next,
    };
    Ok(ApiOutcome::Reply(Response::json(200, &page)))
}

/// The fields of each record on the page.
fn fields<R>(
    call: &ApiCall<'_>,
    kind: &ListKind<R>,
    detailed_path: bool,
) -> Result<Vec<&'static Field<R>>, ApiFault> {
    let detail = wants_detail(call, detailed_path)?;
    Ok(match requested_fields(kind.table, call)? {
        Some(_) if detail => {
            return Err(ApiFault::bad(
                "Can not specify ?detail=True and fields in the same request.",
            ));
        }
        Some(fields) => fields,
        None if detail && kind.detail_of_all_versions => kind.table.iter().collect(),
        None if detail => field::available_fields(kind.table, call),
        None => kind
            .table
            .iter()
            .filter(|field| kind.short.contains(&field.name) && call.has(field.since))
            .collect(),
    })
}

#[cfg(test)]
thread_local! {
    /// Number of records that lists of this thread have examined.
    pub(crate) static EXAMINED: core::cell::Cell<usize> = const { core::cell::Cell::new(0) };
}

/// The records of a page, and whether they are in order. The walks advance in turn, record by
/// record, and the first that is complete decides: an ordered one when it has filled the page, any
/// other at its end. So a page costs as much as the best walk, times their number.
fn select<'r, R>(
    walks: Vec<RecordWalk<'r, R>>,
    passes: impl Fn(&R) -> bool,
    limit: usize,
) -> (Vec<&'r R>, bool) {
    let mut walks: Vec<(RecordWalk<'r, R>, Vec<&'r R>)> =
        walks.into_iter().map(|walk| (walk, Vec::new())).collect();
    while !walks.is_empty() {
        for (walk, found) in &mut walks {
            let next = walk.records.next();
            #[cfg(test)]
            EXAMINED.set(EXAMINED.get() + usize::from(next.is_some()));
            if let Some(record) = next
                && passes(record)
            {
                found.push(record);
            }
            if next.is_none() || (walk.ordered && found.len() == limit) {
                return (core::mem::take(found), walk.ordered);
            }
        }
    }
    (Vec::new(), true)
}

/// A response: the records, and the link to the next page.
struct ListPage<T> {
    name: &'static str,
    shown: Vec<T>,
    next: Option<String>,
}

impl<T: Serialize> Serialize for ListPage<T> {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        let mut map = out.serialize_map(None)?;
        map.serialize_entry(self.name, &self.shown)?;
        if let Some(next) = &self.next {
            map.serialize_entry("next", next)?;
        }
        map.end()
    }
}

/// The version from which on lists have the argument `detail`; those of volumes always had it.
const DETAIL_SINCE: u16 = 43;

fn wants_detail(call: &ApiCall<'_>, detailed_path: bool) -> Result<bool, ApiFault> {
    let detail = call.query.flag("detail")?;
    let known = call.has(DETAIL_SINCE) || call.segments.iter().any(|word| word == "volume");
    if detail.is_some() && !known {
        return Err(ApiFault::bad(
            "Invalid query parameter ?detail=True received: it needs API version 1.43 or newer.",
        ));
    }
    Ok(detail == Some(true) || detailed_path)
}

fn limit(call: &ApiCall<'_>) -> Result<usize, ApiFault> {
    let Some(text) = call.query.last("limit") else {
        return Ok(PAGE_RECORDS_MAX);
    };
    if call.query.all("limit").count() > 1 {
        return Err(ApiFault::bad(
            "Expected an integer for limit: it is given more than once.",
        ));
    }
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match text.parse::<usize>() {
        Ok(limit) if limit >= 1 => Ok(limit.min(PAGE_RECORDS_MAX)),
        // A number that is too large means a full page.
        Err(_) if digits => Ok(PAGE_RECORDS_MAX),
        _ if text.parse::<i64>().is_err() => Err(ApiFault::bad(format!(
            "Expected an integer for limit: {}",
            text.escape_debug()
        ))),
        _ => Err(ApiFault::bad(
            "Limit must be positive: limit must be a number above zero.",
        )),
    }
}

/// Filters stay in the URL: the next page is of the same list.
fn next(call: &ApiCall<'_>, limit: usize, marker: &str) -> String {
    let rest = call.query.without(&["limit", "marker"]);
    let rest = if rest.is_empty() {
        rest
    } else {
        format!("{rest}&")
    };
    let path: Vec<String> = call
        .segments
        .iter()
        .map(|part| trivet_net::percent::encode(part))
        .collect();
    format!(
        "{}/{}?{rest}limit={limit}&marker={marker}",
        call.base,
        path.join("/")
    )
}

/// A record with its sort key.
struct KeyedRecord<'r, R> {
    by: Value,
    serial: u64,
    record: &'r R,
}

/// The order of a list.
struct ListOrder<R: 'static> {
    by: Option<&'static Field<R>>,
    descending: bool,
}

impl<R: ListRecord> ListOrder<R> {
    fn read(table: &'static [Field<R>], call: &ApiCall<'_>) -> Result<Self, ApiFault> {
        let descending = match call.query.last("sort_dir") {
            None | Some("asc") => false,
            Some("desc") => true,
            Some(other) => {
                return Err(ApiFault::bad(format!(
                    "Invalid sort direction: {}. Acceptable values are 'asc' or 'desc': {} is not \
                     one of ['asc', 'desc']",
                    other.escape_debug(),
                    field::quoted(&Value::from(other))
                )));
            }
        };
        let by = match call.query.last("sort_key") {
            // Ironic's key for the order of creation.
            None | Some("" | "id") => None,
            Some(key) => {
                let field = field::named(table, key, call);
                let field = field.map_err(|fault| {
                    let key = key.escape_debug();
                    fault.after_if_bad(&format!(
                        "The sort_key value \"{key}\" is an invalid field for sorting. "
                    ))
                })?;
                if !field.sortable() || UNSORTABLE.contains(&key) {
                    return Err(ApiFault::bad(format!(
                        "The sort_key value \"{key}\" is an invalid field for sorting"
                    )));
                }
                Some(field)
            }
        };
        Ok(Self { by, descending })
    }

    /// The page of these records, which are in any order.
    fn paginate<'r>(
        &self,
        records: Vec<&'r R>,
        after: Option<&'r R>,
        limit: usize,
        call: &ApiCall<'_>,
    ) -> Vec<&'r R> {
        let records = records.into_iter();
        let mut keyed: Vec<_> = records.map(|record| self.key(record, call)).collect();
        if let Some(after) = after {
            let place = self.key(after, call);
            keyed.retain(|entry| self.compare(entry, &place) == Ordering::Greater);
        }
        keyed.sort_by(|one, two| self.compare(one, two));
        keyed.truncate(limit);
        keyed.into_iter().map(|keyed| keyed.record).collect()
    }

    fn key<'r>(&self, record: &'r R, call: &ApiCall<'_>) -> KeyedRecord<'r, R> {
        let by = self.by.map(|field| field.show(record, call));
        KeyedRecord {
            by: by.unwrap_or_default(),
            serial: record.serial(),
            record,
        }
    }

    fn compare(&self, one: &KeyedRecord<'_, R>, two: &KeyedRecord<'_, R>) -> Ordering {
        let order = compare_values(&one.by, &two.by)
            .then_with(|| one.serial.cmp(&two.serial))
            .then_with(|| one.record.uuid().cmp(&two.record.uuid()));
        if self.descending {
            order.reverse()
        } else {
            order
        }
    }
}

/// Null sorts first; otherwise both values have the same type.
fn compare_values(one: &Value, two: &Value) -> Ordering {
    match (one, two) {
        (Value::String(one), Value::String(two)) => one.cmp(two),
        (Value::Bool(one), Value::Bool(two)) => one.cmp(two),
        (Value::Number(one), Value::Number(two)) => {
            let (one, two) = (one.as_f64(), two.as_f64());
            one.unwrap_or(0.0).total_cmp(&two.unwrap_or(0.0))
        }
        (one, two) => two.is_null().cmp(&one.is_null()),
    }
}
