//! Rust text with its comments and literals blanked out.
//!
//! Braces, keywords and `fn` are then where they seem to be. Not a parser: it knows the
//! lexical rules of comments, strings, raw strings and characters, and nothing above.
//! Lines and columns stay where they were.

/// Blanks comments and the contents of literals.
pub fn mask(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let Some(end) = hidden_end(bytes, at) else {
            at += 1;
            continue;
        };
        blank(&mut out[at..end]);
        at = end;
    }
    // Only whole literals and comments were blanked, so no character was cut in two.
    String::from_utf8_lossy(&out).into_owned()
}

/// Where the comment or literal that starts at `at` ends, if one does.
fn hidden_end(bytes: &[u8], at: usize) -> Option<usize> {
    match bytes[at] {
        b'/' if bytes.get(at + 1) == Some(&b'/') => Some(line_end(bytes, at)),
        b'/' if bytes.get(at + 1) == Some(&b'*') => Some(comment_end(bytes, at)),
        b'"' => Some(string_end(bytes, at)),
        b'r' | b'b' | b'c' if starts_word(bytes, at) => raw_end(bytes, at),
        b'\'' => char_end(bytes, at),
        _ => None,
    }
}

/// Overwrites bytes with blanks, lines kept.
pub fn blank(bytes: &mut [u8]) {
    for byte in bytes {
        if *byte != b'\n' {
            *byte = b' ';
        }
    }
}

fn starts_word(bytes: &[u8], at: usize) -> bool {
    at == 0 || !is_word(bytes[at - 1])
}

/// Whether a byte can be part of an identifier.
pub fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

fn line_end(bytes: &[u8], at: usize) -> usize {
    bytes[at..]
        .iter()
        .position(|&byte| byte == b'\n')
        .map_or(bytes.len(), |end| at + end)
}

/// Comments nest.
fn comment_end(bytes: &[u8], start: usize) -> usize {
    let mut depth = 0_usize;
    let mut at = start;
    while at < bytes.len() {
        match &bytes[at..(at + 2).min(bytes.len())] {
            b"/*" => (depth, at) = (depth + 1, at + 2),
            b"*/" => {
                (depth, at) = (depth.saturating_sub(1), at + 2);
                if depth == 0 {
                    return at;
                }
            }
            _ => at += 1,
        }
    }
    bytes.len()
}

fn string_end(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// End of `r"..."`, `r#"..."#` and their forms with `b` and `c`.
fn raw_end(bytes: &[u8], start: usize) -> Option<usize> {
    let mut at = start;
    while matches!(bytes.get(at), Some(b'r' | b'b' | b'c')) && at < start + 2 {
        at += 1;
    }
    if bytes[at - 1] != b'r' {
        return (bytes.get(at) == Some(&b'"')).then(|| string_end(bytes, at));
    }
    let hashes = bytes[at..].iter().take_while(|&&byte| byte == b'#').count();
    if bytes.get(at + hashes) != Some(&b'"') {
        return None;
    }
    let mut close = vec![b'"'];
    close.resize(hashes + 1, b'#');
    let body = at + hashes + 1;
    let found = bytes[body..]
        .windows(close.len())
        .position(|window| window == close);
    Some(found.map_or(bytes.len(), |end| body + end + close.len()))
}

/// End of a character literal; `None` for a lifetime.
fn char_end(bytes: &[u8], start: usize) -> Option<usize> {
    if bytes.get(start + 1) == Some(&b'\\') {
        let close = bytes
            .get(start + 3..)?
            .iter()
            .position(|&byte| byte == b'\'')?;
        return Some(start + 3 + close + 1);
    }
    // One character of up to four bytes, then the quote.
    (2..=5)
        .map(|step| start + step)
        .find(|&at| bytes.get(at) == Some(&b'\''))
        .and_then(|at| {
            let inside = std::str::from_utf8(&bytes[start + 1..at]).ok()?;
            (inside.chars().count() == 1).then_some(at + 1)
        })
}

/// Line, from 1, of a byte offset.
pub fn line_of(text: &str, at: usize) -> usize {
    text.char_indices()
        .take_while(|(index, _)| *index < at)
        .filter(|(_, sign)| *sign == '\n')
        .count()
        + 1
}

/// Offsets where `word` stands alone in masked text.
pub fn words(masked: &str, word: &str) -> Vec<usize> {
    let bytes = masked.as_bytes();
    let alone = |at: &usize| {
        starts_word(bytes, *at)
            && bytes
                .get(at + word.len())
                .is_none_or(|&byte| !is_word(byte))
    };
    masked
        .match_indices(word)
        .map(|(at, _)| at)
        .filter(alone)
        .collect()
}

/// Offset behind the brace that closes the one at `open` in masked text.
pub fn block_end(masked: &str, open: usize) -> usize {
    let mut depth = 0_usize;
    for (index, byte) in masked.bytes().enumerate().skip(open) {
        match byte {
            b'{' => depth += 1,
            b'}' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return index + 1;
                }
            }
            _ => {}
        }
    }
    masked.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, want: &str) {
        assert_eq!(mask(text), want);
    }

    #[test]
    fn blanks_comments_even_nested_ones() {
        check("a // {\nb", "a     \nb");
        check("a /* { /* } */ { */ b", "a                   b");
        check("/* no end {", "           ");
    }

    #[test]
    fn blanks_strings_of_every_kind() {
        check("x(\"{\\\"}\");", "x(      );");
        check("r#\"a\"{\"#;", &format!("{};", " ".repeat(8)));
        check("br\"{\" b\"{\" c\"{\"", &" ".repeat(15));
        check("\"no end {", "         ");
    }

    #[test]
    fn distinguishes_characters_from_lifetimes() {
        check("'{' '\\'' '\\u{7b}' &'a str", "                  &'a str");
        check("fn f<'a>(x: &'a u8) {}", "fn f<'a>(x: &'a u8) {}");
    }

    #[test]
    fn leaves_names_that_start_like_literals() {
        check("bar(r, b, crate::c)", "bar(r, b, crate::c)");
        check("r#type", "r#type");
    }

    #[test]
    fn keeps_lines_where_they_were() {
        let text = "a\n\"x\ny\"\n/* \n */ b";
        assert_eq!(mask(text).matches('\n').count(), text.matches('\n').count());
    }

    #[test]
    fn finds_words_that_stand_alone() {
        assert_eq!(words("fn f() { defn(); } fn", "fn"), [0, 19]);
        assert_eq!(words("unsafe_code", "unsafe"), [0_usize; 0]);
    }

    #[test]
    fn finds_the_closing_brace() {
        assert_eq!(block_end("{ { } } x", 0), 7);
        assert_eq!(block_end("{ {", 0), 3);
    }

    #[test]
    fn survives_odd_ends() {
        for text in ["'", "'\\", "\"\\", "r#", "b", "/", "/*/", "'a"] {
            assert_eq!(mask(text).len(), text.len(), "{text}");
        }
    }
}
