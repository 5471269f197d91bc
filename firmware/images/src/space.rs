//! Selects the images to evict when there is no space for another.

/// An image that is in the cache.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct StoredImage {
    /// Its key in the cache.
    pub key: String,
    /// Name for display.
    pub name: String,
    /// Its size on the disk.
    pub bytes: u64,
    /// When it was last requested.
    pub used_at_ms: u64,
    /// No reader uses it, no fill writes it, and it is not pinned.
    pub evictable: bool,
}

/// The space limits of the cache.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct CacheSpace {
    /// Maximum size of the cache.
    pub quota_bytes: Option<u64>,
    /// Space that stays free for the store.
    pub reserve_bytes: u64,
    /// Free space on the disk.
    pub free_bytes: u64,
}

/// Most names in an error message.
const NAMES_MAX: usize = 8;

/// Selects images to evict so that `bytes` more fit: the least recently requested ones, and no
/// more than needed. If that is not enough, none is evicted and the error says what to do.
pub fn select_evictions(
    held: &[StoredImage],
    need: u64,
    space: CacheSpace,
) -> Result<Vec<String>, String> {
    let sum = |all: u64, one: &StoredImage| all.saturating_add(one.bytes);
    let used = held.iter().fold(0, sum);
    let over_quota = space
        .quota_bytes
        .map_or(0, |quota| used.saturating_add(need).saturating_sub(quota));
    let over_disk = need
        .saturating_add(space.reserve_bytes)
        .saturating_sub(space.free_bytes);
    let mut missing = over_quota.max(over_disk);
    let mut oldest: Vec<&StoredImage> = held.iter().filter(|one| one.evictable).collect();
    oldest.sort_by_key(|one| (one.used_at_ms, one.key.as_str()));
    let mut gone = Vec::new();
    for one in oldest {
        if missing == 0 {
            break;
        }
        missing = missing.saturating_sub(one.bytes);
        gone.push(one.key.clone());
    }
    if missing == 0 {
        return Ok(gone);
    }
    let stays = |one: &&StoredImage| !one.evictable && one.bytes > 0;
    let mut stay: Vec<&StoredImage> = held.iter().filter(stays).collect();
    stay.sort_by_key(|one| core::cmp::Reverse(one.bytes));
    let names = stay.iter().take(NAMES_MAX).map(|one| one.name.as_str());
    let names: Vec<&str> = names.collect();
    let bound = if over_quota > over_disk {
        "images.quota_gib"
    } else {
        "the disk, less images.reserve_mib,"
    };
    let rest = if names.is_empty() {
        "make it larger".to_owned()
    } else {
        format!(
            "make it larger, or unpin or remove one of: {}",
            names.join(", ")
        )
    };
    Err(format!("{bound} is too small by {missing} bytes; {rest}"))
}

/// The error for a full disk although there was space before: other programs write to it too.
pub fn disk_full_message(held: &[StoredImage]) -> String {
    let mut largest: Vec<&StoredImage> = held.iter().filter(|one| one.bytes > 0).collect();
    largest.sort_by_key(|one| core::cmp::Reverse(one.bytes));
    let names: Vec<&str> = largest
        .iter()
        .take(NAMES_MAX)
        .map(|one| one.name.as_str())
        .collect();
    let images = if names.is_empty() {
        String::new()
    } else {
        format!(", or remove one of the images {}", names.join(", "))
    };
    format!("the disk with the cache is full; remove files there{images}, and try again")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(key: &str, bytes: u64, used_at_ms: u64, may_go: bool) -> StoredImage {
        StoredImage {
            key: key.to_owned(),
            name: format!("{key}.raw"),
            bytes,
            used_at_ms,
            evictable: may_go,
        }
    }

    fn space(quota_bytes: Option<u64>, free_bytes: u64) -> CacheSpace {
        CacheSpace {
            quota_bytes,
            reserve_bytes: 10,
            free_bytes,
        }
    }

    #[test]
    fn impossible_sizes_do_not_fit() {
        let space = CacheSpace {
            quota_bytes: Some(100),
            reserve_bytes: 10,
            free_bytes: 1000,
        };
        let held = StoredImage {
            key: "a".into(),
            name: "a".into(),
            bytes: u64::MAX,
            used_at_ms: 0,
            evictable: false,
        };
        assert!(select_evictions(&[], u64::MAX, space).is_err());
        assert!(select_evictions(&[held.clone(), held], 1, space).is_err());
    }

    #[test]
    fn nothing_is_evicted_while_there_is_space() {
        let all = [held("a", 50, 1, true)];
        assert_eq!(
            select_evictions(&all, 40, space(Some(90), 50)),
            Ok(Vec::new())
        );
        assert_eq!(select_evictions(&[], 40, space(None, 50)), Ok(Vec::new()));
    }

    #[test]
    fn the_least_recently_used_is_evicted_first_and_no_more_than_needed() {
        let all = [
            held("young", 50, 9, true),
            held("old", 50, 1, true),
            held("middle", 50, 5, true),
        ];
        let gone = select_evictions(&all, 60, space(Some(150), 1000)).unwrap();
        assert_eq!(gone, ["old", "middle"]);
        let gone = select_evictions(&all, 50, space(Some(150), 1000)).unwrap();
        assert_eq!(gone, ["old"]);
    }

    #[test]
    fn images_in_use_or_pinned_stay_and_are_named() {
        let all = [held("used", 50, 1, false), held("free", 20, 9, true)];
        let gone = select_evictions(&all, 20, space(Some(80), 1000)).unwrap();
        assert_eq!(gone, ["free"]);
        let message = select_evictions(&all, 60, space(Some(80), 1000)).unwrap_err();
        assert!(
            message.contains("images.quota_gib") && message.contains("30 bytes"),
            "{message}"
        );
        assert!(
            message.contains("used.raw") && !message.contains("free.raw"),
            "{message}"
        );
    }

    #[test]
    fn the_reserve_of_the_store_is_never_used() {
        let all = [held("a", 30, 1, true)];
        assert_eq!(
            select_evictions(&all, 40, space(None, 49)),
            Ok(vec!["a".to_owned()])
        );
        let message = select_evictions(&all, 70, space(None, 49)).unwrap_err();
        assert!(
            message.contains("reserve_mib") && message.contains("larger"),
            "{message}"
        );
    }

    #[test]
    fn a_full_disk_is_reported_with_the_largest_images() {
        let message = disk_full_message(&[
            held("a", 5, 1, true),
            held("b", 9, 1, false),
            held("c", 0, 1, true),
        ]);
        assert!(message.contains("images b.raw, a.raw, and"), "{message}");
        assert!(
            !disk_full_message(&[]).contains("images"),
            "{}",
            disk_full_message(&[])
        );
    }
}
