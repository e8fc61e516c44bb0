//! Measures and draws: `cargo run --release -p tenure-benches --bin plots [FILE]` writes `launch_path.svg`,
//! `threads.svg` and `scale.svg` into `benches/plots`. With a file of lines that `ratios --json` wrote, on another machine
//! say, the first two show their medians, and nothing is measured.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Write as _;
use std::path::Path;

use serde_json::Value;
use tenure_benches::contest::{Outcome, load, median};
use tenure_benches::measure::{SHARINGS, THREADS, launch_among, launch_path, memory};

type Fallible<T = ()> = Result<T, Box<dyn Error>>;

/// How many things are there already, for the plot of scale.
const LIVE: [usize; 4] = [10, 1_000, 10_000, 100_000];
/// What is drawn of them, and in which colour.
const LINES: [(&str, &str); 4] =
    [("launch", "#1b6ca8"), ("drop busy", "#c1440e"), ("wrap live", "#3a7d44"), ("look up", "#7a4e9d")];

fn main() -> Fallible {
    let folder = Path::new("benches/plots");
    std::fs::create_dir_all(folder)?;
    let kept = std::env::args().nth(1);
    let figures = match &kept {
        Some(file) => Figures::kept(Path::new(file))?,
        None => Figures::measured(),
    };
    std::fs::write(folder.join("launch_path.svg"), bars(&figures))?;
    std::fs::write(folder.join("threads.svg"), threads(&figures))?;
    if kept.is_none() {
        let outcomes: Vec<_> = LIVE.iter().map(|live| memory(*live, 101)).collect();
        std::fs::write(folder.join("scale.svg"), lines(&outcomes))?;
    }
    Ok(())
}

/// What is drawn of launches.
struct Figures {
    /// Nanoseconds by entrant.
    medians: BTreeMap<String, f64>,
    /// Nanoseconds of a launch among each number of threads, by what they share.
    threads: Vec<Vec<f64>>,
}

impl Figures {
    fn measured() -> Self {
        let path = launch_path();
        let medians = path.medians().map(|(name, median)| (name.to_owned(), median)).collect();
        let among = |sharing| THREADS.iter().map(|threads| launch_among(sharing, *threads, 25)).collect();
        Self { medians, threads: SHARINGS.iter().map(|(_, sharing)| among(*sharing)).collect() }
    }

    /// The medians over the lines of a file.
    fn kept(file: &Path) -> Fallible<Self> {
        let text = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
        let lines: Vec<Value> = text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
        let middle = |pointer: &str| -> Fallible<f64> {
            let values: Option<Vec<f64>> = lines.iter().map(|line| line.pointer(pointer)?.as_f64()).collect();
            let values = values.filter(|values| !values.is_empty());
            Ok(median(values.ok_or_else(|| format!("{}: a line says nothing of {pointer}", file.display()))?))
        };
        let names = lines.first().and_then(|line| line["medians_ns"].as_object()).ok_or("no medians")?.keys();
        let medians: Fallible<_> =
            names.map(|name| Ok((name.clone(), middle(&format!("/medians_ns/{name}"))?))).collect();
        let among =
            |name: &str| (0..THREADS.len()).map(|i| middle(&format!("/beside/threads_ns/{name}/{i}"))).collect();
        let threads: Fallible<_> = SHARINGS.iter().map(|(name, _)| among(name)).collect();
        Ok(Self { medians: medians?, threads: threads? })
    }

    fn median(&self, name: &str) -> f64 {
        self.medians[name]
    }

    fn net(&self, name: &str, base: &str) -> f64 {
        self.median(name) - self.median(base)
    }
}

/// The colours of what threads share, in the order of the table.
const COLOURS: [&str; 5] = ["#8a8a8a", "#1b6ca8", "#3a7d44", "#7a4e9d", "#c1440e"];

/// The cost of one launch while ever more threads launch, on a logarithmic scale.
fn threads(figures: &Figures) -> String {
    let mut svg = open(760, 340, "One launch among N threads, in nanoseconds of a processor");
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
    for (row, (((name, _), times), colour)) in SHARINGS.iter().zip(&figures.threads).zip(COLOURS).enumerate() {
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
fn bars(path: &Figures) -> String {
    let lock = path.net("lock", "nothing");
    let rows = [
        ("one relaxed load a buffer (floor)", 3.0 * load(|name, base| path.net(name, base))),
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
