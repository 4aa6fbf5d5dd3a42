//! The project's documents lead where they say, and their tables are whole.

use std::path::{Path, PathBuf};

fn repository() -> PathBuf {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    crates.canonicalize().expect("the repository")
}

/// The Markdown files below a directory, without what is built or hidden.
fn documents(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in directory.read_dir().expect("a directory").flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = entry.path();
        match entry.file_type().expect("a type") {
            kind if kind.is_dir() && name != "target" && !name.starts_with('.') => {
                found.extend(documents(&path));
            }
            kind if kind.is_file() && name.ends_with(".md") => found.push(path),
            _ => {}
        }
    }
    found
}

/// Where the links of a document lead that name no scheme.
fn links(text: &str) -> Vec<&str> {
    let ends = text.split("](").skip(1);
    let links = ends.filter_map(|rest| Some(rest.split_once(')')?.0));
    links.filter(|link| !link.contains(':')).collect()
}

/// The anchors of a document's headings, as GitHub makes them.
fn anchors(text: &str) -> Vec<String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let anchor = |heading: &str| {
        let words = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = words
            .chars()
            .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.collect::<String>().replace(' ', "-")
    };
    headings.map(anchor).collect()
}

#[test]
fn every_link_of_the_documents_leads_to_a_file_and_a_heading() {
    let documents = documents(&repository());
    assert!(documents.iter().any(|path| path.ends_with("README.md")));
    let mut checked = 0;
    for document in &documents {
        let text = std::fs::read_to_string(document).expect("readable");
        for link in links(&text) {
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = match path {
                "" => document.clone(),
                path => document.parent().expect("a directory").join(path),
            };
            let told = format!("{}: {link}", document.display());
            assert!(target.exists(), "{told}: there is no such file");
            if !anchor.is_empty() {
                let text = std::fs::read_to_string(&target).expect("readable");
                let anchors = anchors(&text);
                assert!(
                    anchors.iter().any(|a| a == anchor),
                    "{told}: no such heading among {anchors:?}"
                );
            }
            checked += 1;
        }
    }
    assert!(checked > 20, "{checked} links");
}

/// As happens where a text is filled anew that holds a table.
#[test]
fn no_table_of_the_documents_is_run_together() {
    for document in documents(&repository()) {
        let text = std::fs::read_to_string(&document).expect("readable");
        let found = text.lines().find(|line| line.contains("| |---"));
        assert_eq!(found, None, "{}", document.display());
    }
}
