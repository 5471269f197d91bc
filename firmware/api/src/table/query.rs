//! Query arguments.

use trivet_net::percent::encode;

use crate::table::error::ApiFault;
use crate::table::percent;

/// Most arguments in one request. Ours.
pub(crate) const QUERY_ARGS_MAX: usize = 64;

/// Decoded arguments, in the order of the request.
#[derive(Debug, Default)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    pub(crate) fn parse(text: &str) -> Result<Self, ApiFault> {
        let mut pairs = Vec::new();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            if pairs.len() == QUERY_ARGS_MAX {
                return Err(ApiFault::bad(format!(
                    "A request has at most {QUERY_ARGS_MAX} arguments."
                )));
            }
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            pairs.push((percent::decoded_query(key)?, percent::decoded_query(value)?));
        }
        Ok(Self(pairs))
    }

    /// The names of all arguments.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }

    /// The last value of a key.
    pub(crate) fn last(&self, key: &str) -> Option<&str> {
        self.all(key).last()
    }

    /// Every value of a key.
    pub(crate) fn all<'q>(&'q self, key: &str) -> impl Iterator<Item = &'q str> {
        self.0
            .iter()
            .filter(move |(name, _)| name == key)
            .map(|(_, value)| value.as_str())
    }

    /// Removes a key; its last value.
    pub(crate) fn take(&mut self, key: &str) -> Option<String> {
        let value = self.last(key).map(str::to_owned);
        self.0.retain(|(name, _)| name != key);
        value
    }

    /// A truth value, in any form that OpenStack accepts.
    pub(crate) fn flag(&self, key: &str) -> Result<Option<bool>, ApiFault> {
        let Some(text) = self.last(key) else {
            return Ok(None);
        };
        truth(text).map(Some).ok_or_else(|| {
            ApiFault::bad(format!(
                "Invalid {key}: Unrecognized value '{}'; use true or false.",
                text.escape_debug()
            ))
        })
    }

    /// The same arguments without some, encoded again.
    pub(crate) fn without(&self, dropped: &[&str]) -> String {
        let remaining: Vec<String> = self
            .0
            .iter()
            .filter(|(key, _)| !dropped.contains(&key.as_str()))
            .map(|(key, value)| format!("{}={}", encode(key), encode(value)))
            .collect();
        remaining.join("&")
    }
}

/// OpenStack's words for true and false.
pub(crate) fn truth(text: &str) -> Option<bool> {
    match text.trim().to_ascii_lowercase().as_str() {
        "1" | "t" | "true" | "y" | "yes" | "on" => Some(true),
        "0" | "f" | "false" | "n" | "no" | "off" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_arguments_in_order_and_repeated() {
        let query = Query::parse("fields=a,b&x=1+2&fields=%63&flag").unwrap();
        assert_eq!(query.all("fields").collect::<Vec<_>>(), ["a,b", "c"]);
        assert_eq!(query.last("x"), Some("1 2"));
        assert_eq!(query.last("flag"), Some(""));
        assert_eq!(query.last("none"), None);
        assert_eq!(query.without(&["fields"]), "x=1%202&flag=");
    }

    #[test]
    fn knows_every_word_for_truth() {
        let query = Query::parse("a=T&b=oFF&c=maybe").unwrap();
        assert_eq!(query.flag("a").unwrap(), Some(true));
        assert_eq!(query.flag("b").unwrap(), Some(false));
        assert_eq!(query.flag("d").unwrap(), None);
        assert!(query.flag("c").is_err());
    }

    #[test]
    fn refuses_too_many_and_broken_ones() {
        assert!(Query::parse(&"a=1&".repeat(QUERY_ARGS_MAX)).is_ok());
        assert!(Query::parse(&"a=1&".repeat(QUERY_ARGS_MAX + 1)).is_err());
        assert!(Query::parse("a=%").is_err());
    }
}
