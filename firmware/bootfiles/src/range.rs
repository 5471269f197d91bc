//! The byte range of a file that a client requests (RFC 9110, section 14).

/// No byte of the file is in the range.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct UnsatisfiableRange;

/// First byte and the byte after the last. Any other form than one byte range is ignored, as
/// section 14.2 allows: a request for several ranges gets the whole file.
pub(crate) fn range(field: &str, size: u64) -> Result<Option<(u64, u64)>, UnsatisfiableRange> {
    let Some((unit, set)) = field.split_once('=') else {
        return Ok(None);
    };
    let Some((first, last)) = set.split_once('-') else {
        return Ok(None);
    };
    if !unit.trim().eq_ignore_ascii_case("bytes") {
        return Ok(None);
    }
    let number = |text: &str| {
        let digits = text.trim();
        let plain = digits.bytes().all(|byte| byte.is_ascii_digit());
        plain.then(|| digits.parse::<u64>().ok()).flatten()
    };
    let (from, to) = match (number(first), number(last)) {
        (Some(from), Some(last)) if from <= last => (from, last.saturating_add(1).min(size)),
        (Some(from), None) if last.trim().is_empty() => (from, size),
        (None, Some(suffix)) if first.trim().is_empty() => (size - suffix.min(size), size),
        _ => return Ok(None),
    };
    if from < to {
        Ok(Some((from, to)))
    } else {
        Err(UnsatisfiableRange)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(field: &str, want: Result<Option<(u64, u64)>, UnsatisfiableRange>) {
        assert_eq!(range(field, 100), want, "{field}");
    }

    #[test]
    fn accepts_every_form_of_one_range() {
        check("bytes=0-9", Ok(Some((0, 10))));
        check("Bytes= 0-9 ", Ok(Some((0, 10))));
        check("bytes=90-", Ok(Some((90, 100))));
        check("bytes=-10", Ok(Some((90, 100))));
        check("bytes=-1000", Ok(Some((0, 100))));
        check("bytes=50-1000", Ok(Some((50, 100))));
        check("bytes=99-18446744073709551615", Ok(Some((99, 100))));
    }

    #[test]
    fn ignores_what_is_not_one_byte_range() {
        for field in [
            "bytes=9-0",
            "bytes=a-b",
            "bytes=0-1,5-6",
            "lines=0-1",
            "bytes=",
            "bytes=-",
            "bytes",
            "bytes=+1-2",
            "bytes=99999999999999999999-",
        ] {
            check(field, Ok(None));
        }
    }

    #[test]
    fn refuses_a_range_beyond_the_end() {
        check("bytes=100-", Err(UnsatisfiableRange));
        check("bytes=-0", Err(UnsatisfiableRange));
        assert_eq!(range("bytes=0-", 0), Err(UnsatisfiableRange));
    }
}
