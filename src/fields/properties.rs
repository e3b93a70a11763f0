//! Laws that hold for all field sets, values and templates.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::{
    FieldSet, Found, Path, PathElement, canon, carry, complete, diff, emptied, get, graft, project,
};

fn field() -> impl Strategy<Value = PathElement> {
    prop::sample::select(vec!["a", "b", "labels", "containers", "env", "c.d/e"])
        .prop_map(PathElement::field)
}

fn element() -> impl Strategy<Value = PathElement> {
    prop_oneof![
        4 => field(),
        2 => "[xyz]".prop_map(|name| PathElement::key([("name", json!(name))])),
        1 => (1..3_u16, prop::sample::select(vec!["TCP", "UDP"])).prop_map(|(port, protocol)| {
            PathElement::key([("containerPort", json!(port)), ("protocol", json!(protocol))])
        }),
        1 => prop::sample::select(vec![json!("x"), json!(1), json!(true), json!(null)]).prop_map(|value| PathElement::Value(value.into())),
        1 => (0..3_usize).prop_map(PathElement::Index),
    ]
}

fn set() -> impl Strategy<Value = FieldSet> {
    let path = prop::collection::vec(element(), 1..5).prop_map(Path::from_iter);
    prop::collection::vec(path, 0..12).prop_map(FieldSet::from_iter)
}

/// A field path through objects and keyed lists only.
fn object_path() -> impl Strategy<Value = Path> {
    let step = (field(), prop::option::of("[xyz]")).prop_map(|(field, key)| match key {
        Some(name) => vec![field, PathElement::key([("name", json!(name))])],
        None => vec![field],
    });
    (prop::collection::vec(step, 0..3), field())
        .prop_map(|(steps, last)| steps.into_iter().flatten().chain([last]).collect())
}

fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        "[a-c]{0,2}".prop_map(Value::from),
        any::<u8>().prop_map(Value::from),
        any::<bool>().prop_map(Value::from),
        Just(json!("1000m")),
        Just(json!("1")),
    ]
}

fn value() -> impl Strategy<Value = Value> {
    scalar().prop_recursive(4, 40, 4, |inner| {
        let fields = prop::collection::btree_map(prop::sample::select(vec!["a", "b", "labels", "containers", "env", "c.d/e"]), inner.clone(), 0..4);
        let item = (prop::option::of("[xyz]"), prop::collection::btree_map("[ab]", inner.clone(), 0..3)).prop_map(|(name, fields)| {
            let mut item: Map<String, Value> = fields.into_iter().collect();
            item.extend(name.map(|name| ("name".to_owned(), json!(name))));
            Value::Object(item)
        });
        prop_oneof![
            3 => fields.prop_map(|fields| fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()),
            2 => prop::collection::vec(item, 0..4).prop_map(Value::Array),
            1 => prop::collection::vec(inner, 0..3).prop_map(Value::Array),
        ]
    })
}

/// Something like a pod template, with few names so that two of them meet.
fn template() -> impl Strategy<Value = Value> {
    let quantity = prop::sample::select(vec![
        json!("1"),
        json!(1),
        json!("1000m"),
        json!("0.5"),
        json!("500m"),
        json!("1Gi"),
        json!("x"),
    ]);
    let env = prop::collection::vec(("[AB]", "[12]"), 0..3).prop_map(|env| {
        env.into_iter()
            .map(|(name, value)| json!({"name": name, "value": value}))
            .collect::<Vec<_>>()
    });
    let container = (
        "[xy]",
        "[12]",
        env,
        prop::option::of(quantity.clone()),
        prop::option::of(Just(Value::Null)),
    )
        .prop_map(|(name, image, env, cpu, args)| {
            let mut container = json!({"name": name, "image": image, "env": env});
            if let Some(cpu) = cpu {
                container["resources"] = json!({"limits": {"cpu": cpu}});
            }
            if let Some(args) = args {
                container["args"] = args;
            }
            container
        });
    let volume = ("[vw]", quantity)
        .prop_map(|(name, size)| json!({"name": name, "emptyDir": {"sizeLimit": size}}));
    (
        prop::collection::vec(container, 0..3),
        prop::collection::vec(volume, 0..3),
    )
        .prop_map(
            |(containers, volumes)| json!({"spec": {"containers": containers, "volumes": volumes}}),
        )
}

/// The same JSON with every map in reverse order of insertion, as text.
fn reversed(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let mut entries: Vec<_> = fields
                .iter()
                .map(|(name, value)| format!("{}: {}", json!(name), reversed(value)))
                .collect();
            entries.reverse();
            format!("{{ {} }}", entries.join(" , "))
        }
        Value::Array(items) => format!(
            "[{}]",
            items.iter().map(reversed).collect::<Vec<_>>().join(", ")
        ),
        scalar => scalar.to_string(),
    }
}

/// Whether `part` holds nothing that `whole` does not, items in their order.
fn is_part(part: &Value, whole: &Value) -> bool {
    match (part, whole) {
        (Value::Object(part), Value::Object(whole)) => part
            .iter()
            .all(|(name, value)| whole.get(name).is_some_and(|whole| is_part(value, whole))),
        (Value::Array(part), Value::Array(whole)) => {
            let mut rest = whole.iter();
            part.iter()
                .all(|item| rest.any(|whole| is_part(item, whole)))
        }
        _ => part == whole,
    }
}

fn has_index(set: &FieldSet) -> bool {
    let index = |element: &PathElement| matches!(element, PathElement::Index(_));
    set.paths()
        .iter()
        .any(|path| path.elements().iter().any(index))
}

proptest! {
    #[test]
    fn field_sets_round_trip(set in set()) {
        prop_assert_eq!(FieldSet::parse(&set.to_value()).unwrap(), set.clone());
        let again: FieldSet = set.paths().into_iter().collect();
        prop_assert_eq!(again, set);
    }

    #[test]
    fn paths_round_trip(elements in prop::collection::vec(element(), 0..6)) {
        let path: Path = elements.into_iter().collect();
        let stored = serde_json::to_string(&path).unwrap();
        prop_assert_eq!(serde_json::from_str::<Path>(&stored).unwrap(), path);
    }

    #[test]
    fn union_is_a_join(a in set(), b in set(), c in set()) {
        prop_assert_eq!(a.union(&b), b.union(&a));
        prop_assert_eq!(a.union(&b).union(&c), a.union(&b.union(&c)));
        prop_assert_eq!(a.union(&a), a.clone());
        prop_assert!(a.is_subset(&a.union(&b)));
        prop_assert_eq!(a.is_subset(&b), a.union(&b) == b);
    }

    #[test]
    fn difference_and_intersection_split_a_set(a in set(), b in set()) {
        let (only, both) = (a.difference(&b), a.intersection(&b));
        prop_assert_eq!(only.union(&both), a.clone());
        prop_assert!(only.intersection(&b).is_empty());
        prop_assert_eq!(only.union(&b), a.union(&b));
        prop_assert_eq!(a.difference(&b).is_empty(), a.is_subset(&b));
        prop_assert_eq!(both, b.intersection(&a));
        for path in a.paths() {
            prop_assert!(only.contains(&path) != b.contains(&path));
        }
    }

    #[test]
    fn nest_and_descend_are_inverse(set in set()) {
        let names = ["spec", "template"];
        prop_assert_eq!(set.clone().nest(&names).descend(&names), set);
    }

    #[test]
    fn a_projection_is_a_part_and_projects_to_itself(value in value(), set in set()) {
        let fields = FieldSet::parse(&json!({"f:a": set.to_value()})).unwrap();
        let value = json!({"a": value});
        let once = project(&value, &fields);
        prop_assert!(is_part(&once, &value), "{once}");
        if !has_index(&set) {
            prop_assert_eq!(project(&once, &fields), once);
        }
    }

    #[test]
    fn a_larger_set_keeps_no_fewer_fields(value in value(), a in set(), b in set()) {
        // The API server names items of one list in one way only.
        if has_index(&a) || has_index(&b) {
            return Ok(());
        }
        let (part, whole) = (project(&value, &a), project(&value, &a.union(&b)));
        for path in a.leaves() {
            if get(&part, &path).is_some() {
                prop_assert!(get(&whole, &path).is_some(), "{path} of {part} is not in {whole}");
            }
        }
    }

    #[test]
    fn what_is_grafted_is_found(value in value(), path in object_path(), new in scalar()) {
        let mut grafted = value.clone();
        match graft(&mut grafted, &path, new.clone()) {
            Ok(()) => prop_assert_eq!(get(&grafted, &path), Some(&new)),
            // Only something that is neither null nor a parent can be in the way.
            Err(_) => prop_assert_eq!(get(&value, &path), None),
        }
    }

    #[test]
    fn what_is_grafted_into_nothing_is_found(path in object_path(), new in value()) {
        let mut grafted = json!({});
        graft(&mut grafted, &path, new.clone()).unwrap();
        prop_assert_eq!(get(&grafted, &path), Some(&new));
        let only: FieldSet = [path].into_iter().collect();
        prop_assert!(is_part(&project(&grafted, &only), &grafted));
    }

    #[test]
    fn dropping_everything_gives_back_what_the_live_object_had(live in value(), paths in prop::collection::vec(object_path(), 0..6)) {
        let live = json!({"a": live});
        let owned: FieldSet = paths.into_iter().collect();
        let found = Found::record(&live, &owned);
        if let Ok(carried) = carry(&json!({}), &owned, &found) {
            prop_assert!(carried.unknown.is_empty());
            prop_assert_eq!(carried.restored.len() + carried.removed.len(), owned.leaves().len());
            // What was absent has no place among the items that were there.
            let told = |found: &Found| {
                let (there, mut absent): (Vec<_>, Vec<_>) =
                    found.iter().cloned().partition(|found| found.value.is_some());
                absent.sort_by_key(|found| found.path.clone());
                (there, absent)
            };
            prop_assert_eq!(told(&Found::record(&carried.body, &owned)), told(&found));
        }
    }

    /// What is kept of a partial template completes a projection as the whole of
    /// it would, and says nothing that the projection says.
    #[test]
    fn what_is_kept_of_a_partial_template_is_enough(partial in value(), merged in value(), paths in prop::collection::vec(object_path(), 0..6)) {
        let (partial, merged) = (json!({"a": partial}), json!({"a": merged}));
        let owned: FieldSet = paths.into_iter().collect();
        let mut whole = project(&merged, &owned);
        if complete(&mut whole, &partial, &owned).is_ok() {
            let kept = emptied(&partial, &merged, &owned).unwrap();
            let mut enough = project(&merged, &owned);
            if let Some(kept) = &kept {
                complete(&mut enough, kept, &owned).unwrap();
                for path in owned.leaves() {
                    let said = get(&project(&merged, &owned), &path).is_some();
                    prop_assert!(!said || get(kept, &path).is_none());
                }
            }
            prop_assert_eq!(enough, whole);
        }
    }

    #[test]
    fn the_digest_does_not_see_map_order(template in template()) {
        let other: Value = serde_json::from_str(&reversed(&template)).unwrap();
        prop_assert_eq!(canon::digest(&template), canon::digest(&other));
    }

    #[test]
    fn digest_equality_and_difference_agree(a in template(), b in template()) {
        let equal = canon::equal(&a, &b);
        prop_assert_eq!(canon::digest(&a) == canon::digest(&b), equal);
        prop_assert_eq!(diff(&a, &b).is_empty(), equal);
        prop_assert!(canon::equal(&canon::canonical(&a), &a));
        prop_assert!(diff(&a, &a).is_empty());
    }
}
