//! Measures and draws: `cargo run --release -p tenure-benches --bin plots [FOLDER]` writes `launch_path.svg`,
//! `scale.svg` and `threads.svg`, into `benches/plots` by default.

use std::fmt::Write as _;
use std::path::PathBuf;

use tenure_benches::contest::Outcome;
use tenure_benches::measure::{SHARINGS, THREADS, launch_among, launch_path, memory};

/// How many things are there already, for the plot of scale.
const LIVE: [usize; 4] = [10, 1_000, 10_000, 100_000];
/// What is drawn of them, and in which colour.
const LINES: [(&str, &str); 4] =
    [("launch", "#1b6ca8"), ("drop busy", "#c1440e"), ("wrap live", "#3a7d44"), ("look up", "#7a4e9d")];

fn main() -> std::io::Result<()> {
    let folder = std::env::args().nth(1).map_or_else(|| PathBuf::from("benches/plots"), PathBuf::from);
    std::fs::create_dir_all(&folder)?;
    std::fs::write(folder.join("launch_path.svg"), bars(&launch_path()))?;
    let outcomes: Vec<_> = LIVE.iter().map(|live| memory(*live, 101)).collect();
    std::fs::write(folder.join("scale.svg"), lines(&outcomes))?;
    std::fs::write(folder.join("threads.svg"), threads())
}

/// The colours of what threads share, in the order of the table.
const COLOURS: [&str; 5] = ["#8a8a8a", "#1b6ca8", "#3a7d44", "#7a4e9d", "#c1440e"];

/// The cost of one launch while ever more threads launch, on a logarithmic scale.
fn threads() -> String {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let title = format!("One launch on one processor, of N threads on {processors} processors, in nanoseconds");
    let mut svg = open(760, 340, &title);
    let x = |index: usize| 80 + 130 * index;
    // 10 to 100,000 nanoseconds over 240 units.
    let y = |time: f64| 290.0 - 60.0 * (time.clamp(10.0, 1e5).log10() - 1.0);
    for time in [10, 100, 1_000, 10_000, 100_000] {
        let at = y(f64::from(time));
        let _ = writeln!(svg, r##"<line x1="80" x2="600" y1="{at:.0}" y2="{at:.0}" stroke="#dddddd"/>"##);
        let _ = writeln!(svg, r#"<text x="70" y="{:.0}" text-anchor="end">{time}</text>"#, at + 4.0);
    }
    for (index, count) in THREADS.iter().enumerate() {
        let _ = writeln!(svg, r#"<text x="{}" y="312" text-anchor="middle">{count}</text>"#, x(index));
    }
    for (row, ((name, sharing), colour)) in SHARINGS.iter().zip(COLOURS).enumerate() {
        let times = THREADS.map(|count| launch_among(*sharing, count, 25));
        let points = times.iter().enumerate().map(|(i, time)| format!("{},{:.1}", x(i), y(*time)));
        let points = points.collect::<Vec<_>>().join(" ");
        let _ = writeln!(svg, r#"<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>"#);
        let (label, last) = (60 + 36 * row, times[times.len() - 1] / times[0]);
        let _ = writeln!(svg, r#"<text x="612" y="{label}" fill="{colour}">{name}</text>"#);
        let _ = writeln!(svg, r#"<text x="612" y="{}" fill="{colour}">16 over 1: {last:.1}x</text>"#, label + 15);
    }
    svg + "</svg>\n"
}

/// Bookkeeping of one launch of three buffers and four scalars, as multiples of one lock, on a logarithmic scale.
fn bars(path: &Outcome) -> String {
    let lock = path.net("lock", "nothing");
    let loads = path.median("1 load") - path.median("nothing");
    let rows = [
        ("one relaxed load a buffer (floor)", 3.0 * (path.net("16 loads", "1 load") / 15.0).max(loads / 100.0)),
        ("one compare-and-swap", path.net("cas", "nothing")),
        ("one lock and unlock", lock),
        ("unlocked at conversion (loses order)", path.net("unlocked", "raw three")),
        ("tenure", path.net("three and four", "raw three")),
        ("locked phase, on the stack", path.net("locked in place", "raw three")),
        ("locked phase, allocated", path.net("locked phase", "raw three")),
        ("event per argument (H200 costs)", path.net("event per argument", "raw three")),
    ];
    let mut svg = open(760, 40 + 34 * rows.len() as u32, "Bookkeeping of a launch: 3 buffers and 4 scalars, in locks");
    for (index, (name, time)) in rows.iter().enumerate() {
        let ratio = time / lock;
        // 0.01 to 100 locks over 320 units.
        let width = ((ratio.max(0.011).log10() + 2.0) * 80.0).clamp(2.0, 320.0);
        let y = 44 + 34 * index;
        let colour = if *name == "tenure" { "#1b6ca8" } else { "#b5b5b5" };
        let _ = writeln!(svg, r#"<text x="290" y="{}" text-anchor="end">{name}</text>"#, y + 15);
        let _ = writeln!(svg, r#"<rect x="300" y="{y}" width="{width:.0}" height="20" fill="{colour}"/>"#);
        let _ = writeln!(svg, r#"<text x="{:.0}" y="{}">{ratio:.2}</text>"#, 306.0 + width, y + 15);
    }
    svg + "</svg>\n"
}

/// The cost of one operation while ever more is there already, over its cost with the fewest.
fn lines(outcomes: &[Outcome]) -> String {
    let mut svg = open(760, 340, "Cost of one operation beside N live buffers, pins and retired things, over N = 10");
    let x = |index: usize| 80 + 180 * index;
    // 0 to 5 times over 220 units.
    let y = |ratio: f64| 290.0 - 44.0 * ratio.min(5.0);
    for ratio in 0..=5 {
        let at = y(f64::from(ratio));
        let _ = writeln!(svg, r##"<line x1="80" x2="620" y1="{at:.0}" y2="{at:.0}" stroke="#dddddd"/>"##);
        let _ = writeln!(svg, r#"<text x="70" y="{:.0}" text-anchor="end">{ratio}x</text>"#, at + 4.0);
    }
    for (index, live) in LIVE.iter().enumerate() {
        let _ = writeln!(svg, r#"<text x="{}" y="312" text-anchor="middle">{live}</text>"#, x(index));
    }
    for (row, (name, colour)) in LINES.iter().enumerate() {
        let ratio = |outcome: &Outcome| outcome.median(name) / outcomes[0].median(name);
        let points = outcomes.iter().enumerate().map(|(i, outcome)| format!("{},{:.1}", x(i), y(ratio(outcome))));
        let points = points.collect::<Vec<_>>().join(" ");
        let last = outcomes.last().map_or(1.0, ratio);
        let _ = writeln!(svg, r#"<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>"#);
        let label = 60 + 20 * row;
        let _ = writeln!(svg, r#"<text x="632" y="{label}" fill="{colour}">{name} {last:.2}x</text>"#);
    }
    svg + "</svg>\n"
}

fn open(width: u32, height: u32, title: &str) -> String {
    format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="13">
<rect width="{width}" height="{height}" fill="#ffffff"/>
<text x="16" y="24" font-size="15" font-weight="bold">{title}</text>
"##
    )
}
