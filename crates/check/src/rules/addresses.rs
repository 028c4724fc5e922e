pub fn check(_: &crate::Context<'_>, _: &mut Vec<crate::Finding>) {}
