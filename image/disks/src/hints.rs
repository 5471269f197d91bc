//! Root device hints: which disk an image is written to.
//!
//! The grammar is that of the stock agent (oslo.utils `specs_matcher`): an optional operator and
//! values. Without an operator, text and numbers must be equal. Text is compared in lower case.
//! Sizes are in GiB. If a disk has several serial numbers or world wide names, one that matches
//! is enough. A disk must match all hints; the first one in the order of the list is used.
//!
//! Without hints it is the smallest disk of at least 4 GiB, and of equal ones the first by name.

use serde_json::{Map, Value};
use trivet_agent_wire::inventory::IpaDisk;

/// Smallest disk that is used without hints; the stock agent's.
pub const ROOT_DISK_BYTES_MIN: u64 = 4 << 30;

/// Most values of an expression. Ours.
pub const HINT_VALUES_MAX: usize = 64;

/// Longest expression, in bytes. Ours.
pub const HINT_BYTES_MAX: usize = 4096;

const GIB: f64 = 1_073_741_824.0;

/// A disk that may be used.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RootDiskCandidate {
    /// The disk as in the inventory.
    pub disk: IpaDisk,
    /// Further serial numbers, such as the long one of udev.
    pub other_serials: Vec<String>,
    /// Further world wide names.
    pub other_wwns: Vec<String>,
}

/// Why no disk was chosen.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum RootDiskError {
    /// A hint is not one of the stock agent's.
    #[error("the root device hint {name:?} is invalid; valid hints are {HINT_NAMES}")]
    UnknownHint {
        /// Its name.
        name: String,
    },
    /// The expression of a hint is malformed.
    #[error("the root device hint {name} is invalid: {reason}")]
    BadHint {
        /// Its name.
        name: &'static str,
        /// What is wrong.
        reason: &'static str,
    },
    /// No disk matches.
    #[error("no suitable device was found for deployment using these hints {hints}")]
    NoMatch {
        /// The hints.
        hints: String,
    },
    /// There are no hints, and all disks are small.
    #[error(
        "no suitable device was found for deployment: root device hints were not provided and all \
         found block devices are smaller than {ROOT_DISK_BYTES_MIN} bytes"
    )]
    TooSmall,
}

const HINT_NAMES: &str = "size, model, wwn, serial, vendor, wwn_with_extension, \
    wwn_vendor_extension, name, rotational, hctl, by_path, tran";

/// What a hint is about.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum HintSubject {
    Size,
    Rotational,
    Text(TextHint),
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum TextHint {
    Model,
    Wwn,
    Serial,
    Vendor,
    WwnWithExtension,
    WwnVendorExtension,
    Name,
    Hctl,
    ByPath,
    Tran,
}

const SUBJECTS: [(&str, HintSubject); 12] = [
    ("size", HintSubject::Size),
    ("rotational", HintSubject::Rotational),
    ("model", HintSubject::Text(TextHint::Model)),
    ("wwn", HintSubject::Text(TextHint::Wwn)),
    ("serial", HintSubject::Text(TextHint::Serial)),
    ("vendor", HintSubject::Text(TextHint::Vendor)),
    (
        "wwn_with_extension",
        HintSubject::Text(TextHint::WwnWithExtension),
    ),
    (
        "wwn_vendor_extension",
        HintSubject::Text(TextHint::WwnVendorExtension),
    ),
    ("name", HintSubject::Text(TextHint::Name)),
    ("hctl", HintSubject::Text(TextHint::Hctl)),
    ("by_path", HintSubject::Text(TextHint::ByPath)),
    ("tran", HintSubject::Text(TextHint::Tran)),
];

/// Operators; a longer one comes before its own beginning.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum HintOperator {
    /// Numbers, as `f64`. The first is `=`, which means at least, for historical reasons.
    AtLeast,
    Equal,
    NotEqual,
    AtMost,
    Less,
    Greater,
    /// Text.
    TextEqual,
    TextNotEqual,
    TextAtMost,
    TextLess,
    TextAtLeast,
    TextGreater,
    /// The value is part of the text.
    In,
    /// One of the values is the text.
    Or,
    /// All values are in a list, which no attribute of a disk is.
    AllIn,
    /// The number is in a range.
    RangeIn,
}

const OPERATORS: [(&str, HintOperator); 17] = [
    ("<all-in>", HintOperator::AllIn),
    ("<range-in>", HintOperator::RangeIn),
    ("<in>", HintOperator::In),
    ("<or>", HintOperator::Or),
    ("s==", HintOperator::TextEqual),
    ("s!=", HintOperator::TextNotEqual),
    ("s<=", HintOperator::TextAtMost),
    ("s>=", HintOperator::TextAtLeast),
    ("s<", HintOperator::TextLess),
    ("s>", HintOperator::TextGreater),
    ("==", HintOperator::Equal),
    ("!=", HintOperator::NotEqual),
    ("<=", HintOperator::AtMost),
    (">=", HintOperator::AtLeast),
    ("=", HintOperator::AtLeast),
    ("<", HintOperator::Less),
    (">", HintOperator::Greater),
];

/// The hints of a node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RootDeviceHints {
    hints: Vec<RootDeviceHint>,
}

#[derive(Clone, Debug, PartialEq)]
struct RootDeviceHint {
    name: &'static str,
    subject: HintSubject,
    condition: HintCondition,
}

#[derive(Clone, Debug, PartialEq)]
enum HintCondition {
    Flag(bool),
    Compare(HintOperator, Vec<String>),
}

impl RootDeviceHints {
    /// Parses `root_device` of a node. Anything but an object means no hints.
    pub fn parse(hints: &Value) -> Result<Self, RootDiskError> {
        let empty = Map::new();
        let hints = hints.as_object().unwrap_or(&empty);
        let parsed = hints.iter().map(|(name, value)| parse_hint(name, value));
        Ok(Self {
            hints: parsed.collect::<Result<_, _>>()?,
        })
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.hints.is_empty()
    }

    /// Whether a disk matches all of them.
    pub fn matches(&self, candidate: &RootDiskCandidate) -> bool {
        self.hints.iter().all(|hint| hint.matches(candidate))
    }
}

/// The disk that an image is written to.
pub fn choose_root_disk<'disks>(
    disks: &'disks [RootDiskCandidate],
    hints: &Value,
) -> Result<&'disks RootDiskCandidate, RootDiskError> {
    let parsed = RootDeviceHints::parse(hints)?;
    if parsed.is_empty() {
        let large = disks
            .iter()
            .filter(|one| one.disk.size >= Some(ROOT_DISK_BYTES_MIN));
        let smallest = large.min_by_key(|one| (one.disk.size, &one.disk.name));
        return smallest.ok_or(RootDiskError::TooSmall);
    }
    let mut matching = disks.iter().filter(|one| parsed.matches(one));
    matching.next().ok_or_else(|| RootDiskError::NoMatch {
        hints: hints.to_string(),
    })
}

fn parse_hint(name: &str, value: &Value) -> Result<RootDeviceHint, RootDiskError> {
    let Some(&(name, subject)) = SUBJECTS.iter().find(|(known, _)| *known == name) else {
        return Err(RootDiskError::UnknownHint {
            name: name.chars().take(64).collect(),
        });
    };
    let bad = |reason| RootDiskError::BadHint { name, reason };
    let condition = match subject {
        HintSubject::Rotational => {
            HintCondition::Flag(flag(value).ok_or(bad("it is not a boolean"))?)
        }
        HintSubject::Size => {
            let text = match value {
                Value::String(text) => text.clone(),
                Value::Number(number) => number.to_string(),
                _ => return Err(bad("it is not a number")),
            };
            let (operator, values) = parse_expression(&text, HintOperator::Equal).map_err(bad)?;
            if operator != HintOperator::RangeIn
                && !values
                    .iter()
                    .all(|value| value.parse::<i64>().is_ok_and(|size| size > 0))
            {
                return Err(bad("it is not a positive integer"));
            }
            HintCondition::Compare(operator, values)
        }
        HintSubject::Text(_) => {
            let text = value.as_str().ok_or(bad("it is not a string"))?;
            let (operator, values) =
                parse_expression(text, HintOperator::TextEqual).map_err(bad)?;
            HintCondition::Compare(operator, values)
        }
    };
    Ok(RootDeviceHint {
        name,
        subject,
        condition,
    })
}

/// The words that oslo.utils takes for booleans.
fn flag(value: &Value) -> Option<bool> {
    let text = match value {
        Value::Bool(flag) => return Some(*flag),
        Value::String(text) => text.trim().to_ascii_lowercase(),
        Value::Number(number) => number.to_string(),
        _ => return None,
    };
    match text.as_str() {
        "1" | "t" | "true" | "on" | "y" | "yes" => Some(true),
        "0" | "f" | "false" | "off" | "n" | "no" => Some(false),
        _ => None,
    }
}

/// The operator of an expression and its values.
fn parse_expression(
    text: &str,
    default: HintOperator,
) -> Result<(HintOperator, Vec<String>), &'static str> {
    if text.len() > HINT_BYTES_MAX {
        return Err("it is too long");
    }
    let text = text.trim().to_lowercase();
    if text.is_empty() {
        return Err("it is empty");
    }
    let found = OPERATORS.iter().find(|(word, _)| text.starts_with(word));
    let Some(&(word, operator)) = found.filter(|(word, _)| text.len() > word.len()) else {
        return Ok((default, vec![text]));
    };
    let rest = text[word.len()..].trim();
    let values: Vec<String> = match operator {
        HintOperator::Or => text.split(word).map(str::trim).map(str::to_owned).collect(),
        HintOperator::AllIn | HintOperator::RangeIn => {
            rest.split_whitespace().map(str::to_owned).collect()
        }
        _ => vec![rest.to_owned()],
    };
    let values: Vec<String> = values
        .into_iter()
        .filter(|value| !value.is_empty())
        .collect();
    if values.is_empty() {
        return Err("its operator has no value");
    }
    if values.len() > HINT_VALUES_MAX {
        return Err("it has too many values");
    }
    if operator == HintOperator::RangeIn && parse_range(&values).is_none() {
        return Err("its range is not two numbers in brackets");
    }
    Ok((operator, values))
}

/// The bounds of `[ 10 20 )`, and whether each is part of the range.
fn parse_range(values: &[String]) -> Option<(f64, bool, f64, bool)> {
    let [opening, from, to, closing] = values else {
        return None;
    };
    let from_included = match opening.as_str() {
        "[" => true,
        "(" => false,
        _ => return None,
    };
    let to_included = match closing.as_str() {
        "]" => true,
        ")" => false,
        _ => return None,
    };
    let (from, to): (f64, f64) = (from.parse().ok()?, to.parse().ok()?);
    (from <= to).then_some((from, from_included, to, to_included))
}

impl RootDeviceHint {
    fn matches(&self, candidate: &RootDiskCandidate) -> bool {
        let disk = &candidate.disk;
        match (&self.condition, self.subject) {
            (HintCondition::Flag(flag), _) => disk.rotational == Some(*flag),
            (HintCondition::Compare(operator, values), HintSubject::Text(hint)) => {
                let texts = texts(candidate, hint);
                texts.iter().any(|text| {
                    let text = text.trim().to_lowercase();
                    !text.is_empty() && compare(*operator, &text, values)
                })
            }
            (HintCondition::Compare(operator, values), _) => disk.size.is_some_and(|bytes| {
                #[expect(clippy::cast_precision_loss, reason = "the stock agent divides floats")]
                let gib = bytes as f64 / GIB;
                compare(*operator, &gib.to_string(), values)
            }),
        }
    }
}

fn texts(candidate: &RootDiskCandidate, hint: TextHint) -> Vec<&String> {
    let disk = &candidate.disk;
    let (first, others): (&Option<String>, &[String]) = match hint {
        TextHint::Model => (&disk.model, &[]),
        TextHint::Wwn => (&disk.wwn, &candidate.other_wwns),
        TextHint::Serial => (&disk.serial, &candidate.other_serials),
        TextHint::Vendor => (&disk.vendor, &[]),
        TextHint::WwnWithExtension => (&disk.wwn_with_extension, &[]),
        TextHint::WwnVendorExtension => (&disk.wwn_vendor_extension, &[]),
        TextHint::Name => (&disk.name, &[]),
        TextHint::Hctl => (&disk.hctl, &[]),
        TextHint::ByPath => (&disk.by_path, &[]),
        TextHint::Tran => (&disk.tran, &[]),
    };
    first.iter().chain(others).collect()
}

fn compare(operator: HintOperator, text: &str, values: &[String]) -> bool {
    let value = values.first().map(String::as_str).unwrap_or_default();
    let numbers = || Some((text.parse::<f64>().ok()?, value.parse::<f64>().ok()?));
    let number = |holds: fn(f64, f64) -> bool| numbers().is_some_and(|(one, two)| holds(one, two));
    match operator {
        HintOperator::AtLeast => number(|one, two| one >= two),
        #[expect(clippy::float_cmp, reason = "the stock agent compares floats")]
        HintOperator::Equal => number(|one, two| one == two),
        #[expect(clippy::float_cmp, reason = "the stock agent compares floats")]
        HintOperator::NotEqual => number(|one, two| one != two),
        HintOperator::AtMost => number(|one, two| one <= two),
        HintOperator::Less => number(|one, two| one < two),
        HintOperator::Greater => number(|one, two| one > two),
        HintOperator::TextEqual => text == value,
        HintOperator::TextNotEqual => text != value,
        HintOperator::TextAtMost => text <= value,
        HintOperator::TextLess => text < value,
        HintOperator::TextAtLeast => text >= value,
        HintOperator::TextGreater => text > value,
        HintOperator::In => text.contains(value),
        HintOperator::Or => values.iter().any(|value| is_same(text, value)),
        // A text is no list.
        HintOperator::AllIn => false,
        HintOperator::RangeIn => is_in_range(text, values),
    }
}

/// Text that is equal, or the same number.
fn is_same(text: &str, value: &str) -> bool {
    let numbers = || Some((text.parse::<f64>().ok()?, value.parse::<f64>().ok()?));
    #[expect(clippy::float_cmp, reason = "sizes in GiB that people write are whole")]
    let same = || numbers().is_some_and(|(one, two)| one == two);
    text == value || same()
}

fn is_in_range(text: &str, values: &[String]) -> bool {
    let (Some((from, from_included, to, to_included)), Ok(number)) =
        (parse_range(values), text.parse::<f64>())
    else {
        return false;
    };
    let above = if from_included {
        number >= from
    } else {
        number > from
    };
    let below = if to_included {
        number <= to
    } else {
        number < to
    };
    above && below
}

#[cfg(test)]
mod tests;
