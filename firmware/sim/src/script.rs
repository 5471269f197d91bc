//! Interprets the iPXE commands that our scripts use.

/// Most lines executed, jumps included: a script may loop.
const LINES_MAX: usize = 64;

/// The result of a script.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum IpxeScriptOutcome {
    /// Load kernel and ramdisk and start the kernel with these arguments.
    Boot {
        kernel: String,
        ramdisk: String,
        line: AgentKernelArguments,
        /// What to do if that fails.
        on_failure: Option<IpxeScriptRetry>,
    },
    /// Boot this image over the network.
    Image {
        url: String,
        /// What to do if that fails.
        on_failure: Option<IpxeScriptRetry>,
    },
    /// Exit: the next boot device is the disk.
    Exit,
    /// Wait and fetch a script again.
    Retry(IpxeScriptRetry),
}

/// Wait and fetch a script again.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct IpxeScriptRetry {
    pub(crate) after_ms: u64,
    pub(crate) url: String,
}

/// The arguments that the agent reads from its kernel line.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct AgentKernelArguments {
    /// `ipa-api-url`.
    pub api_url: Option<String>,
    /// `ipa-inspection-callback-url`.
    pub inspection_url: Option<String>,
    /// `BOOTIF`.
    pub bootif: Option<String>,
}

/// Interprets a script as UEFI firmware does; `None` if it is not a script, or does not boot.
pub(crate) fn parse(text: &str) -> Option<IpxeScriptOutcome> {
    let lines: Vec<_> = text.lines().collect();
    if lines.first() != Some(&"#!ipxe") {
        return None;
    }
    follow(&lines, 1)
}

/// Continues from a line, as if every command succeeded.
fn follow(lines: &[&str], start: usize) -> Option<IpxeScriptOutcome> {
    let (mut kernel, mut ramdisk, mut line, mut after_ms) =
        (None, None, AgentKernelArguments::default(), 0);
    let mut at = start;
    for _ in 0..LINES_MAX {
        let (command, rest) = lines.get(at)?.split_once("||").unwrap_or((lines[at], ""));
        let otherwise = || match follow(lines, label(lines, rest)?)? {
            IpxeScriptOutcome::Retry(again) => Some(again),
            _ => None,
        };
        at += 1;
        let mut words = command.split_whitespace();
        match words.next() {
            Some("kernel") => {
                kernel = words.next().map(str::to_owned);
                line = kernel_line(words);
            }
            Some("initrd") => ramdisk = words.last().map(str::to_owned),
            Some("boot") => {
                return Some(IpxeScriptOutcome::Boot {
                    kernel: kernel?,
                    ramdisk: ramdisk?,
                    line,
                    on_failure: otherwise(),
                });
            }
            Some("sanboot") => {
                let last = words.last().filter(|word| word.contains("://"));
                return Some(last.map_or(IpxeScriptOutcome::Exit, |url| {
                    IpxeScriptOutcome::Image {
                        url: url.to_owned(),
                        on_failure: otherwise(),
                    }
                }));
            }
            Some("iseq") if command.contains("${platform} efi ") => at = label(lines, command)?,
            Some("goto") => at = label(lines, command)?,
            Some("exit") => return Some(IpxeScriptOutcome::Exit),
            Some("sleep") => after_ms = words.next()?.parse::<u64>().ok()?.checked_mul(1000)?,
            Some("chain") => {
                let url = words.last()?.to_owned();
                return Some(IpxeScriptOutcome::Retry(IpxeScriptRetry { after_ms, url }));
            }
            _ => {}
        }
    }
    None
}

/// The line of the label that a command jumps to.
fn label(lines: &[&str], command: &str) -> Option<usize> {
    let (_, name) = command.split_once("goto ")?;
    let name = name.split_whitespace().next()?;
    lines
        .iter()
        .position(|line| line.strip_prefix(':') == Some(name))
}

fn kernel_line<'a>(words: impl Iterator<Item = &'a str>) -> AgentKernelArguments {
    let mut line = AgentKernelArguments::default();
    for (key, value) in words.filter_map(|word| word.split_once('=')) {
        let place = match key {
            "ipa-api-url" => &mut line.api_url,
            "ipa-inspection-callback-url" => &mut line.inspection_url,
            "BOOTIF" => &mut line.bootif,
            _ => continue,
        };
        *place = Some(value.to_owned());
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_boots_an_agent() {
        let text = "#!ipxe\nkernel http://b/k initrd=r BOOTIF=01-52 ipa-api-url=http://a \
                    || goto no\ninitrd --name r http://b/r || goto no\nboot || goto no\n\
                    :no\nsleep 3\nchain http://b/s || goto no\n";
        let line = AgentKernelArguments {
            api_url: Some("http://a".into()),
            inspection_url: None,
            bootif: Some("01-52".into()),
        };
        let want = IpxeScriptOutcome::Boot {
            kernel: "http://b/k".into(),
            ramdisk: "http://b/r".into(),
            line,
            on_failure: Some(IpxeScriptRetry {
                after_ms: 3000,
                url: "http://b/s".into(),
            }),
        };
        assert_eq!(parse(text), Some(want));
    }

    #[test]
    fn reads_exit_and_chain() {
        assert_eq!(parse("#!ipxe\nexit 0\n"), Some(IpxeScriptOutcome::Exit));
        let disk = "#!ipxe\niseq ${platform} efi && goto efi ||\nboot\n:efi\nexit 1\n";
        assert_eq!(parse(disk), Some(IpxeScriptOutcome::Exit));
        let want = IpxeScriptOutcome::Retry(IpxeScriptRetry {
            after_ms: 10_000,
            url: "http://b/s".into(),
        });
        assert_eq!(
            parse("#!ipxe\nsleep 10\nchain --replace http://b/s\n"),
            Some(want)
        );
    }

    #[test]
    fn distinguishes_an_image_from_a_disk() {
        let disk = "#!ipxe\nsanboot --no-describe --drive 0x80 ||\nexit 0\n";
        assert_eq!(parse(disk), Some(IpxeScriptOutcome::Exit));
        let want = IpxeScriptOutcome::Image {
            url: "http://b/i".into(),
            on_failure: None,
        };
        let text = "#!ipxe\nsanboot --no-describe http://b/i || goto nowhere\n";
        assert_eq!(parse(text), Some(want));
    }

    #[test]
    fn a_script_that_loops_ends() {
        assert_eq!(parse("#!ipxe\n:a\ngoto a\n"), None);
    }

    #[test]
    fn refuses_a_text_that_is_not_a_script() {
        for text in [
            "",
            "boot",
            "#!ipxe\n",
            "#!ipxe\nboot\n",
            "#!ipxe\nkernel x\nboot",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
