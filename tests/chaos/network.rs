//! The paths between the nodes and the database.

use tenure_testground::Mode;

use crate::fleet::line::now;
use crate::fleet::{Ground, Way};
use crate::report::Report;
use crate::stage::Stage;

/// Connections are reset and new ones refused, for the leader alone.
pub(crate) fn leader_partitioned(way: Way) -> Report {
    let mut stage = Stage::set(Ground::shared(way));
    let first = stage.first;
    stage.proxies[0].set(Mode::Reset);
    let cut = now();
    stage.steps_down(&first, cut);
    let next = stage.takes_over(&first);
    stage.proxies[0].set(Mode::Pass);
    let healed = now();
    stage.goes_on(&next);
    stage.calms(healed);
    stage.finish(2)
}

/// Nothing moves on the leader's path, and its connections stay open.
pub(crate) fn leader_black_holed(way: Way) -> Report {
    let mut stage = Stage::set(Ground::shared(way));
    let first = stage.first;
    stage.proxies[0].set(Mode::BlackHole);
    let cut = now();
    stage.steps_down(&first, cut);
    let next = stage.takes_over(&first);
    stage.proxies[0].set(Mode::Pass);
    let healed = now();
    stage.goes_on(&next);
    stage.calms(healed);
    stage.finish(2)
}
