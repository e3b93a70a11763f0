//! Links and paths lead somewhere.

use std::{fs, path::Path};

use super::{DOCUMENTS, read};

/// The anchor of a heading, as repositories are shown on the web.
fn anchor(heading: &str) -> String {
    heading
        .trim_start_matches('#')
        .trim()
        .to_lowercase()
        .chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

#[test]
fn links_between_documents_lead_somewhere() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut links = 0;
    for document in DOCUMENTS {
        let text = read(document);
        for link in text.split("](").skip(1) {
            let link = link.split(')').next().unwrap();
            // What others publish is not ours to hold.
            if link.starts_with("https://") {
                continue;
            }
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let path = match file {
                "" => root.join(document),
                file => root.join(document).parent().unwrap().join(file),
            };
            assert!(path.exists(), "{document}: {link}");
            if !heading.is_empty() {
                let target = fs::read_to_string(&path).unwrap();
                let found = target
                    .lines()
                    .any(|line| line.starts_with('#') && anchor(line) == heading);
                assert!(found, "{document}: {link}");
            }
            links += 1;
        }
    }
    assert!(links > 5, "{links} links were found");
}

/// What contributors are told to open is there.
#[test]
fn files_that_are_named_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let roots = [
        "src/", "tests/", "testenv/", "deploy/", "crds/", "certs/", "docs/",
    ];
    for document in DOCUMENTS {
        let text = read(document);
        for code in text.split('`').skip(1).step_by(2) {
            let is_path = roots.iter().any(|root| code.starts_with(root));
            if is_path && !code.contains(['*', ' ']) {
                assert!(root.join(code).exists(), "{document} names {code}");
            }
        }
    }
}

/// A page that nobody is sent to is not read, and one that is not in the list is
/// held to nothing.
#[test]
fn every_page_is_in_the_list_and_linked_from_the_readme() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let readme = read("README.md");
    let mut pages = 0;
    for entry in fs::read_dir(root.join("docs")).unwrap() {
        let page = format!("docs/{}", entry.unwrap().file_name().to_str().unwrap());
        assert!(DOCUMENTS.contains(&page.as_str()), "{page}");
        assert!(readme.contains(&format!("]({page}")), "{page}");
        pages += 1;
    }
    assert!(pages > 3, "{pages} pages were found");
}
