//! The few words of an iPXE script that our scripts use.

/// What a script wants done.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Script {
    /// Load these two and start the kernel with this line.
    Boot {
        kernel: String,
        ramdisk: String,
        line: KernelLine,
    },
    /// Leave: the next boot device is the disk.
    Exit,
    /// Wait and fetch a script again.
    Again { after_ms: u64, url: String },
}

/// The arguments that the agent reads from its kernel line.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct KernelLine {
    /// `ipa-api-url`.
    pub api_url: Option<String>,
    /// `ipa-inspection-callback-url`.
    pub inspection_url: Option<String>,
    /// `BOOTIF`.
    pub bootif: Option<String>,
}

/// Reads a script; none where it is not one, or not one that boots.
pub(crate) fn parse(text: &str) -> Option<Script> {
    let mut lines = text.lines();
    if lines.next() != Some("#!ipxe") {
        return None;
    }
    let (mut kernel, mut ramdisk, mut line, mut after_ms) = (None, None, KernelLine::default(), 0);
    for text in lines {
        let mut words = text.split_whitespace();
        match words.next() {
            Some("kernel") => {
                kernel = words.next().map(str::to_owned);
                line = kernel_line(words);
            }
            Some("initrd") => ramdisk = words.last().map(str::to_owned),
            Some("boot") => {
                return Some(Script::Boot {
                    kernel: kernel?,
                    ramdisk: ramdisk?,
                    line,
                });
            }
            Some("exit") => return Some(Script::Exit),
            Some("sleep") => after_ms = words.next()?.parse::<u64>().ok()?.checked_mul(1000)?,
            Some("chain") => {
                return Some(Script::Again {
                    after_ms,
                    url: words.last()?.to_owned(),
                });
            }
            _ => {}
        }
    }
    None
}

fn kernel_line<'a>(words: impl Iterator<Item = &'a str>) -> KernelLine {
    let mut line = KernelLine::default();
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
        let text = "#!ipxe\nkernel http://b/k initrd=r BOOTIF=01-52 ipa-api-url=http://a\n\
                    initrd --name r http://b/r\nboot\n";
        let line = KernelLine {
            api_url: Some("http://a".into()),
            inspection_url: None,
            bootif: Some("01-52".into()),
        };
        let want = Script::Boot {
            kernel: "http://b/k".into(),
            ramdisk: "http://b/r".into(),
            line,
        };
        assert_eq!(parse(text), Some(want));
    }

    #[test]
    fn reads_exit_and_chain() {
        assert_eq!(parse("#!ipxe\nexit 0\n"), Some(Script::Exit));
        let want = Script::Again {
            after_ms: 10_000,
            url: "http://b/s".into(),
        };
        assert_eq!(
            parse("#!ipxe\nsleep 10\nchain --replace http://b/s\n"),
            Some(want)
        );
    }

    #[test]
    fn refuses_what_is_no_script() {
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
