//! The files of users and tokens: their lines, and when to read them again.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use argon2::PasswordHash;
use subtle::ConstantTimeEq as _;
use tracing::error;
use trivet_model::UnixMs;
use trivet_model::caller::printable;

use super::Role;

/// Longest file of users or tokens.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Most lines of a file that are used.
const LINES_MAX: usize = 4096;

/// A file that was changed this recently may change again with the same modification
/// time.
const SETTLED_MS: u64 = 2_000;

/// One user in a file of `user:hash` or `user:hash:role` lines.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct UserFileEntry {
    pub(crate) name: String,
    pub(crate) hash: String,
    /// None: the role is unknown, and the user cannot log in.
    pub(crate) role: Option<Role>,
}

/// The users in a file.
pub(crate) fn users(text: &str) -> Vec<UserFileEntry> {
    let user = |line: &str| {
        let mut fields = line.splitn(3, ':');
        Some(UserFileEntry {
            name: fields.next()?.to_owned(),
            hash: fields.next()?.to_owned(),
            role: fields
                .next()
                .map_or(Some(Role::Admin), |role| role.parse().ok()),
        })
    };
    lines(text).filter_map(user).collect()
}

/// One token in a file of `name:role:sha256` lines.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct TokenFileEntry {
    pub(crate) name: String,
    pub(crate) role: Role,
    digest: [u8; 32],
}

/// The tokens in a file; invalid lines are left out.
pub(crate) fn tokens(text: &str) -> Vec<TokenFileEntry> {
    lines(text).filter_map(token).collect()
}

fn token(line: &str) -> Option<TokenFileEntry> {
    let mut fields = line.split(':');
    let (name, role, hex) = (fields.next()?, fields.next()?, fields.next()?);
    if name.is_empty() || fields.next().is_some() {
        return None;
    }
    Some(TokenFileEntry {
        name: name.to_owned(),
        role: role.parse().ok()?,
        digest: digest(hex)?,
    })
}

fn digest(hex: &str) -> Option<[u8; 32]> {
    let mut digest = [0; 32];
    if hex.len() != 64 || !hex.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    for (byte, pair) in digest.iter_mut().zip(hex.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(digest)
}

/// The token with this digest. Always compares all of them, so that the time reveals
/// nothing.
pub(crate) fn find<'a>(
    tokens: &'a [TokenFileEntry],
    digest: &[u8; 32],
) -> Option<&'a TokenFileEntry> {
    let mut found = None;
    for token in tokens {
        if bool::from(token.digest.ct_eq(digest)) {
            found = found.or(Some(token));
        }
    }
    found
}

fn lines(text: &str) -> impl Iterator<Item = &str> + Clone {
    let lines = text.lines().map(str::trim);
    lines
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .take(LINES_MAX)
}

/// Whether a hash is of a kind that can be checked.
fn is_hash(hash: &str) -> bool {
    let bcrypt = ["$2a$", "$2b$", "$2x$", "$2y$"]
        .iter()
        .any(|kind| hash.starts_with(kind));
    bcrypt || (hash.starts_with("$argon2") && PasswordHash::new(hash).is_ok())
}

/// Why users in this file cannot log in, as far as the file shows.
pub(crate) fn unusable_users(file: &Path) -> Option<String> {
    let shown = file.display();
    let text = match read(file) {
        Ok(text) => text,
        Err(error) => {
            let sentence = format!("{shown} cannot be read, none of its users can log in: {error}");
            return Some(sentence);
        }
    };
    let users = users(&text);
    if users.is_empty() {
        let sentence = format!("{shown} names no user; add user:hash lines");
        return Some(sentence);
    }
    let why = |user: &UserFileEntry| {
        let name = printable(&user.name, 64);
        if user.role.is_none() {
            Some(format!("{name} (the role is none of {})", Role::NAMES))
        } else {
            let bad = !is_hash(&user.hash);
            bad.then(|| format!("{name} (the hash is neither argon2 nor bcrypt)"))
        }
    };
    let bad: Vec<String> = users.iter().filter_map(why).collect();
    let names = bad.join(", ");
    (!bad.is_empty()).then(|| format!("{shown}: these cannot log in: {names}"))
}

/// Why tokens in this file cannot be used, as far as the file shows.
pub(crate) fn unusable_tokens(file: &Path) -> Option<String> {
    let shown = file.display();
    let text = match read(file) {
        Ok(text) => text,
        Err(error) => {
            let sentence = format!("{shown} cannot be read, none of its tokens is valid: {error}");
            return Some(sentence);
        }
    };
    // Name line numbers only: an invalid line may contain a token by mistake.
    let numbered = text.lines().enumerate();
    let bad: Vec<String> = numbered
        .filter(|(_, line)| lines(line).next().is_some() && token(line.trim()).is_none())
        .map(|(index, _)| (index + 1).to_string())
        .take(20)
        .collect();
    if !bad.is_empty() {
        let numbers = bad.join(", ");
        return Some(format!(
            "{shown}: these lines are not name:role:sha256, with a role of {}: {numbers}",
            Role::NAMES
        ));
    }
    tokens(&text)
        .is_empty()
        .then(|| format!("{shown} names no token; `trivet token new` creates one"))
}

fn read(path: &Path) -> std::io::Result<String> {
    let about = fs::metadata(path)?;
    // Reading a pipe would wait for its writer.
    if !about.is_file() {
        return Err(std::io::Error::other("it is not a file"));
    }
    if about.len() > FILE_BYTES_MAX {
        let sentence = format!("it is longer than {FILE_BYTES_MAX} bytes");
        return Err(std::io::Error::other(sentence));
    }
    let mut text = String::new();
    fs::File::open(path)?
        .take(FILE_BYTES_MAX)
        .read_to_string(&mut text)?;
    Ok(text)
}

/// A file that is read again when it has changed.
pub(crate) struct WatchedCredentialFile<T> {
    key: &'static str,
    parse: fn(&str) -> Vec<T>,
    loaded: Mutex<LoadedCredentialFile<T>>,
}

struct LoadedCredentialFile<T> {
    path: PathBuf,
    stamp: Option<FileStamp>,
    lines: Arc<[T]>,
    error: Option<String>,
}

/// The attributes that change when a file does.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct FileStamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl FileStamp {
    fn of(path: &Path) -> Option<Self> {
        let about = fs::metadata(path).ok()?;
        Some(Self {
            device: about.dev(),
            inode: about.ino(),
            size: about.size(),
            modified: (about.mtime(), about.mtime_nsec()),
            changed: (about.ctime(), about.ctime_nsec()),
        })
    }

    /// Old enough that a later change cannot have the same attributes.
    fn is_settled(self, now: UnixMs) -> bool {
        let newest = self.modified.0.max(self.changed.0);
        let ms = u64::try_from(newest).unwrap_or(0).saturating_mul(1000);
        // The second starts at `ms`, and ends a second later.
        ms.saturating_add(1000 + SETTLED_MS) < now.0
    }
}

impl<T> WatchedCredentialFile<T> {
    pub(crate) fn new(key: &'static str, path: PathBuf, parse: fn(&str) -> Vec<T>) -> Self {
        Self {
            key,
            parse,
            loaded: Mutex::new(LoadedCredentialFile {
                path,
                stamp: None,
                lines: Arc::from(Vec::new()),
                error: None,
            }),
        }
    }

    /// Which file it is.
    pub(crate) fn path(&self) -> PathBuf {
        self.loaded().path.clone()
    }

    /// Sets another file, which is read at the next use. An `unusable` file is
    /// rejected: the former file stays in force, and the result says why.
    pub(crate) fn set_path(
        &self,
        path: &Path,
        unusable: fn(&Path) -> Option<String>,
    ) -> Option<String> {
        let former = self.path();
        if former == path {
            return None;
        }
        // Read without the lock: meanwhile callers are checked with the former file.
        if let Some(why) = unusable(path) {
            let (key, former) = (self.key, former.display());
            return Some(format!(
                "{key}: {former} stays in force, the file that is named now cannot be used: {why}; \
                 correct it and send SIGHUP again"
            ));
        }
        let mut loaded = self.loaded();
        path.clone_into(&mut loaded.path);
        loaded.stamp = None;
        None
    }

    fn loaded(&self) -> MutexGuard<'_, LoadedCredentialFile<T>> {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the file even if it looks unchanged.
    pub(crate) fn reload(&self, now: UnixMs) {
        self.loaded().stamp = None;
        self.current(now);
    }

    /// The present content of the file. A file that cannot be read has no entries.
    pub(crate) fn current(&self, now: UnixMs) -> Arc<[T]> {
        let mut loaded = self.loaded();
        let stamp = FileStamp::of(&loaded.path);
        if stamp.is_some() && stamp == loaded.stamp {
            return Arc::clone(&loaded.lines);
        }
        let (lines, error) = match read(&loaded.path) {
            Ok(text) => self.usable(&text, &loaded.lines),
            Err(error) => (
                Arc::from(Vec::new()),
                Some(format!("cannot be read: {error}")),
            ),
        };
        if let Some(error) = &error
            && loaded.error.as_ref() != Some(error)
        {
            let (key, file) = (self.key, loaded.path.display());
            error!(%file, "{key}: {file} {error}");
        }
        loaded.stamp = stamp.filter(|stamp| stamp.is_settled(now));
        loaded.error = error;
        loaded.lines = lines;
        Arc::clone(&loaded.lines)
    }

    /// The entries of a text. An empty file removes all entries. Where a file has lines and none
    /// of them is valid, as after a mistake in an editor, the former entries stay in force.
    fn usable(&self, text: &str, former: &Arc<[T]>) -> (Arc<[T]>, Option<String>) {
        let found = (self.parse)(text);
        if found.is_empty() && !former.is_empty() && lines(text).next().is_some() {
            let why = "has no valid line; the entries that were read before stay in force until \
                       the file is corrected, or until a restart";
            return (Arc::clone(former), Some(why.to_owned()));
        }
        (Arc::from(found), None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testbed::TestbedDirectory;

    #[test]
    fn users_have_a_role_or_are_admins() {
        let text = "# people\n\nann:$2y$05$x\n bob:$2y$05$y:reader \neve:h:king\nnobody\n";
        let found = users(text);
        let roles: Vec<_> = found.iter().map(|user| (&*user.name, user.role)).collect();
        assert_eq!(
            roles,
            [
                ("ann", Some(Role::Admin)),
                ("bob", Some(Role::Reader)),
                ("eve", None)
            ]
        );
        assert_eq!(found[1].hash, "$2y$05$y");
    }

    #[test]
    fn tokens_are_found_by_their_digest_alone() {
        let text = format!(
            "ci:operator:{}\nlook:reader:{}\nhalf:reader:ab\nx:king:{}\n:admin:{}\ny:admin:{}:z\n",
            "ab".repeat(32),
            "0F".repeat(32),
            "cd".repeat(32),
            "ce".repeat(32),
            "cf".repeat(32)
        );
        let tokens = tokens(&text);
        assert_eq!(tokens.len(), 2, "{tokens:?}");
        assert_eq!(find(&tokens, &[0xab; 32]).map(|one| &*one.name), Some("ci"));
        assert_eq!(
            find(&tokens, &[0x0f; 32]).map(|one| one.role),
            Some(Role::Reader)
        );
        assert_eq!(find(&tokens, &[0xcd; 32]), None);
        assert_eq!(digest(&"+f".repeat(32)), None, "a sign is no digit");
    }

    #[test]
    fn hashes_are_of_two_kinds() {
        let argon2 = "$argon2id$v=19$m=16,t=2,p=1$c29tZXNhbHQ$mXnGfbX0Uv1EvrTpfWqcDw";
        for hash in ["$2b$05$x", "$2y$05$x", argon2] {
            assert!(is_hash(hash), "{hash}");
        }
        for hash in ["", "plain", "$argon2id$broken", "{SHA}x"] {
            assert!(!is_hash(hash), "{hash}");
        }
    }

    #[test]
    fn users_who_cannot_log_in_are_named_at_the_start() {
        let scratch = TestbedDirectory::new();
        let why = |text: &str| unusable_users(&scratch.file("users", text.as_bytes()));
        assert!(why("").is_some_and(|why| why.contains("names no user")));
        let message = why("ann:plain\nbob:$2y$05$abcdefghijklmnopqrstuv\nkim:$2y$05$x:king\n");
        let message = message.unwrap();
        assert!(message.contains("ann (the hash") && message.contains("kim (the role"));
        assert!(!message.contains("bob"), "{message}");
        assert_eq!(why("bob:$2y$05$abcdefghijklmnopqrstuv:reader\n"), None);
        let absent = unusable_users(&scratch.0.join("absent")).unwrap();
        assert!(absent.contains("cannot be read"), "{absent}");
        let directory = unusable_users(&scratch.0).unwrap();
        assert!(directory.contains("not a file"), "{directory}");
    }

    #[test]
    fn invalid_token_lines_are_numbered_and_not_shown() {
        let scratch = TestbedDirectory::new();
        let why = |text: &str| unusable_tokens(&scratch.file("tokens", text.as_bytes()));
        let good = format!("ci:operator:{}\n", "ab".repeat(32));
        assert_eq!(why(&good), None);
        assert!(why("# none\n").is_some_and(|why| why.contains("trivet token new")));
        let message = why(&format!("{good}\nci:operator:secret\n")).unwrap();
        assert!(message.ends_with(": 3"), "{message}");
        assert!(!message.contains("secret"), "{message}");
    }

    #[test]
    fn a_file_is_kept_until_it_changes() {
        let scratch = TestbedDirectory::new();
        let path = scratch.file(
            "tokens",
            format!("a:admin:{}\n", "ab".repeat(32)).as_bytes(),
        );
        let watched = WatchedCredentialFile::new("api.tokens", path.clone(), tokens);
        // Far in the future, so that the file counts as settled.
        let now = UnixMs(u64::MAX);
        let first = watched.current(now);
        assert_eq!(first.len(), 1);
        assert!(Arc::ptr_eq(&first, &watched.current(now)), "not read again");
        fs::write(&path, "").unwrap();
        assert_eq!(watched.current(now).len(), 0, "out at once");
        fs::remove_file(&path).unwrap();
        assert_eq!(watched.current(now).len(), 0);
    }

    #[test]
    fn a_file_without_a_valid_line_keeps_the_former_entries_and_says_so() {
        let scratch = TestbedDirectory::new();
        let good = format!("a:admin:{}\n", "ab".repeat(32));
        let path = scratch.file("tokens", good.as_bytes());
        let watched = WatchedCredentialFile::new("api.tokens", path.clone(), tokens);
        let first = watched.current(UnixMs(0));
        assert_eq!(first.len(), 1);
        fs::write(&path, "a:admin:half\n").unwrap();
        let logged = crate::log::captured(|| {
            watched.reload(UnixMs(0));
            assert_eq!(watched.current(UnixMs(0)), first);
        });
        assert_eq!(logged.len(), 1, "{logged:?}");
        assert!(logged[0].contains("stay in force"), "{logged:?}");
        // An empty file says that no token is valid.
        fs::write(&path, "# none\n").unwrap();
        watched.reload(UnixMs(0));
        assert!(watched.current(UnixMs(0)).is_empty());
    }

    /// Two changes of equal length within one tick of the file system's clock.
    #[test]
    fn a_file_that_has_just_changed_is_read_each_time() {
        let scratch = TestbedDirectory::new();
        let path = scratch.file("users", b"ann:x\n");
        let watched = WatchedCredentialFile::new("api.users", path, users);
        let first = watched.current(UnixMs(0));
        assert!(!Arc::ptr_eq(&first, &watched.current(UnixMs(0))));
    }

    #[test]
    fn a_file_without_end_is_not_read() {
        let scratch = TestbedDirectory::new();
        let path = scratch.file("users", &vec![b'x'; FILE_BYTES_MAX as usize + 1]);
        assert!(unusable_users(&path).is_some_and(|why| why.contains("longer than")));
    }
}
