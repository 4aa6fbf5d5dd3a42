//! What a profile of Mozilla's programs holds, so that they do nothing of their own during a measurement.

/// `user.js` of a profile: these preferences, and what both programs have in common.
pub fn user_js(own: &[(&str, &str)]) -> String {
    let line = |(name, value): &(&str, &str)| format!("user_pref(\"{name}\", {value});\n");
    COMMON.iter().chain(own).map(line).collect()
}

/// No first run, no network, no telemetry, no updates, nothing that moves or blinks.
const COMMON: &[(&str, &str)] = &[
    ("app.normandy.enabled", "false"),
    ("app.update.enabled", "false"),
    ("datareporting.healthreport.uploadEnabled", "false"),
    ("datareporting.policy.dataSubmissionEnabled", "false"),
    ("dom.push.connection.enabled", "false"),
    ("extensions.getAddons.cache.enabled", "false"),
    ("extensions.update.enabled", "false"),
    ("general.smoothScroll", "false"),
    ("gfx.webrender.software", "true"),
    ("layers.acceleration.disabled", "true"),
    ("network.captive-portal-service.enabled", "false"),
    ("network.connectivity-service.enabled", "false"),
    ("network.dns.disablePrefetch", "true"),
    ("network.prefetch-next", "false"),
    ("security.sandbox.warn_unprivileged_namespaces", "false"),
    ("services.settings.server", "\"data:,\""),
    ("termsofuse.bypassNotification", "true"),
    ("toolkit.cosmeticAnimations.enabled", "false"),
    ("toolkit.telemetry.enabled", "false"),
    ("toolkit.telemetry.reportingpolicy.firstRun", "false"),
    ("toolkit.telemetry.unified", "false"),
    ("ui.caretBlinkTime", "0"),
    ("ui.prefersReducedMotion", "1"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preference_is_a_line() {
        let text = user_js(&[("a.b", "\"c\"")]);
        assert_eq!(text.lines().count(), COMMON.len() + 1);
        assert!(text.ends_with("user_pref(\"a.b\", \"c\");\n"));
    }
}
