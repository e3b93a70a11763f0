//! The files that are to be judged.
//!
//! Reads them and nothing else. One that cannot be read is told and does not
//! keep the others from being judged.

use std::{
    fs,
    io::Read,
    path::{Path, PathBuf},
};

/// How standard input is named in places.
const STDIN: &str = "stdin";
/// What is read in folders.
const EXTENSIONS: [&str; 3] = ["yaml", "yml", "json"];
/// The largest file that is read. The API server takes objects up to 3 MiB.
const MAX_SIZE: u64 = 64 * 1024 * 1024;

/// Why a folder without such files is an error: one that is misspelt or moved
/// must not pass for one without faults.
const NOTHING: &str = "there is no file .yaml, .yml or .json in this folder or below it";

/// A text with its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Source {
    pub(super) name: String,
    pub(super) text: String,
}

/// A file or folder that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name} cannot be read: {reason}")]
pub struct Unreadable {
    /// The name as it was given or found.
    pub name: String,
    /// Why.
    pub reason: String,
}

/// Reads all that `names` stand for: files, folders with all that is below
/// them, and `-` for standard input.
pub(super) fn read(names: &[PathBuf], stdin: &mut dyn Read) -> (Vec<Source>, Vec<Unreadable>) {
    let (mut sources, mut unreadable) = (Vec::new(), Vec::new());
    for name in names {
        if name == Path::new("-") {
            let input = Input {
                name: STDIN.to_owned(),
                may_be_empty: false,
            };
            take(input, stdin, &mut sources, &mut unreadable);
            continue;
        }
        let (mut found, before) = (Vec::new(), unreadable.len());
        find(name, true, &mut found, &mut unreadable);
        if found.is_empty() && unreadable.len() == before {
            unreadable.push(Unreadable {
                name: name.display().to_string(),
                reason: NOTHING.to_owned(),
            });
        }
        for path in found {
            let name = path.display().to_string();
            match fs::File::open(&path) {
                Ok(mut file) => {
                    let input = Input {
                        name,
                        may_be_empty: true,
                    };
                    take(input, &mut file, &mut sources, &mut unreadable);
                }
                Err(error) => unreadable.push(Unreadable {
                    name,
                    reason: error.to_string(),
                }),
            }
        }
    }
    (sources, unreadable)
}

/// Files at and below a path, in order. Links to folders are not followed, as
/// kubectl does not, so there is no end of them to fear.
fn find(path: &Path, given: bool, found: &mut Vec<PathBuf>, unreadable: &mut Vec<Unreadable>) {
    let wrong = |error: std::io::Error| Unreadable {
        name: path.display().to_string(),
        reason: error.to_string(),
    };
    let kind = if given {
        fs::metadata(path)
    } else {
        fs::symlink_metadata(path)
    };
    let kind = match kind {
        Ok(kind) => kind,
        Err(error) => return unreadable.push(wrong(error)),
    };
    if !kind.is_dir() {
        let extension = path.extension().and_then(|extension| extension.to_str());
        if given || extension.is_some_and(|extension| EXTENSIONS.contains(&extension)) {
            found.push(path.to_owned());
        }
        return;
    }
    let entries = fs::read_dir(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match entries {
        Ok(entries) => {
            let mut paths: Vec<PathBuf> = entries.iter().map(fs::DirEntry::path).collect();
            paths.sort();
            for path in paths {
                find(&path, false, found, unreadable);
            }
        }
        Err(error) => unreadable.push(wrong(error)),
    }
}

/// Where a text comes from.
struct Input {
    name: String,
    may_be_empty: bool,
}

fn take(
    input: Input,
    from: &mut dyn Read,
    sources: &mut Vec<Source>,
    unreadable: &mut Vec<Unreadable>,
) {
    let Input { name, may_be_empty } = input;
    let mut bytes = Vec::new();
    let reason = match from.take(MAX_SIZE + 1).read_to_end(&mut bytes) {
        Err(error) => error.to_string(),
        Ok(_) if bytes.len() as u64 > MAX_SIZE => format!("it has more than {MAX_SIZE} bytes"),
        Ok(_) => match String::from_utf8(bytes) {
            // What made it failed, or wrote elsewhere.
            Ok(text) if !may_be_empty && text.trim().is_empty() => "it is empty".to_owned(),
            Ok(text) => return sources.push(Source { name, text }),
            Err(error) => {
                let good = error.utf8_error().valid_up_to();
                format!("it is not UTF-8 text (byte {})", good + 1)
            }
        },
    };
    unreadable.push(Unreadable { name, reason });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_and_an_input_with_nothing_in_them_are_told_each() {
        let folder = std::env::temp_dir().join(format!("belay-empty-{}", std::process::id()));
        fs::create_dir_all(folder.join("deep")).unwrap();
        fs::write(folder.join("deep/README.md"), "# not read").unwrap();
        let (sources, unreadable) = read(&[folder.clone(), "-".into()], &mut "\n".as_bytes());
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(sources, []);
        let told: Vec<String> = unreadable.iter().map(ToString::to_string).collect();
        let expected = [
            format!("{} cannot be read: {NOTHING}", folder.display()),
            "stdin cannot be read: it is empty".to_owned(),
        ];
        assert_eq!(told, expected);
    }

    /// It is told by where it comes from and not by what it is called.
    #[test]
    fn an_empty_file_called_as_standard_input_is_shown_is_a_file() {
        let folder = std::env::temp_dir().join(format!("belay-stdin-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join(STDIN);
        fs::write(&path, "").unwrap();
        let input = Input {
            name: STDIN.to_owned(),
            may_be_empty: true,
        };
        let (mut sources, mut unreadable) = (Vec::new(), Vec::new());
        let mut file = fs::File::open(&path).unwrap();
        take(input, &mut file, &mut sources, &mut unreadable);
        let (read, faults) = read(std::slice::from_ref(&path), &mut "x".as_bytes());
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(unreadable, []);
        assert_eq!(sources.len(), 1);
        assert_eq!((read.len(), faults.len()), (1, 0));
    }

    #[test]
    fn folders_are_read_in_order_and_what_cannot_be_read_hides_nothing() {
        let folder = std::env::temp_dir().join(format!("belay-lint-{}", std::process::id()));
        fs::create_dir_all(folder.join("b/c")).unwrap();
        for (name, text) in [
            ("b/c/deep.json", "{}"),
            ("b/a.yml", "a: 1"),
            ("a.yaml", "b: 1"),
            ("README.md", "# not read"),
        ] {
            fs::write(folder.join(name), text).unwrap();
        }
        fs::write(folder.join("c.yaml"), b"a: \xff").unwrap();
        let names = [
            folder.clone(),
            "-".into(),
            folder.join("none"),
            folder.join("README.md"),
        ];
        let (sources, unreadable) = read(&names, &mut "c: 1".as_bytes());
        fs::remove_dir_all(&folder).unwrap();
        let base = format!("{}/", folder.display());
        let names: Vec<_> = sources
            .iter()
            .map(|source| source.name.strip_prefix(&base).unwrap_or(&source.name))
            .collect();
        assert_eq!(
            names,
            ["a.yaml", "b/a.yml", "b/c/deep.json", STDIN, "README.md"]
        );
        assert_eq!(sources[3].text, "c: 1");
        assert_eq!(unreadable.len(), 2);
        assert_eq!(
            unreadable[0].to_string(),
            format!("{base}c.yaml cannot be read: it is not UTF-8 text (byte 4)")
        );
        assert!(unreadable[1].name.ends_with("none"), "{unreadable:?}");
    }
}
