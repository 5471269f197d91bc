//! Percent-encoding (RFC 3986, section 2.1).

/// The encoded text: all bytes except unreserved characters become `%` and two digits.
pub fn encode(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            let digit = |nibble: u8| char::from(b"0123456789ABCDEF"[usize::from(nibble)]);
            out.extend(['%', digit(byte >> 4), digit(byte & 15)]);
        }
    }
    out
}

/// The decoded text; none if a percent sign lacks its digits or the result is not UTF-8.
pub fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        rest = match (first, encoded_byte(tail)) {
            (b'%', None) => return None,
            (b'%', Some((byte, after))) => {
                bytes.push(byte);
                after
            }
            _ => {
                bytes.push(first);
                tail
            }
        };
    }
    String::from_utf8(bytes).ok()
}

/// The decoded text of a key or value in a query, where a plus sign is a space.
pub fn decode_query(text: &str) -> Option<String> {
    if text.contains('+') {
        return decode(&text.replace('+', " "));
    }
    decode(text)
}

/// The bytes with each percent sign decoded that two digits follow. Other percent signs stay.
pub fn decode_lenient(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        rest = match encoded_byte(tail) {
            Some((byte, after)) if first == b'%' => {
                bytes.push(byte);
                after
            }
            _ => {
                bytes.push(first);
                tail
            }
        };
    }
    bytes
}

/// The byte that two hexadecimal digits mean, and what follows them.
fn encoded_byte(text: &[u8]) -> Option<(u8, &[u8])> {
    let [high, low, after @ ..] = text else {
        return None;
    };
    let digit = |byte: &u8| char::from(*byte).to_digit(16);
    Some(((digit(high)? * 16 + digit(low)?) as u8, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoded_text_decodes_to_itself() {
        for text in ["", "a b+c", "52:54:00", "\u{e9}&=%", "ns~name", "%41"] {
            assert_eq!(decode(&encode(text)).as_deref(), Some(text));
            assert_eq!(decode_query(&encode(text)).as_deref(), Some(text));
            assert_eq!(decode_lenient(&encode(text)), text.as_bytes());
        }
    }

    #[test]
    fn only_unreserved_characters_stay() {
        assert_eq!(encode("aZ09-._~"), "aZ09-._~");
        assert_eq!(encode("\u{e9} %/&=+"), "%C3%A9%20%25%2F%26%3D%2B");
    }

    #[test]
    fn decodes_once_and_both_cases_of_digits() {
        assert_eq!(decode("%257e").as_deref(), Some("%7e"));
        assert_eq!(decode("%7E%7e").as_deref(), Some("~~"));
    }

    #[test]
    fn refuses_what_is_not_an_encoding() {
        for text in ["%", "%4", "%zz", "%ff", "%+1", "%-1", "a%4"] {
            assert_eq!(decode(text), None, "{text}");
        }
    }

    #[test]
    fn a_plus_sign_is_a_space_in_queries_only() {
        assert_eq!(decode_query("a+b%2B").as_deref(), Some("a b+"));
        assert_eq!(decode("a+b").as_deref(), Some("a+b"));
    }

    #[test]
    fn the_lenient_decoder_keeps_percent_signs_without_digits() {
        assert_eq!(decode_lenient("%zz%4%41%"), b"%zz%4A%");
        assert_eq!(decode_lenient("%ff"), [0xff]);
    }
}
