//! Directions between the modules of one crate: which folder names which modules.
//!
//! `cargo metadata` shows the dependencies between crates only. Inside a crate the paths in the
//! text show them.

use crate::mask::mask;
use crate::{Finding, SourceFile};

/// A folder, the module paths that its files do not name, and the reason.
const RULES: &[(&str, &[&str], &str)] = &[(
    "firmware/api/src/table/",
    &["crate::ironic", "crate::inspector", "crate::trivet"],
    "the mechanism of the API does not depend on its contents",
)];

/// Paths in a file that the rule of its folder forbids. Comments and texts do not count.
pub fn forbidden_paths(file: &SourceFile) -> Vec<Finding> {
    let rules = RULES.iter().filter(|rule| file.path.starts_with(rule.0));
    let code = mask(&file.text);
    rules
        .flat_map(|(_, paths, reason)| {
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
    fn comments_and_texts_do_not_count() {
        let text = "// crate::ironic\nconst NAME: &str = \"crate::trivet\";\n";
        assert_eq!(findings("firmware/api/src/table/list.rs", text), 0);
    }
}
