//! Every object, given to another runtime over the same device: refused before the driver sees it. And what a capture gives
//! or uses, given to another capture of the same runtime.

use tenure::{Access, LaunchConfig, Queue, Readable, Result};

use super::answer::Answer;
use super::world::{Objects, World};

/// A call that is given an object of another runtime.
struct Case {
    name: &'static str,
    run: fn(&mut Objects, &mut Objects) -> Result<()>,
}

/// Their names.
pub fn names() -> Vec<&'static str> {
    CASES.iter().map(|case| case.name).collect()
}

/// The first objects are ours, the second another runtime's.
const CASES: &[Case] = &[
    Case {
        name: "buffer in a launch",
        run: |a, b| a.stream.launch(&a.bump, LaunchConfig::linear(4), (&mut b.x, 1_u32, 4_u32)),
    },
    Case {
        name: "kernel in a launch",
        run: |a, b| a.stream.launch(&b.bump, LaunchConfig::linear(4), (&mut a.x, 1_u32, 4_u32)),
    },
    Case {
        name: "scoped pin in a copy",
        run: |a, b| {
            let mut memory = [0_u32; 4];
            b.runtime.clone().scope(|scope| a.stream.copy(&a.x, &mut scope.wrap(&mut memory)?))
        },
    },
    Case { name: "view in a copy", run: |a, b| a.stream.copy(&b.x.view(0..4)?, &mut a.x) },
    Case { name: "view of a pin in a copy", run: |a, b| a.stream.copy(&b.host.view(0..4)?, &mut a.x) },
    Case {
        name: "adopted stream in a launch",
        run: |a, b| {
            let adopted = b.adopted.as_ref().expect("an adoption");
            adopted.launch(&b.bump, LaunchConfig::linear(4), (&mut a.x, 1_u32, 4_u32))
        },
    },
    Case {
        name: "event in a wait of an adopted stream",
        run: |a, b| a.adopted.as_ref().expect("an adoption").wait_event(&b.event),
    },
    Case { name: "pin in a copy", run: |a, b| a.stream.copy(&b.host, &mut a.x) },
    Case { name: "shared pin in a copy", run: |a, b| a.stream.copy(&**b.shared.as_ref().expect("a wrap"), &mut a.x) },
    Case { name: "buffer in a copy, from", run: |a, b| a.stream.copy(&b.x, &mut a.x) },
    Case { name: "buffer in a copy, to", run: |a, b| a.stream.copy(&a.x, &mut b.x) },
    Case { name: "buffer in a fill", run: |a, b| a.stream.fill(&mut b.x, 1) },
    Case { name: "buffer in a write", run: |a, b| a.stream.write(&[1_u32; 4], &mut b.x) },
    Case { name: "buffer in a read", run: |a, b| a.stream.read(&b.x).map(drop) },
    Case { name: "buffer in a download", run: |a, b| a.stream.download(&b.x).map(drop) },
    Case { name: "view in a fill", run: |a, b| a.stream.fill(&mut b.x.view_mut(1..3)?, 1) },
    // SAFETY: O1. The body enqueues nothing.
    Case { name: "buffer in use_on", run: |a, b| unsafe { a.stream.use_on(&[(b.x.region(), Access::Write)], |_| ()) } },
    Case { name: "event in a wait", run: |a, b| a.stream.wait_event(&b.event) },
    Case { name: "event in elapsed", run: |a, b| a.timed[0].elapsed(&b.timed[1]).map(drop) },
    Case { name: "executable in a launch", run: |a, b| b.executable.launch(&a.stream) },
    Case { name: "graph in an update", run: |a, b| a.executable.update(b.graph.as_ref().expect("a graph")) },
    Case { name: "buffer in a capture", run: |a, b| a.runtime.capture(|capture| capture.fill(&mut b.x, 1)).map(drop) },
    Case {
        name: "kernel in a capture",
        run: |a, b| {
            let (kernel, x) = (&b.bump, &mut a.x);
            a.runtime.capture(|capture| capture.launch(kernel, LaunchConfig::linear(4), (x, 1_u32, 4_u32))).map(drop)
        },
    },
    Case {
        name: "fork in another capture",
        run: |a, b| {
            let mut refused = Ok(());
            let outer = a.runtime.capture(|ours| {
                let inner = b.runtime.capture(|theirs| {
                    let fork = theirs.fork()?;
                    refused = fork.join(ours);
                    Ok(())
                });
                inner.map(drop)
            });
            // The outer capture is not broken, whatever became of the inner one's fork.
            refused.and(outer.map(drop))
        },
    },
];

/// The names of what is given to another capture.
pub fn sessions() -> Vec<&'static str> {
    SESSIONS.iter().map(|case| case.name).collect()
}

type Capture<'a> = tenure::Capture<'a, super::world::D>;

/// What is done with two captures of one runtime, the second inside of the first.
struct Session {
    name: &'static str,
    run: fn(&Capture<'_>, &Capture<'_>, &mut Objects) -> Result<()>,
}

const SESSIONS: &[Session] = &[
    Session { name: "inner fork into the outer", run: |outer, inner, _| inner.fork()?.join(outer) },
    Session { name: "outer fork into the inner", run: |outer, inner, _| outer.fork()?.join(inner) },
    Session {
        name: "buffer written by both",
        run: |outer, inner, o| {
            outer.fill(&mut o.x, 1)?;
            inner.fill(&mut o.x, 2)
        },
    },
    Session {
        name: "buffer read by both",
        run: |outer, inner, o| {
            outer.copy(&o.x, &mut o.y)?;
            inner.copy(&o.x, o.spare.as_mut().expect("a spare"))
        },
    },
    Session {
        name: "pin written by both",
        run: |outer, inner, o| {
            outer.copy(&o.x, &mut o.host)?;
            inner.copy(&o.x, &mut o.host)
        },
    },
    Session {
        name: "buffer allocated by one, used by the other",
        run: |outer, inner, _| {
            let mut made = inner.alloc::<u32>(4)?;
            outer.fill(&mut made, 1)
        },
    },
    Session {
        name: "buffer of a capture on a stream",
        run: |outer, _, o| {
            outer.fill(&mut o.x, 1)?;
            o.stream.fill(&mut o.x, 2)
        },
    },
    Session { name: "event waited for by a stream meanwhile", run: |_, _, o| o.other.wait_event(&o.event) },
];

/// Runs the case of the row. Whatever its answer, both captures end as they would without it.
pub fn run_session(profile: &'static str, row: &'static str, _column: &'static str) -> Answer {
    let world = World::new(profile);
    let mut objects = world.objects();
    let case = SESSIONS.iter().find(|case| case.name == row).expect("a listed case");
    let (runtime, mut answer, mut inner_graph) = (world.runtime.clone(), None, None);
    let outer_graph = runtime.capture(|outer| {
        inner_graph = Some(runtime.capture(|inner| {
            answer = Some((case.run)(outer, inner, &mut objects));
            Ok(())
        }));
        Ok(())
    });
    let ends = [Some(outer_graph.map(drop)), inner_graph.map(|graph| graph.map(drop))];
    let answer = match (answer, ends) {
        (Some(answer), [Some(Ok(())), Some(Ok(()))]) => Answer::of(&answer),
        (_, ends) => Answer::Wrong(format!("C9: what was refused broke a capture: {ends:?}")),
    };
    drop(objects);
    drop(runtime);
    world.end(answer)
}

/// Runs the case of the row.
pub fn run(profile: &'static str, row: &'static str, _column: &'static str) -> Answer {
    let world = World::new(profile);
    let second = tenure::Runtime::new(world.tap.clone()).expect("a second runtime");
    let (mut ours, mut theirs) = (world.objects(), world.objects_of(&second));
    let case = CASES.iter().find(|case| case.name == row).expect("a listed case");
    let answer = Answer::of(&(case.run)(&mut ours, &mut theirs));
    drop((ours, theirs));
    drop(second.shutdown(std::time::Duration::from_secs(1)));
    world.end(answer)
}
