//! What is said of the rest where the CRD is not there.

use super::*;

/// No right brings plans of which there is no kind.
#[test]
fn without_the_crd_the_workloads_are_left_to_it() {
    let mut facts = healthy();
    facts.crd = Ok(None);
    facts.owners = Err(Silence::Failed("404 page not found".to_owned()));
    let text = text(&judge(&facts));
    let told = "WARN  workloads    there are no plans whose workloads could be looked at\n                   cause: the CRD does not exist\n                   cure: see crd\n";
    assert!(text.contains(told), "{text}");
    facts.crd = Ok(Some(stored_crd()));
    facts.owners = Err(Silence::Late);
    let text = self::text(&judge(&facts));
    assert!(!text.contains("somebody"), "{text}");
}
