//! `KEY=VALUE` arguments: values, files, and secrets that must not be there.

use serde_json::{Map, Value};
use trivet_model::secret;

use crate::fault::CliFault;

/// Reads a file named by an argument; `-` is standard input. The text or the reason.
pub(crate) type FileTextReader<'a> = &'a dyn Fn(&str) -> Result<String, String>;

/// `KEY=VALUE` pairs as an object. A value is JSON if it parses as such and text
/// otherwise; `@FILE` is the text of a file.
pub(crate) fn object(
    flag: &str,
    pairs: &[String],
    read: FileTextReader<'_>,
) -> Result<Value, CliFault> {
    let mut object = Map::new();
    for pair in pairs {
        let (key, value) = value(flag, pair, read)?;
        if object.insert(key.clone(), value).is_some() {
            return Err(CliFault::usage(format!("{flag} {key} is given twice")));
        }
    }
    Ok(Value::Object(object))
}

/// One pair.
pub(crate) fn value(
    flag: &str,
    pair: &str,
    read: FileTextReader<'_>,
) -> Result<(String, Value), CliFault> {
    let (key, text) = pair
        .split_once('=')
        .filter(|(key, _)| !key.is_empty())
        .ok_or_else(|| CliFault::usage(format!("{flag} wants KEY=VALUE, not {pair:?}")))?;
    if let Some(file) = text.strip_prefix('@') {
        let text = file_text(flag, file, read)?;
        return Ok((key.to_owned(), Value::String(text)));
    }
    // Every user of this machine can read the arguments of every process.
    if secret::is_secret_key(key) && text != secret::MASK {
        return Err(CliFault::usage(format!(
            "{flag} {key}: a secret does not belong on the command line, where others can read \
             it: write {key}=@FILE, or {key}=@- for standard input"
        )));
    }
    let value = serde_json::from_str(text).unwrap_or_else(|_| Value::from(text));
    Ok((key.to_owned(), value))
}

/// The text of a file without its last line end.
pub(crate) fn file_text(
    flag: &str,
    file: &str,
    read: FileTextReader<'_>,
) -> Result<String, CliFault> {
    let text = read(file).map_err(|why| CliFault::usage(format!("{flag}: {why}")))?;
    let text = text.strip_suffix('\n').unwrap_or(&text);
    Ok(text.strip_suffix('\r').unwrap_or(text).to_owned())
}

/// A file with JSON in it.
pub(crate) fn file_json(
    flag: &str,
    file: &str,
    read: FileTextReader<'_>,
) -> Result<Value, CliFault> {
    let text = file_text(flag, file, read)?;
    serde_json::from_str(&text)
        .map_err(|error| CliFault::usage(format!("{flag}: {file} is not JSON: {error}")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::exit::Exit;
    use crate::testing::files;

    fn pairs(pairs: &[&str]) -> Result<Value, CliFault> {
        let pairs: Vec<String> = pairs.iter().map(|pair| (*pair).to_owned()).collect();
        object("--driver-info", &pairs, &files)
    }

    #[test]
    fn values_are_json_where_they_read_so() {
        assert_eq!(
            pairs(&[
                "a=1",
                "b=x y",
                "c={\"d\":[1]}",
                "e=",
                "f=a=b",
                "g=true",
                "h=007"
            ])
            .unwrap(),
            json!({"a": 1, "b": "x y", "c": {"d": [1]}, "e": "", "f": "a=b", "g": true, "h": "007"})
        );
    }

    #[test]
    fn files_are_text_even_where_they_look_like_numbers() {
        assert_eq!(
            pairs(&["ipmi_password=@number"]).unwrap(),
            json!({"ipmi_password": "12345"})
        );
        let fault = pairs(&["a=@absent"]).unwrap_err();
        assert_eq!(fault.exit, Exit::Usage);
        assert!(fault.sentence.contains("absent"), "{}", fault.sentence);
    }

    #[test]
    fn secrets_on_the_command_line_are_refused() {
        for pair in ["ipmi_password=hunter2", "snmp_auth_key=1", "x_token={}"] {
            let fault = pairs(&[pair]).unwrap_err();
            assert_eq!(fault.exit, Exit::Usage);
            assert!(fault.sentence.contains("=@FILE"), "{}", fault.sentence);
            assert!(!fault.sentence.contains("hunter2"), "{}", fault.sentence);
        }
    }

    #[test]
    fn an_invalid_pair_is_named() {
        for wrong in ["a", "=b", ""] {
            assert_eq!(pairs(&[wrong]).unwrap_err().exit, Exit::Usage);
        }
        assert!(
            pairs(&["a=1", "a=2"])
                .unwrap_err()
                .sentence
                .contains("twice")
        );
    }

    #[test]
    fn json_files_must_be_json() {
        assert_eq!(file_json("--steps", "list", &files).unwrap(), json!([]));
        let fault = file_json("--steps", "text", &files).unwrap_err();
        assert!(fault.sentence.contains("text is not JSON"));
    }
}
