//! Directions between modules: which folder names which modules.
//!
//! `cargo metadata` shows the dependencies between crates only. The paths in the text show those
//! inside a crate, and which part of another crate is used.

use crate::mask::mask;
use crate::{Finding, SourceFile};

/// A folder, the module paths that its files do not name, and the reason.
const RULES: &[(&str, &[&str], &str)] = &[(
    "firmware/api/src/table/",
    &["crate::ironic", "crate::inspector", "crate::trivet"],
    "the mechanism of the API does not depend on its contents",
)];

/// Module paths that only one folder names, the folder, and the reason.
const ONLY_IN: &[(&[&str], &str, &str)] = &[(
    &["hyper::client", "hyper_util::client"],
    "firmware/net/",
    "requests are sent with the client of firmware/net/http",
)];

/// Paths in a file that the rules forbid. Comments and texts do not count.
pub fn forbidden_paths(file: &SourceFile) -> Vec<Finding> {
    let of_folder = RULES.iter().filter(|rule| file.path.starts_with(rule.0));
    let of_folder = of_folder.map(|(_, paths, reason)| (paths, reason));
    let elsewhere = ONLY_IN.iter().filter(|rule| !file.path.starts_with(rule.1));
    let elsewhere = elsewhere.map(|(paths, _, reason)| (paths, reason));
    let code = mask(&file.text);
    let rules = of_folder.chain(elsewhere);
    rules
        .flat_map(|(paths, reason)| {
            let named = paths.iter().filter(|path| code.contains(**path));
            named.map(move |path| Finding::in_file(&file.path, format!("names {path}: {reason}")))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(path: &str, text: &str) -> usize {
        let file = SourceFile {
            path: path.into(),
            text: text.into(),
        };
        forbidden_paths(&file).len()
    }

    #[test]
    fn a_path_that_the_folder_may_not_name_is_found() {
        let text = "use crate::ironic::nodes;\n";
        assert_eq!(findings("firmware/api/src/table/list.rs", text), 1);
        assert_eq!(findings("firmware/api/src/routes.rs", text), 0);
    }

    #[test]
    fn a_path_of_one_folder_is_found_in_others() {
        let text = "use hyper::client::conn::http1;\n";
        assert_eq!(findings("firmware/daemon/src/serve.rs", text), 1);
        assert_eq!(findings("firmware/net/http/src/client.rs", text), 0);
    }

    #[test]
    fn comments_and_texts_do_not_count() {
        let text = "// crate::ironic\nconst NAME: &str = \"crate::trivet\";\n";
        assert_eq!(findings("firmware/api/src/table/list.rs", text), 0);
    }
}
