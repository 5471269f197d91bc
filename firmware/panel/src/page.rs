//! The page itself: one self-contained document, written in three files.

/// What the page may do, for the `Content-Security-Policy` header: its own
/// style and script, calls to the box, nothing else from anywhere.
pub const CSP: &str = "default-src 'none'; style-src 'unsafe-inline'; \
    script-src 'unsafe-inline'; connect-src 'self'; img-src data:; base-uri 'none'; \
    form-action 'none'; frame-ancestors 'none'";

/// The page. It opens a stream at `/panel/events`, falls back to asking for
/// `/panel/nodes.json` every second, and says so when the box is silent.
pub fn page() -> &'static str {
    concat!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<style>\n",
        include_str!("page/page.css"),
        "</style>\n",
        include_str!("page/page.html"),
        "<script>\n",
        include_str!("page/page.js"),
        "</script>\n</body>\n</html>\n",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_whole_and_brings_everything_with_it() {
        let page = page();
        assert!(page.starts_with("<!doctype html>"));
        assert!(page.ends_with("</html>\n"));
        assert!(page.is_ascii());
        for (tag, count) in [("<style>", 1), ("<script>", 1), ("<main", 1), ("<h1", 1)] {
            assert_eq!(page.matches(tag).count(), count, "{tag}");
        }
        for outside in ["http://", "https://", "src=\"", "@import", "url("] {
            let found = page.replace("http://www.w3.org/2000/svg", "");
            assert!(!found.contains(outside), "{outside}");
        }
    }

    #[test]
    fn text_reaches_the_page_as_text_only() {
        let page = page();
        for door in [
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
            assert!(!page.contains(door), "{door}");
        }
        assert!(page.contains("textContent"));
    }

    #[test]
    fn the_page_asks_where_the_box_answers() {
        assert!(page().contains("\"/panel/events\""));
        assert!(page().contains("\"/panel/nodes.json\""));
    }

    #[test]
    fn the_policy_is_one_line_and_closed_by_default() {
        assert!(CSP.starts_with("default-src 'none'"));
        assert!(!CSP.contains('\n'));
        assert!(!CSP.contains("  "));
    }
}
