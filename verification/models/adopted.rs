//! Adopted streams: S8, S9.
//!
//! Each on a driver whose events outlive their streams, where an event marks the adopted one, and on one whose events do not, where
//! a shadow does. The device knows what each mark really stands behind, and who touches a stream after its owner destroyed it.

use super::checker::spawn;
use super::device::Device;
use super::ownership::{BYTES, Buffer, World};
use super::tenure::call_scope::MayWait;
use super::tenure::driver::{Call, Capabilities, ErrorKind};
use super::tenure::ownership::Access::{Read, Write};
use super::tenure::ownership::{Point, Points};
use super::tenure::reclaim::{Ask, Reclaim, Resource, Retired};
use super::tenure::registration::Pins;
use super::tenure::stream_state::StreamState;
use super::tenure::sync::Arc;
use super::{Model, Reached, Search};

const LEAVES_OUT: &str = "gates are biased to no thread; the owner's own work on the stream";

/// The models of this file.
pub const MODELS: &[Model] = &[
    Model {
        name: "s8_wait_of_a_refused_launch_is_marked",
        claim: "A wait that an adopted stream was given, whose launch is refused, is passed only when it is, beside a question.",
        lines: &["S8", "O2", "O5"],
        threads: 2,
        operations: "1 launch that is refused behind an edge; 1 question; then a host write",
        bound: Some(3),
        search: Search::Sample(2_000),
        leaves_out: LEAVES_OUT,
        reaches: &["the question came first", "the question came after the wait"],
        body: |reached| refused_launch(Marked::ByEvent, reached),
    },
    Model {
        name: "s8_wait_of_a_refused_launch_is_shadowed",
        claim: "As with an event, with a shadow.",
        lines: &["S8", "O2", "O5"],
        threads: 2,
        operations: "1 launch that is refused behind an edge; 1 question; then a host write",
        bound: Some(3),
        search: Search::Sample(2_000),
        leaves_out: LEAVES_OUT,
        reaches: &["the question came first", "the question came after the wait"],
        body: |reached| refused_launch(Marked::ByShadow, reached),
    },
    Model {
        name: "s8_failed_mark_beside_question",
        claim: "A launch whose mark failed is never proved complete by a question, before or beside which the stream was given up.",
        lines: &["S8", "S7", "O2", "P11"],
        threads: 2,
        operations: "1 launch whose mark fails; 1 question; then another",
        bound: Some(3),
        search: Search::Sample(2_000),
        leaves_out: LEAVES_OUT,
        reaches: &["the question came first", "the stream had been given up"],
        body: |reached| failed_mark_beside_question(Marked::ByEvent, reached),
    },
    Model {
        name: "s8_failed_shadow_beside_question",
        claim: "As with an event, with a shadow that was not made to wait.",
        lines: &["S8", "S7", "O2", "P11"],
        threads: 2,
        operations: "1 launch whose mark fails; 1 question; then another",
        bound: Some(3),
        search: Search::Sample(2_000),
        leaves_out: LEAVES_OUT,
        reaches: &["the question came first", "the stream had been given up"],
        body: |reached| failed_mark_beside_question(Marked::ByShadow, reached),
    },
    Model {
        name: "s8_failed_mark_beside_wait",
        claim: "A launch whose mark failed is never proved complete by a wait, before or beside which the stream was given up.",
        lines: &["S8", "S7", "O2"],
        threads: 2,
        operations: "1 launch whose mark fails; 1 wait",
        bound: Some(3),
        search: Search::Sample(2_000),
        leaves_out: LEAVES_OUT,
        reaches: &["the wait came first", "the stream had been given up"],
        body: failed_mark_beside_wait,
    },
    Model {
        name: "s8_failed_mark_beside_edge",
        claim: "An edge from an adopted stream reaches no launch whose mark failed, before or beside which the stream was given up.",
        lines: &["S8", "S7", "O1"],
        threads: 2,
        operations: "1 launch whose mark fails; 1 launch elsewhere that waits for an earlier one; then one for the later",
        bound: Some(3),
        search: Search::Sample(2_000),
        leaves_out: LEAVES_OUT,
        reaches: &["the edge came first", "the edge was refused"],
        body: failed_mark_beside_edge,
    },
    Model {
        name: "s8_failed_shadow_beside_host_function",
        claim: "A host function on a shadow tells of no launch that the shadow was not made to wait for.",
        lines: &["S8", "S7", "O2", "R2"],
        threads: 2,
        operations: "1 launch whose mark fails; 1 turn that arms; then the function runs",
        bound: Some(3),
        search: Search::Sample(2_000),
        leaves_out: LEAVES_OUT,
        reaches: &["a host function was left there", "the stream had been given up"],
        body: failed_shadow_beside_function,
    },
    Model {
        name: "s9_end_of_an_adoption_beside_edge",
        claim: "What marks an adopted stream that its owner destroyed is given back once, beside an edge from there, and not under it.",
        lines: &["S9", "S6", "O1", "O3"],
        threads: 2,
        operations: "1 turn that asks; 1 launch elsewhere; then a host write",
        bound: Some(3),
        search: Search::Sample(2_000),
        leaves_out: LEAVES_OUT,
        reaches: &["an edge was inserted", "the stream was found finished"],
        body: |reached| ends_beside_edge(Marked::ByEvent, reached),
    },
    Model {
        name: "s9_end_of_a_shadow_beside_edge",
        claim: "As with an event, with a shadow; and nothing names the adopted stream any more.",
        lines: &["S9", "S6", "O1", "O3"],
        threads: 2,
        operations: "1 turn that asks; 1 launch elsewhere; then a host write",
        bound: Some(3),
        search: Search::Sample(2_000),
        leaves_out: LEAVES_OUT,
        reaches: &["an edge was inserted", "the stream was found finished"],
        body: |reached| ends_beside_edge(Marked::ByShadow, reached),
    },
    Model {
        name: "s9_end_of_a_shadow_beside_wait",
        claim: "A host wait for work of an adopted stream that its owner destroyed, beside the end of the adoption, follows nothing there.",
        lines: &["S9", "S6", "O3"],
        threads: 2,
        operations: "1 turn that asks; 1 host read",
        bound: Some(3),
        search: Search::Sample(2_000),
        leaves_out: LEAVES_OUT,
        reaches: &["the host waited", "the read made no driver call"],
        body: ends_beside_wait,
    },
    Model {
        name: "s9_end_of_a_broken_adoption_beside_edge",
        claim: "An adopted stream that was given up ends too, beside an edge from there, which is refused.",
        lines: &["S9", "S7", "S8"],
        threads: 2,
        operations: "1 launch whose mark failed; 1 turn; 1 launch elsewhere",
        bound: Some(3),
        search: Search::Sample(2_000),
        leaves_out: LEAVES_OUT,
        reaches: &["the event was given back"],
        body: broken_ends_beside_edge,
    },
];

/// What marks the adopted stream of a model.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Marked {
    ByEvent,
    ByShadow,
}

impl Marked {
    /// The call that moves the mark last.
    fn call(self) -> Call {
        match self {
            Self::ByEvent => Call::EventRecord,
            Self::ByShadow => Call::StreamWaitEvent,
        }
    }
}

/// A device, a stream that was adopted there, and a buffer.
struct Adopted {
    world: World,
    stream: Arc<StreamState<Device>>,
    x: Buffer,
}

impl Adopted {
    fn new(marked: Marked) -> Self {
        let mut capabilities = Capabilities::default();
        capabilities.stream_ordered_memory = false;
        capabilities.events_outlive_streams = marked == Marked::ByEvent;
        let world = World::over(false, Device::new(capabilities));
        let raw = world.device.made_stream();
        let stream = StreamState::adopt(&world.context, raw).expect("the driver makes what marks it");
        let x = world.buffer();
        Self { world, stream, x }
    }

    fn query(&self) -> bool {
        self.stream.query(&self.world.context).expect("nobody captures").is_ok()
    }

    /// A launch that the driver accepts, but for its mark.
    fn launch_unmarked(&self, marked: Marked, buffer: &Buffer) {
        self.world.device.fail(marked.call(), ErrorKind::InvalidValue, 0);
        self.world.launch(&self.stream, &[(buffer, Write)]);
    }

    /// Whoever calls the buffer clean must be right about its first `submitted` uses.
    fn is_not_called_clean_early(&self, buffer: &Buffer, submitted: u64) {
        if !buffer.record.is_busy(Write) {
            self.world.device.called_clean(buffer.address, BYTES, submitted);
        }
    }
}

fn refused_launch(marked: Marked, reached: &Reached) {
    // setup: X was written elsewhere, and is taken together with what nobody can have
    let adopted = Arc::new(Adopted::new(marked));
    let (ours, spoiled) = (adopted.world.stream(), adopted.world.spoiled());
    adopted.world.launch(&ours, &[(&adopted.x, Write)]);
    // threads
    let asker = spawn({
        let adopted = adopted.clone();
        move || {
            let waits = adopted.stream.timeline.horizon().number();
            assert!(adopted.query(), "the device answers");
            waits
        }
    });
    let refused = adopted.world.try_launch(&adopted.stream, &[(&adopted.x, Write), (&spoiled, Write)]);
    // join
    let waits = asker.join().unwrap();
    // claim: the device, which knows what was told
    assert!(refused.is_err(), "O5: a launch behind an edge that fails is refused");
    adopted.is_not_called_clean_early(&adopted.x, 1);
    reached.mark_if(waits == 0, "the question came first");
    reached.mark_if(waits > 0, "the question came after the wait");
    adopted.world.host_writes(&adopted.x);
}

fn failed_mark_beside_question(marked: Marked, reached: &Reached) {
    // setup
    let adopted = Arc::new(Adopted::new(marked));
    // threads
    let launcher = spawn({
        let adopted = adopted.clone();
        move || adopted.launch_unmarked(marked, &adopted.x)
    });
    let answered = adopted.query();
    // join
    launcher.join().unwrap();
    // claim: nobody was told that the launch is complete
    adopted.is_not_called_clean_early(&adopted.x, 1);
    let again = adopted.query();
    adopted.is_not_called_clean_early(&adopted.x, 1);
    assert!(!again, "S8: a stream that was given up was asked");
    reached.mark_if(answered, "the question came first");
    reached.mark_if(!answered, "the stream had been given up");
}

fn failed_mark_beside_wait(reached: &Reached) {
    // setup: an earlier launch, which is marked
    let adopted = Arc::new(Adopted::new(Marked::ByEvent));
    let y = adopted.world.buffer();
    let number = adopted.world.launch(&adopted.stream, &[(&y, Write)]);
    // threads
    let launcher = spawn({
        let adopted = adopted.clone();
        move || adopted.launch_unmarked(Marked::ByEvent, &adopted.x)
    });
    let waited = adopted.stream.wait(&adopted.world.context, number, &mut MayWait::here().expect("no hold")).is_ok();
    // join
    launcher.join().unwrap();
    // claim
    adopted.is_not_called_clean_early(&adopted.x, 1);
    reached.mark_if(waited, "the wait came first");
    reached.mark_if(!waited, "the stream had been given up");
}

fn failed_mark_beside_edge(reached: &Reached) {
    // setup: X was written on the adopted stream, and that is marked
    let adopted = Arc::new(Adopted::new(Marked::ByEvent));
    let (ours, y) = (adopted.world.stream(), Arc::new(adopted.world.buffer()));
    adopted.world.launch(&adopted.stream, &[(&adopted.x, Write)]);
    // threads
    let launcher = spawn({
        let (adopted, y) = (adopted.clone(), y.clone());
        move || adopted.launch_unmarked(Marked::ByEvent, &y)
    });
    let first = adopted.world.try_launch(&ours, &[(&adopted.x, Write)]).is_ok();
    // join
    launcher.join().unwrap();
    // claim: the device, which knows what the edge really ordered
    let second = adopted.world.try_launch(&ours, &[(&y, Write)]).is_ok();
    assert!(!second, "S8: work was ordered after a launch whose mark failed");
    reached.mark_if(first, "the edge came first");
    reached.mark_if(!first, "the edge was refused");
}

fn failed_shadow_beside_function(reached: &Reached) {
    // setup: something waits for a launch, which is marked
    let adopted = Arc::new(Adopted::new(Marked::ByShadow));
    let (pins, reclaim) = (Pins::<Device>::new(), Reclaim::<Device>::new());
    let y = adopted.world.buffer();
    let mut points = Points::new();
    points
        .push(Point { number: adopted.world.launch(&adopted.stream, &[(&y, Write)]), stream: adopted.stream.clone() });
    reclaim.retire(Retired { resource: Resource::Kept(Box::new(())), points });
    // threads
    let launcher = spawn({
        let adopted = adopted.clone();
        move || adopted.launch_unmarked(Marked::ByShadow, &adopted.x)
    });
    reclaim.turn(&adopted.world.context, &pins, Ask::Arm);
    let armed = adopted.world.device.host_functions();
    // join
    launcher.join().unwrap();
    adopted.world.device.run_host_functions();
    // claim
    adopted.is_not_called_clean_early(&adopted.x, 1);
    reached.mark_if(armed == 1, "a host function was left there");
    reached.mark_if(armed == 0, "the stream had been given up");
}

/// An adoption whose lease has ended: X was written there, and the owner has destroyed the stream.
struct Ending {
    adopted: Arc<Adopted>,
    pins: Pins<Device>,
    reclaim: Reclaim<Device>,
}

impl Ending {
    fn new(adopted: Adopted) -> Self {
        let (stream, reclaim) = (adopted.stream.clone(), Reclaim::new());
        let mut points = Points::new();
        points.push(Point { number: stream.timeline.horizon().number(), stream: stream.clone() });
        reclaim.retire(Retired { resource: Resource::Adopted(stream), points });
        adopted.world.device.owner_destroys(&adopted.stream.raw);
        Self { adopted: Arc::new(adopted), pins: Pins::new(), reclaim }
    }

    fn turn(&self) -> usize {
        self.reclaim.turn(&self.adopted.world.context, &self.pins, Ask::Query).total()
    }

    /// Takes turns until all is given back.
    fn ends(&self) {
        while self.turn() > 0 {
            super::checker::yield_now();
        }
    }
}

fn written(marked: Marked) -> Arc<Ending> {
    let adopted = Adopted::new(marked);
    adopted.world.launch(&adopted.stream, &[(&adopted.x, Write)]);
    Arc::new(Ending::new(adopted))
}

fn ends_beside_edge(marked: Marked, reached: &Reached) {
    // setup
    let ending = written(marked);
    let adopted = &ending.adopted;
    let ours = adopted.world.stream();
    // threads
    let turner = spawn({
        let ending = ending.clone();
        move || ending.turn()
    });
    adopted.world.launch(&ours, &[(&adopted.x, Write)]);
    let edges = ours.counters.edges_inserted.value();
    // join
    turner.join().unwrap();
    // claim: the device knows a call that follows anything to the stream, and
    ending.ends();
    let shadows = u64::from(marked == Marked::ByShadow);
    let given_back = [Call::EventDestroy, Call::StreamDestroy].map(|call| adopted.world.device.count(call));
    assert_eq!(given_back, [1, shadows], "S9: what marked the stream was given back not once");
    adopted.world.host_writes(&adopted.x);
    reached.mark_if(edges == 1, "an edge was inserted");
    reached.mark_if(edges == 0, "the stream was found finished");
}

fn ends_beside_wait(reached: &Reached) {
    // setup
    let ending = written(Marked::ByShadow);
    let adopted = &ending.adopted;
    // threads
    let turner = spawn({
        let ending = ending.clone();
        move || ending.turn()
    });
    adopted.world.host_reads(&adopted.x);
    let waited = adopted.world.device.count(Call::StreamSynchronize) == 1;
    // join
    turner.join().unwrap();
    // claim: the device
    ending.ends();
    reached.mark_if(waited, "the host waited");
    reached.mark_if(!waited, "the read made no driver call");
    assert!(!adopted.x.record.is_busy(Read), "O2: a buffer is busy with what has completed");
}

fn broken_ends_beside_edge(reached: &Reached) {
    // setup
    let adopted = Adopted::new(Marked::ByEvent);
    adopted.launch_unmarked(Marked::ByEvent, &adopted.x);
    let ending = Arc::new(Ending::new(adopted));
    let adopted = &ending.adopted;
    let ours = adopted.world.stream();
    // threads
    let turner = spawn({
        let ending = ending.clone();
        move || ending.turn()
    });
    let written = adopted.world.try_launch(&ours, &[(&adopted.x, Write)]).is_ok();
    // join
    turner.join().unwrap();
    // claim: the device, and
    assert!(!written, "S7: work was ordered after a stream that had been given up");
    ending.ends();
    assert_eq!(adopted.world.device.count(Call::EventDestroy), 1, "S9: what marked the stream was given back not once");
    adopted.is_not_called_clean_early(&adopted.x, 1);
    reached.mark("the event was given back");
}
