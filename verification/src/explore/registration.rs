//! Registrations (P1 to P15): the core's [`Table`], with a driver, wraps, work on the device, decided releases and a capture
//! around it.
//!
//! A step is what the core does under one hold of the table's lock, or one call of the driver, which has the pin driver lock
//! around it. Addresses are cells; every range of them is tried, by everybody.
//!
//! Fair: the device, each call's return, the end of the capture (weakly); each release's turn at the driver lock (strongly).

use tenure::registration::state::{Conflict, ScopeId, Status, Table};

use super::search::{Broken, FREE, Fair, Label, Machine, NONE, Promise, Steps, must};

/// A planted mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// A failed register leaves its entry.
    FailedRegisterStays,
    /// A failed unregister forgets the range.
    FailedUnregisterForgets,
    /// An error path forgets the count of its wrap.
    CountKept,
    /// A register that was of no use and cannot be undone leaves the table.
    UnmadeForgotten,
    /// A release is made as of now, not as of its decision.
    EpochIgnored,
    /// The epoch of the last count is not retired.
    ReleaseLost,
    /// A release does not wait for the work.
    ReleaseAtOnce,
    /// A pending registration that is too short is shared.
    ShortShared,
    /// Driver calls are made without the lock.
    CallsUnlocked,
    /// Other scopes' ranges are shared.
    ScopeShared,
}

/// The machine, and how large it is.
#[derive(Debug)]
pub struct Registrations {
    /// Addresses.
    pub cells: u8,
    /// Wraps alive at once.
    pub wraps: usize,
    /// Releases that are decided and not made.
    pub releases: usize,
    /// What is done wrong.
    pub wrong: Option<Wrong>,
}

/// The identity of a registration that nobody could use.
const UNUSED: u32 = 0;

/// The table and the world.
#[derive(Clone, Debug)]
pub struct State {
    table: Table<u32>,
    /// What the driver has registered: base, length, identity.
    driver: Vec<(u8, u8, u32)>,
    calls: Vec<Call>,
    wraps: Vec<Wrap>,
    releases: Vec<Release>,
    /// Registrations that the device is at work on.
    busy: Vec<u32>,
    capture: Capture,
    pins: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Capture {
    Before,
    During,
    After,
}

#[derive(Clone, Copy, Debug)]
struct Wrap {
    base: u8,
    start: u8,
    cells: u8,
    scoped: bool,
    pin: u32,
}

#[derive(Clone, Copy, Debug)]
struct Release {
    base: u8,
    epoch: u64,
    pin: u32,
}

#[derive(Clone, Copy, Debug)]
enum Call {
    Register { start: u8, cells: u8, scoped: bool },
    Unregister { release: Release, is_decided: bool },
}

impl Call {
    fn base(self) -> u8 {
        match self {
            Self::Register { start, .. } => start,
            Self::Unregister { release, .. } => release.base,
        }
    }
}

const DEVICE: Fair = 0;
const RETURNS: Fair = 8;
const CAPTURE_ENDS: Fair = 9;
const RELEASES: Fair = 32;

fn scope(scoped: bool) -> Option<ScopeId> {
    scoped.then_some(ScopeId::MIN)
}

impl Registrations {
    fn is(&self, wrong: Wrong) -> bool {
        self.wrong == Some(wrong)
    }

    fn ranges(&self) -> impl Iterator<Item = (u8, u8, bool)> + use<> {
        let cells = self.cells;
        let ranges = (0..cells).flat_map(move |start| (1..=cells - start).map(move |long| (start, long)));
        ranges.flat_map(|(start, long)| [(start, long, false), (start, long, true)])
    }

    fn may_call(&self, state: &State) -> bool {
        state.calls.is_empty() || self.is(Wrong::CallsUnlocked) && state.calls.len() < 2
    }

    fn wrap(&self, state: &State, range: (u8, u8, bool), steps: &mut Steps<State>) {
        let (start, cells, scoped) = range;
        let label = |name| Label(name, [start, cells]);
        match self.conflict(state, range) {
            Conflict::Inside(base) => steps.add(state, label("share"), FREE, |state| {
                let scope = state.table.entry(base).and_then(|entry| entry.manner.scope);
                let pin = *state.table.share(base, 1, scope).map_err(|_| NOT_SHARED)?;
                state.wraps.push(Wrap { base: cell(base), start, cells, scoped, pin });
                Ok(())
            }),
            Conflict::Free if self.may_call(state) => steps.add(state, label("register"), FREE, |state| {
                state.table.begin(start.into(), cells.into(), scope(scoped));
                state.calls.push(Call::Register { start, cells, scoped });
                Ok(())
            }),
            // One that needs the room waits for the work, and releases by the entry's own epoch.
            Conflict::Pending(base) => {
                let Some((epoch, pin)) = state.table.entry(base).and_then(|entry| Some((entry.epoch, entry.payload?)))
                else {
                    return;
                };
                self.release(state, Release { base: cell(base), epoch, pin }, None, steps);
            }
            _ => {}
        }
    }

    fn conflict(&self, state: &State, (start, cells, scoped): (u8, u8, bool)) -> Conflict {
        match state.table.conflict(start.into(), cells.into(), scope(scoped)) {
            Conflict::Pending(base) if self.is(Wrong::ShortShared) => Conflict::Inside(base),
            Conflict::Scoped if self.is(Wrong::ScopeShared) => {
                state.table.conflict(start.into(), cells.into(), scope(!scoped))
            }
            conflict => conflict,
        }
    }

    /// A release, of the worker (`decided` is its place in the list), or of a caller that needs the room.
    fn release(&self, state: &State, release: Release, decided: Option<usize>, steps: &mut Steps<State>) {
        let busy = state.busy.contains(&release.pin) && !self.is(Wrong::ReleaseAtOnce);
        if busy || !self.may_call(state) {
            return;
        }
        let (name, fair) = match decided {
            Some(_) => ("release", RELEASES + release.base),
            None => ("make room", FREE),
        };
        steps.add(state, Label(name, [release.base, NONE]), fair, |state| {
            let base = usize::from(release.base);
            let payload = state.table.entry(base).and_then(|entry| entry.payload);
            let now = state.table.entry(base).map_or(0, |entry| entry.epoch);
            let epoch = if self.is(Wrong::EpochIgnored) { now } else { release.epoch };
            decided.map(|index| state.releases.remove(index));
            if state.table.begin_release(base, epoch) {
                must(payload == Some(release.pin), "P12", "a release met another registration of its addresses")?;
                state.calls.push(Call::Unregister { release, is_decided: decided.is_some() });
            }
            Ok(())
        });
    }

    fn returned(&self, state: &State, index: usize, steps: &mut Steps<State>) {
        let call = state.calls[index];
        let label = |name| Label(name, [call.base(), NONE]);
        match call {
            Call::Register { start, cells, scoped } => {
                steps.add(state, label("registered"), RETURNS, |state| {
                    state.calls.remove(index);
                    state.pins += 1;
                    state.driver.push((start, cells, state.pins));
                    state.table.registered(start.into(), state.pins);
                    state.wraps.push(Wrap { base: start, start, cells, scoped, pin: state.pins });
                    Ok(())
                });
                steps.add(state, label("refused"), FREE, |state| {
                    state.calls.remove(index);
                    if !self.is(Wrong::FailedRegisterStays) {
                        state.table.failed(start.into());
                    }
                    must(state.table.entry(start.into()).is_none(), "P9", "a failed register left its entry")
                });
                steps.add(state, label("registered in vain, not unregistered"), FREE, |state| {
                    state.calls.remove(index);
                    state.driver.push((start, cells, UNUSED));
                    match self.is(Wrong::UnmadeForgotten) {
                        true => state.table.failed(start.into()),
                        false => state.table.quarantine(start.into()),
                    }
                    must(
                        state.table.entry(start.into()).is_some(),
                        "P1",
                        "a range that may be registered is not listed",
                    )
                });
            }
            Call::Unregister { release, is_decided } => self.unregistered(state, index, release, is_decided, steps),
        }
    }

    fn unregistered(&self, state: &State, at: usize, release: Release, decided: bool, steps: &mut Steps<State>) {
        let base = usize::from(release.base);
        let label = |name| Label(name, [release.base, NONE]);
        if state.capture == Capture::During {
            return steps.add(state, label("put off"), RETURNS, |state| {
                state.calls.remove(at);
                state.table.defer(base);
                if decided {
                    state.releases.push(release);
                }
                Ok(())
            });
        }
        steps.add(state, label("unregistered"), RETURNS, |state| {
            state.calls.remove(at);
            state.driver.retain(|(_, _, pin)| *pin != release.pin);
            must(!state.busy.contains(&release.pin), "P3", "unregistered while the device is at work on it")?;
            let payload = state.table.released(base);
            must(payload == Some(release.pin), "P12", "what was released is not what was decided")
        });
        steps.add(state, label("not unregistered"), FREE, |state| {
            state.calls.remove(at);
            match self.is(Wrong::FailedUnregisterForgets) {
                true => drop(state.table.released(base)),
                false => state.table.quarantine(base),
            }
            let kept = state.table.entry(base).and_then(|entry| entry.payload);
            must(kept == Some(release.pin), "P9", "a failed unregister let go of the range and its owner")
        });
    }

    fn let_go(&self, state: &State, index: usize, steps: &mut Steps<State>) {
        let wrap = state.wraps[index];
        if state.releases.len() >= self.releases {
            return;
        }
        steps.add(state, Label("drop", [wrap.start, wrap.cells]), FREE, |state| {
            state.wraps.remove(index);
            if self.is(Wrong::CountKept) {
                return Ok(());
            }
            if let Some(epoch) = state.table.give_back(wrap.base.into())
                && !self.is(Wrong::ReleaseLost)
            {
                state.releases.push(Release { base: wrap.base, epoch, pin: wrap.pin });
            }
            Ok(())
        });
    }

    /// What the table says of a range is what the driver and the counts say of it (P2, P8).
    fn check_meeting(&self, state: &State, range: (u8, u8, bool)) -> Result<(), Broken> {
        let (start, cells, scoped) = range;
        let near = state
            .table
            .iter()
            .filter(|(base, entry)| *base < usize::from(start + cells) && usize::from(start) < base + entry.bytes);
        let near: Vec<_> = near.collect();
        let holds = |(base, bytes): (usize, usize)| base <= start.into() && usize::from(start + cells) <= base + bytes;
        let every = |status| near.iter().all(|(_, entry)| entry.status == status);
        match self.conflict(state, range) {
            Conflict::Free => must(near.is_empty(), "P8", "a range that meets another was called free"),
            Conflict::Inside(base) => {
                let entry = state.table.entry(base).ok_or(NOT_SHARED)?;
                must(holds((base, entry.bytes)), "P2", "a registration was shared that is too short")?;
                must(entry.manner.scope.is_none() || scoped, "P4", "a range was shared that its scope ends alone")
            }
            // Nobody else registers here, and nobody only reads.
            Conflict::Borrowed(_) | Conflict::ReadOnly => must(false, "P14", "a stranger's range, or one to be read"),
            Conflict::InFlight => must(!state.calls.is_empty(), "P6", "a range is in flight without a call"),
            Conflict::Pending(_) => {
                must(every(Status::Pending), "P2", "waits for room although a live range is in the way")
            }
            Conflict::Larger { .. } | Conflict::Overlap => {
                let live = near.iter().any(|(_, entry)| entry.status == Status::Live);
                must(live, "P8", "refused although no live range is in the way")
            }
            Conflict::Scoped => {
                must(!scoped && near.iter().any(|(_, entry)| entry.manner.scope.is_some()), "P8", "no scope is met")
            }
            Conflict::Quarantined => {
                let lost = near.iter().any(|(_, entry)| entry.status == Status::Quarantined);
                must(lost, "P9", "refused for a quarantine that is not there")
            }
        }
    }

    fn check_entries(&self, state: &State) -> Result<(), Broken> {
        for (base, entry) in state.table.iter() {
            let wraps = state.wraps.iter().filter(|wrap| usize::from(wrap.base) == base).count();
            must(entry.count == wraps, "P5", "the count is not the number of wraps")?;
            let registered = |(at, cells, pin): &(u8, u8, u32)| {
                let payload = (*pin != UNUSED).then_some(*pin);
                usize::from(*at) == base && usize::from(*cells) == entry.bytes && entry.payload == payload
            };
            let registered = state.driver.iter().any(registered);
            let in_call = state.calls.iter().any(|call| usize::from(call.base()) == base);
            let (sound, flight) = match entry.status {
                Status::Live => (registered && entry.count > 0, false),
                Status::Pending => (registered && entry.count == 0, false),
                Status::Registering => (entry.count == 0 && entry.payload.is_none(), true),
                Status::Releasing => (registered && entry.count == 0, true),
                Status::Quarantined => (registered && entry.count == 0, false),
            };
            must(sound, "P1", "table and driver disagree")?;
            must(in_call == flight, "P6", "the status does not say whether a call is in flight")?;
            let decided = |release: &Release| usize::from(release.base) == base && release.epoch == entry.epoch;
            let lost = entry.status == Status::Pending && !state.releases.iter().any(decided);
            must(!lost, "P7", "nobody will release a pending range")?;
        }
        Ok(())
    }
}

const NOT_SHARED: Broken = Broken { line: "P8", how: "the registration that is to be shared is not there" };

fn cell(base: usize) -> u8 {
    u8::try_from(base).expect("addresses are cells")
}

impl Machine for Registrations {
    type State = State;
    type Key = Vec<u8>;

    fn starts(&self) -> Vec<State> {
        vec![State {
            table: Table::new(),
            driver: Vec::new(),
            calls: Vec::new(),
            wraps: Vec::new(),
            releases: Vec::new(),
            busy: Vec::new(),
            capture: Capture::Before,
            pins: 0,
        }]
    }

    /// Identities by whether they are those of the entry at their base. An epoch matters only by being that of its
    /// entry: the table never gives one out twice, so one that is not never will be.
    fn key(&self, state: &State) -> Vec<u8> {
        let mut key = vec![state.capture as u8];
        let current =
            |base: u8, pin: u32| state.table.entry(base.into()).is_some_and(|entry| entry.payload == Some(pin));
        let decided = |release: &Release| {
            let entry = state.table.entry(release.base.into());
            u8::from(entry.is_some_and(|entry| entry.epoch == release.epoch))
                + 2 * u8::from(current(release.base, release.pin))
        };
        for (base, entry) in state.table.iter() {
            let busy = entry.payload.is_some_and(|pin| state.busy.contains(&pin));
            let driver = state.driver.iter().any(|(_, _, pin)| entry.payload == Some(*pin));
            key.extend([cell(base), cell(entry.bytes), entry.status as u8, cell(entry.count)]);
            key.push(u8::from(entry.manner.scope.is_some()) + 2 * u8::from(busy) + 4 * u8::from(driver));
        }
        let mut wraps: Vec<_> =
            state.wraps.iter().map(|wrap| [wrap.base, wrap.start, wrap.cells, wrap.scoped.into()]).collect();
        wraps.sort_unstable();
        let mut releases: Vec<_> = state.releases.iter().map(|release| [release.base, decided(release)]).collect();
        releases.sort_unstable();
        key.push(NONE);
        wraps.iter().for_each(|wrap| key.extend(wrap));
        key.push(NONE);
        releases.iter().for_each(|release| key.extend(release));
        for call in &state.calls {
            match call {
                Call::Register { start, cells, scoped } => key.extend([NONE, *start, *cells, (*scoped).into()]),
                Call::Unregister { release, is_decided } => {
                    key.extend([NONE, release.base, decided(release), 2 + u8::from(*is_decided)]);
                }
            }
        }
        key
    }

    fn steps(&self, state: &State, steps: &mut Steps<State>) {
        if state.wraps.len() + state.calls.len() < self.wraps {
            self.ranges().for_each(|range| self.wrap(state, range, steps));
        }
        for (index, wrap) in state.wraps.iter().enumerate() {
            self.let_go(state, index, steps);
            if !state.busy.contains(&wrap.pin) {
                steps.add(state, Label("use", [wrap.base, NONE]), FREE, |state| {
                    state.busy.push(wrap.pin);
                    Ok(())
                });
            }
        }
        for pin in &state.busy {
            let base =
                state.driver.iter().find(|(_, _, registered)| registered == pin).map_or(NONE, |(base, ..)| *base);
            steps.add(state, Label("work done", [base, NONE]), DEVICE + base.min(7), |state| {
                state.busy.retain(|busy| busy != pin);
                Ok(())
            });
        }
        for (index, release) in state.releases.iter().enumerate() {
            self.release(state, *release, Some(index), steps);
        }
        (0..state.calls.len()).for_each(|index| self.returned(state, index, steps));
        match state.capture {
            Capture::Before => steps.add(state, Label("capture begins", [NONE; 2]), FREE, |state| {
                state.capture = Capture::During;
                Ok(())
            }),
            Capture::During => steps.add(state, Label("capture ends", [NONE; 2]), CAPTURE_ENDS, |state| {
                state.capture = Capture::After;
                Ok(())
            }),
            Capture::After => {}
        }
    }

    fn check(&self, state: &State) -> Result<(), Broken> {
        must(state.calls.len() <= 1, "P6", "two driver calls about ranges at once")?;
        let overlap = |one: &(u8, u8, u32), other: &(u8, u8, u32)| {
            one.2 != other.2 && one.0 < other.0 + other.1 && other.0 < one.0 + one.1
        };
        let overlaps = state.driver.iter().any(|one| state.driver.iter().any(|other| overlap(one, other)));
        must(!overlaps, "P8", "two registered ranges overlap")?;
        for wrap in &state.wraps {
            let entry = state.table.entry(wrap.base.into());
            let covers = entry.is_some_and(|entry| {
                let end = usize::from(wrap.base) + entry.bytes;
                entry.payload == Some(wrap.pin) && usize::from(wrap.start + wrap.cells) <= end
            });
            must(covers, "P2", "a live wrap is not covered by its registration")?;
        }
        let known = |(base, _, pin): &(u8, u8, u32)| {
            let entry = state.table.entry((*base).into());
            entry.is_some_and(|entry| entry.payload == (*pin != UNUSED).then_some(*pin))
        };
        must(state.driver.iter().all(known), "P1", "the driver has a range registered that the table forgot")?;
        self.check_entries(state)?;
        self.ranges().try_for_each(|range| self.check_meeting(state, range))
    }

    fn may_rest(&self, state: &State) -> bool {
        state.releases.is_empty() && state.calls.is_empty() && state.busy.is_empty()
    }

    fn promises(&self) -> Vec<Promise<State>> {
        let gone = Broken { line: "P7", how: "a pending range is neither released, revived nor quarantined" };
        (0..self.cells)
            .map(|base| Promise {
                broken: gone,
                if_quiet: false,
                open: Box::new(move |state: &State| {
                    let entry = state.table.entry(base.into());
                    entry.is_some_and(|entry| matches!(entry.status, Status::Pending | Status::Releasing))
                }),
            })
            .collect()
    }
}
