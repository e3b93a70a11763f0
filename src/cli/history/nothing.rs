//! What is told of a plan without a record of any release.
//!
//! Pure. That there is none may mean that nothing was released, and may mean that the
//! records are gone with the status; nobody is to take the one for the other.

use serde::Serialize;

use crate::{
    api::StoredPlan,
    cli::{CliError, Streams, clean, orders::order, status::Caller},
};

/// Why no release is known.
#[derive(Debug, Serialize)]
pub(super) struct Untold {
    /// In one sentence, with what is kept.
    note: String,
    /// What goes on.
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
}

/// Why no release of a plan is known; none if there was none, or they are.
pub(super) fn untold(plan: &StoredPlan, caller: &Caller) -> Option<Untold> {
    let mut status = plan.status.iter();
    if status.any(|status| status.release.is_some() || !status.history.is_empty()) {
        return None;
    }
    let (note, hint) = order::untold(plan, caller)?;
    Some(Untold { note, hint })
}

/// Says that there is nothing to show, and why.
pub(super) fn write(
    streams: &mut Streams<'_>,
    name: &str,
    untold: Option<&Untold>,
) -> Result<(), CliError> {
    let Some(untold) = untold else {
        writeln!(streams.err, "{} has not released anything yet", clean(name))?;
        return Ok(());
    };
    writeln!(streams.err, "{}", clean(&untold.note))?;
    if let Some(hint) = &untold.hint {
        writeln!(streams.err, "hint: {}", clean(hint))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use serde_json::{Value, json};

    use super::*;
    use crate::cli::testing::{conditions, printed, with};

    fn told(status: Value) -> String {
        let plan = with(|plan| plan["status"] = status);
        let untold = untold(&plan, &Caller::default());
        printed(None, |streams| {
            write(streams, "shop", untold.as_ref()).unwrap();
        })
    }

    #[test]
    fn records_that_are_lost_are_not_told_as_releases_that_never_were() {
        let lost = |message: &str| {
            told(json!({"phase": "Pending", "conditions":
                conditions("False", "StatusLost", message)}))
        };
        expect![[r#"
            the status of shop is gone, and with it the records of its releases; kept are: shop-aaaa (release 1), shop-bbbb (release 2)
            hint: to go back to one: belay undo shop --to shop-aaaa -n s
        "#]].assert_eq(&lost("the status of this plan is gone. Or name the one to go back to, such as shop-aaaa: kubectl annotate relplan shop -n s belay.dev/undo=shop-aaaa --overwrite ; kept: shop-aaaa (release 1), shop-bbbb (release 2); meanwhile, x"));
        expect![[r#"
            the status of shop is gone, and with it the records of its releases
            hint: name one with --to, once belay status shop -n s lists them
        "#]]
        .assert_eq(&lost(
            "the status is gone, and is told once the contents are known",
        ));
        expect![[r#"
            the operator has not looked at shop yet, so that no release of it is known
        "#]]
        .assert_eq(&told(Value::Null));
        expect![[r#"
            shop has not released anything yet
        "#]]
        .assert_eq(&told(json!({"phase": "Stable", "conditions":
            conditions("True", "BaselineTaken", "")})));
        assert!(untold(&with(|_| {}), &Caller::default()).is_none());
    }
}
