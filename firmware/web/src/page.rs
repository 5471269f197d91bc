//! The page itself: one document with its style and its script, all served by this box.

/// The `Content-Security-Policy` header of the page: style, script and requests of this box only.
pub const CSP: &str = "default-src 'none'; style-src 'self'; script-src 'self'; \
    connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; \
    frame-ancestors 'none'";

/// The page. Its style is at `/panel/page.css`, its script at `/panel/page.js`. The script opens a
/// stream at `/panel/events`, falls back to polling `/panel/nodes.json` every second, and shows a
/// warning when the box does not reply.
pub fn page() -> &'static str {
    concat!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n",
        "<link rel=\"stylesheet\" href=\"/panel/page.css\">\n",
        include_str!("page/page.html"),
        "<script src=\"/panel/page.js\"></script>\n</body>\n</html>\n",
    )
}

/// The page's style.
pub fn style() -> &'static str {
    include_str!("page/page.css")
}

/// The page's script.
pub fn script() -> &'static str {
    include_str!("page/page.js")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_complete_and_self_contained() {
        let page = page();
        assert!(page.starts_with("<!doctype html>"));
        assert!(page.ends_with("</html>\n"));
        assert!(page.is_ascii());
        for (tag, count) in [("<style", 0), ("<script", 1), ("<main", 1), ("<h1", 1)] {
            assert_eq!(page.matches(tag).count(), count, "{tag}");
        }
        let whole = [page, style(), script()].concat();
        assert!(whole.is_ascii());
        for outside in ["http://", "https://", "@import", "url("] {
            let found = whole.replace("http://www.w3.org/2000/svg", "");
            assert!(!found.contains(outside), "{outside}");
        }
        assert!(page.contains("src=\"/panel/page.js\""));
        assert!(page.contains("href=\"/panel/page.css\""));
    }

    #[test]
    fn text_reaches_the_page_as_text_only() {
        let page = [page(), script()].concat();
        for listener in [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "new Function",
            "DOMParser",
            " onclick=",
            " onload=",
            " onerror=",
            " style=\"",
        ] {
            assert!(!page.contains(listener), "{listener}");
        }
        assert!(page.contains("textContent"));
    }

    #[test]
    fn the_page_requests_paths_that_the_box_serves() {
        assert!(script().contains("\"/panel/events\""));
        assert!(script().contains("\"/panel/nodes.json\""));
    }

    #[test]
    fn the_policy_allows_no_inline_script_and_is_closed_by_default() {
        assert!(CSP.starts_with("default-src 'none'"));
        assert!(!CSP.contains("unsafe"));
        assert!(!CSP.contains('\n'));
        assert!(!CSP.contains("  "));
    }
}
