//! Runs each test of a list once under every eviction policy.
//!
//! Invariant: a new policy is tested without a change here; a failure names the policy.

use store::policy::Eviction;

/// Runs `test` under each policy, in a thread with the policy's name, which a panic shows.
pub(crate) fn policy(test: impl Fn(Eviction) + Sync) {
    for (name, eviction) in Eviction::ALL {
        let ended = std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().name(name.to_owned());
            thread.spawn_scoped(scope, || test(eviction)).expect("a thread").join()
        });
        assert!(ended.is_ok(), "under {name}");
    }
}

/// Defines a test for each name. The test runs the function of this name under each policy.
macro_rules! policies {
    ($($test:ident,)+) => {
        mod under_each_policy {
            $(
                #[test]
                fn $test() {
                    crate::each::policy(super::$test);
                }
            )+
        }
    };
}
pub(crate) use policies;
