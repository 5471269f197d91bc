//! The ISO image of the agent (`boot.iso`): where its menus have areas for kernel arguments.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use trivet_config::BootSettings;
use trivet_model::BoxFault;
use trivet_rack::AgentIso;

use crate::check;

/// The line before the arguments in each menu, as `trivet-image iso` writes it. The size of the
/// area follows.
const MARK: &[u8] = b"# trivet-kernel-arguments ";

/// What comes between that line and the area, in the menus of isolinux and of GRUB.
const WORDS: [&[u8]; 2] = [b"  APPEND ", b"  linux /boot/kernel "];

/// The longest text before an area: the mark, a number and a word.
const HEAD_BYTES_MAX: usize = 64;

/// The largest area. Ours: the kernel for x86 reads 2048 bytes.
const AREA_BYTES_MAX: usize = 2048;

/// The most areas. Ours: an image has two menus.
const AREAS_MAX: usize = 4;

/// Bytes that are read at once. Ours.
const BLOCK_BYTES: usize = 1 << 20;

/// The image of these settings, if they name one. A box whose image cannot be used works without
/// it, and with a fault.
pub(crate) fn of(boot: &BootSettings) -> Result<Option<AgentIso>, BoxFault> {
    if let Some(fault) = misread_arguments(boot) {
        return Err(fault);
    }
    let image = boot.iso.as_deref().map(read).transpose();
    image.map_err(|why| BoxFault::AgentIsoUnusable { why })
}

/// That the kernel arguments of these settings cannot be in the menus of their image.
pub(crate) fn misread_arguments(boot: &BootSettings) -> Option<BoxFault> {
    boot.iso.as_ref()?;
    let character = trivet_bootfiles::misread_character(&boot.kernel_args)?;
    let why = format!(
        "boot.kernel_args has the character {character:?}, which a loader in the image would \
         misread"
    );
    Some(BoxFault::AgentIsoUnusable { why })
}

/// Finds the areas in the image.
fn read(path: &Path) -> Result<AgentIso, String> {
    let unreadable = |why: String| format!("{} cannot be read: {why}", path.display());
    if let Some(why) = check::agent_file_fault(path) {
        return Err(unreadable(why));
    }
    let areas = File::open(path).and_then(|mut file| areas(&mut file));
    let areas = areas.map_err(|error| unreadable(error.to_string()))?;
    if areas.is_empty() {
        return Err(format!(
            "{} has no area for kernel arguments; make the image with `trivet-image iso`",
            path.display()
        ));
    }
    Ok(AgentIso {
        file: path.to_owned(),
        areas,
    })
}

fn areas(file: &mut impl std::io::Read) -> std::io::Result<Vec<(u64, usize)>> {
    let mut found = Vec::new();
    let mut block: Vec<u8> = Vec::new();
    let mut at = 0;
    loop {
        // The end of the last block remains: an area's head may lie across the border.
        let before = block.len();
        let read = file
            .by_ref()
            .take(BLOCK_BYTES as u64)
            .read_to_end(&mut block)?;
        let is_last = read == 0;
        let usable = block
            .len()
            .saturating_sub(if is_last { 0 } else { HEAD_BYTES_MAX });
        for start in 0..usable {
            if let Some((head, length)) = head(&block[start..])
                && found.len() < AREAS_MAX
            {
                found.push((at + (start + head) as u64, length));
            }
        }
        if is_last && before == block.len() {
            return Ok(found);
        }
        block.drain(..usable);
        at += usable as u64;
    }
}

/// The length of the text before an area, and the length of the area, if one begins here.
fn head(bytes: &[u8]) -> Option<(usize, usize)> {
    let rest = bytes.strip_prefix(MARK)?;
    let line = rest
        .iter()
        .take(HEAD_BYTES_MAX)
        .position(|&byte| byte == b'\n')?;
    let length = core::str::from_utf8(&rest[..line]).ok()?.parse().ok()?;
    let rest = &rest[line + 1..];
    let word = WORDS.iter().find(|word| rest.starts_with(word))?;
    (length <= AREA_BYTES_MAX).then_some((MARK.len() + line + 1 + word.len(), length))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testbed::TestbedDirectory;

    #[test]
    fn an_image_that_cannot_be_used_is_a_fault_that_says_what_to_do() {
        let scratch = TestbedDirectory::new();
        let other = scratch.0.join("other.iso");
        std::fs::write(&other, "no menus").unwrap();
        let fault = |path: &Path| {
            let boot = BootSettings {
                iso: Some(path.to_owned()),
                ..BootSettings::default()
            };
            of(&boot).unwrap_err().to_string()
        };
        let lacks = fault(&other);
        assert!(lacks.contains("no area for kernel arguments"), "{lacks}");
        assert!(lacks.contains("`trivet-image iso`"), "{lacks}");
        let missing = fault(&scratch.0.join("none"));
        assert!(
            missing.contains("none cannot be read: No such"),
            "{missing}"
        );
        assert!(fault(&scratch.0).contains("it is not a file"));
        std::fs::write(&other, image(0)).unwrap();
        let boot = BootSettings {
            iso: Some(other),
            ..BootSettings::default()
        };
        assert_eq!(of(&boot).unwrap().unwrap().areas.len(), 2);
        assert_eq!(of(&BootSettings::default()), Ok(None));
    }

    fn image(before: usize) -> Vec<u8> {
        let mut bytes = vec![b'#'; before];
        bytes.extend_from_slice(b"\n# trivet-kernel-arguments 16\n  APPEND a=1             \n");
        bytes.extend_from_slice(&[0; 100]);
        bytes.extend_from_slice(b"# trivet-kernel-arguments 8\n  linux /boot/kernel b       \n");
        bytes
    }

    #[test]
    fn the_areas_of_both_menus_are_found_wherever_they_are() {
        for before in [
            0,
            5,
            BLOCK_BYTES - 70,
            BLOCK_BYTES - 20,
            BLOCK_BYTES,
            3 * BLOCK_BYTES,
        ] {
            let bytes = image(before);
            let found = areas(&mut bytes.as_slice()).unwrap();
            let texts: Vec<_> = found
                .iter()
                .map(|(at, length)| &bytes[*at as usize..*at as usize + length])
                .collect();
            let want: [&[u8]; 2] = [b"a=1             ", b"b       "];
            assert_eq!(texts, want, "{before}");
        }
    }

    #[test]
    fn other_texts_are_no_areas() {
        for text in [
            "# trivet-kernel-arguments x\n  APPEND ",
            "# trivet-kernel-arguments 9999\n  APPEND ",
            "# trivet-kernel-arguments 16\n  LABEL ",
            "# trivet-kernel-arguments 16",
            "",
        ] {
            assert_eq!(areas(&mut text.as_bytes()).unwrap(), [], "{text}");
        }
    }

    #[test]
    fn the_number_of_areas_is_limited() {
        let bytes = image(0).repeat(10);
        assert_eq!(areas(&mut bytes.as_slice()).unwrap().len(), AREAS_MAX);
    }
}
