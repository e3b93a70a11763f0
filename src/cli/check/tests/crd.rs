//! What is said of the CRD, and of the rest where it is not there.

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

#[test]
fn a_crd_of_another_version_is_told_by_what_differs() {
    let schema = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
    let mut facts = healthy();
    let mut stored = stored_crd();
    let fields = stored.pointer_mut(schema).unwrap().as_object_mut().unwrap();
    fields.remove("bakeTime");
    fields["revisionHistoryLimit"]["maximum"] = json!(20);
    fields["paused"]["description"] = json!("other words for the same");
    fields["retry"]["properties"]["maxRetries"]["minimum"] = json!(1);
    facts.crd = Ok(Some(stored));
    let (level, said) = only_fault(&facts);
    assert_eq!(level, Level::Fail);
    assert!(
        said.contains("another version")
            && said.contains(
                "the schemas differ at spec.bakeTime, spec.revisionHistoryLimit.maximum ->"
            ),
        "{said}"
    );
    let mut stored = stored_crd();
    stored["spec"]["versions"][0]["name"] = json!("v1");
    facts.crd = Ok(Some(stored));
    assert!(only_fault(&facts).1.contains("it does not serve v1alpha1"));
    let mut stored = stored_crd();
    stored["status"] = json!({});
    facts.crd = Ok(Some(stored));
    assert!(only_fault(&facts).1.contains("not established"));
}
