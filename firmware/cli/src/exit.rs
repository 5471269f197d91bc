//! Exit codes, as scripts may rely on them.

use core::fmt;

/// How a command ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub enum Exit {
    /// The command succeeded.
    Fine = 0,
    /// The node ended in a failure state, or does not meet the requirements.
    Failed = 1,
    /// The arguments are wrong.
    Usage = 2,
    /// The box cannot be reached, or cannot answer.
    Unreachable = 3,
    /// There is no such node, port or image.
    NotFound = 4,
    /// The box refused the request.
    Refused = 5,
    /// The credentials are missing or wrong.
    Unauthorised = 6,
    /// The timeout expired.
    TimedOut = 7,
    /// Stopped from the keyboard, with the number that shells use.
    Interrupted = 130,
}

impl Exit {
    /// The number for the system.
    pub const fn code(self) -> u8 {
        self as u8
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}", self.code())
    }
}

/// What `trivet help exit-codes` prints.
pub const EXIT_CODES: &str = "\
Exit codes of trivet node, port, image, lan, bmc, events and status:

  0    done; with waiting: the node has reached the state
  1    the node ended in a failure state; its BMC did not answer or failed;
       `node validate`: it cannot be deployed; `node why`: something is wrong;
       `status`: something needs attention;
       standard output cannot be written
  2    the arguments are wrong; no request was sent
  3    the box cannot be reached, does not answer in time or answers 5xx
  4    there is no such node, port or image
  5    the box refused (400, 403, 409 and other 4xx);
       `image upload`: the image exists with other bytes
  6    not authorised (401): user, password or token are missing or wrong
  7    the node did not reach the state in time (--timeout); the box continues
  130  stopped with Ctrl-C

trivet demo, serve, check and config: 0 done, 1 failed, 2 the arguments or the
settings are wrong.
trivet store: 0 done; `check`, `export`: nothing is damaged; 1 failed, or something
is damaged; 2 the arguments or the settings are wrong.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_explained() {
        let all = [
            Exit::Fine,
            Exit::Failed,
            Exit::Usage,
            Exit::Unreachable,
            Exit::NotFound,
            Exit::Refused,
            Exit::Unauthorised,
            Exit::TimedOut,
            Exit::Interrupted,
        ];
        for exit in all {
            let start = format!("  {exit} ");
            assert!(
                EXIT_CODES.lines().any(|line| line.starts_with(&start)),
                "{exit:?} is not explained"
            );
        }
    }

    /// Code and text, of a list of lines that begin with a code or continue a text.
    fn texts(lines: &str) -> Vec<(String, String)> {
        let mut texts: Vec<(String, String)> = Vec::new();
        for line in lines.lines() {
            let (first, rest) = line.trim().split_once(' ').unwrap_or((line.trim(), ""));
            match texts.last_mut() {
                Some((_, text)) if first.parse::<u8>().is_err() => {
                    text.push(' ');
                    text.push_str(line.trim());
                }
                _ => texts.push((first.to_owned(), rest.trim().to_owned())),
            }
        }
        texts
    }

    #[test]
    fn the_manual_has_the_same_texts() {
        let manual = include_str!("../../guide/src/commands.md");
        let (_, section) = manual.split_once("## Exit codes").unwrap();
        let rows = section.lines().filter_map(|line| {
            let row = line.strip_prefix("| ")?.strip_suffix(" |")?;
            let (code, text) = row.split_once(" | ")?;
            code.parse::<u8>().ok()?;
            Some((code.to_owned(), text.to_owned()))
        });
        let list = EXIT_CODES.split("\n\n").nth(1).unwrap();
        assert_eq!(rows.collect::<Vec<_>>(), texts(list));
    }
}
