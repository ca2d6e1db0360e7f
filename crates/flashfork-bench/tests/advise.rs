//! Forecasts against the truth: five programs of different shapes are surveyed, then fork, and both are compared.
//!
//! The programs are this executable started again; each prepares its memory, says so, and on request times forks of its own.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::time::Duration;

use flashfork::CostModel;
use flashfork_bench::advise::{self, Engine};
use flashfork_bench::stats::median;
use flashfork_bench::{Silent, table};
use libtest_mimic::{Arguments, Failed, Trial};

const MB: usize = 1 << 20;
const FORKS: usize = 21;
/// Programs whose forks differ by less than this factor may stand in either order.
const CLOSE: f64 = 1.3;
const SHAPES: [&str; 5] =
    ["small", "64 MB on 4 KB pages", "256 MB on 4 KB pages", "256 MB on huge pages", "1000 mappings"];

/// A program of one shape.
struct Shape {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Shape {
    fn start(index: usize) -> Result<Self, Failed> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["be-a-shape", &index.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (input, output) = (child.stdin.take().ok_or("no pipe")?, child.stdout.take().ok_or("no pipe")?);
        let mut shape = Self { child, input, output: BufReader::new(output) };
        assert_eq!(shape.line()?, "ready");
        Ok(shape)
    }

    fn line(&mut self) -> Result<String, Failed> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        Ok(line.trim().to_owned())
    }

    /// The median of its forks, in microseconds.
    fn forks(&mut self) -> Result<f64, Failed> {
        writeln!(self.input, "fork")?;
        Ok(self.line()?.parse()?)
    }
}

impl Drop for Shape {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Maps `bytes` with `advice` and writes every page.
fn map(bytes: usize, advice: i32) -> *mut u8 {
    // SAFETY: a new mapping, written within its bounds and never unmapped.
    unsafe {
        let (read_write, private) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let begin = libc::mmap(std::ptr::null_mut(), bytes + 2 * MB, read_write, private, -1, 0);
        assert_ne!(begin, libc::MAP_FAILED);
        let begin = begin.map_addr(|address| address.next_multiple_of(2 * MB)).cast::<u8>();
        libc::madvise(begin.cast(), bytes, advice);
        (0..bytes).step_by(4096).for_each(|at| begin.add(at).write_volatile(7));
        begin
    }
}

/// Time of the processor spent by this thread, in microseconds: what else runs on the machine doesn't count.
fn processor_time() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the time is a local.
    assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) }, 0);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}

/// The `main` of a program of shape `index`.
fn be_a_shape(index: usize) -> ExitCode {
    match index {
        1 => drop(map(64 * MB, libc::MADV_NOHUGEPAGE)),
        2 => drop(map(256 * MB, libc::MADV_NOHUGEPAGE)),
        3 => drop(map(256 * MB, libc::MADV_HUGEPAGE)),
        4 => {
            let begin = map(1000 * 4096, libc::MADV_NOHUGEPAGE);
            for page in (1..1000).step_by(2) {
                // SAFETY: a page of the mapping above, not written any more.
                assert_eq!(unsafe { libc::mprotect(begin.add(page * 4096).cast(), 4096, libc::PROT_READ) }, 0);
            }
        }
        _ => {}
    }
    println!("ready");
    let mut line = String::new();
    while std::io::stdin().read_line(&mut line).is_ok_and(|n| n > 0) {
        let mut times: Vec<f64> = (0..FORKS)
            .map(|_| {
                let begin = processor_time();
                // SAFETY: this process has one thread; the child ends at once.
                let pid = unsafe { libc::fork() };
                if pid == 0 {
                    // SAFETY: ends the process.
                    unsafe { libc::_exit(0) };
                }
                let took = processor_time() - begin;
                let mut status = 1;
                // SAFETY: the status is a local.
                assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
                assert_eq!(status, 0);
                took
            })
            .collect();
        println!("{}", median(&mut times));
        line.clear();
    }
    ExitCode::SUCCESS
}

/// The model is measured in the same minute; the best of three looks counts, because a burst in between is nobody's error.
fn forecasts_are_in_the_right_order() -> Result<(), Failed> {
    let mut shapes = (0..SHAPES.len()).map(Shape::start).collect::<Result<Vec<_>, _>>()?;
    let mut tries = Vec::new();
    for _ in 0..3 {
        let model = CostModel::calibrate()?;
        let mut rows = Vec::new();
        for (shape, name) in shapes.iter_mut().zip(SHAPES) {
            let advice = advise::process(shape.child.id() as i32, &model, None, &Silent)?;
            let forecast = advice.forecast.of(Engine::Now).and_then(|now| now.fork_us).ok_or("no forecast")?;
            rows.push((name, forecast, shape.forks()?));
        }
        let mut errors: Vec<f64> = rows.iter().map(|(_, forecast, truth)| (forecast / truth - 1.0).abs()).collect();
        let ordered = rows.iter().all(|a| rows.iter().all(|b| a.2 < b.2 * CLOSE || a.1 > b.1));
        tries.push((median(&mut errors), ordered, rows));
    }
    let best = tries.iter().min_by(|a, b| a.0.total_cmp(&b.0)).ok_or("no tries")?;
    for (name, forecast, truth) in &best.2 {
        eprintln!("{name}: forecast {}, measured {}", table::time(*forecast), table::time(*truth));
    }
    eprintln!("median error of the forecasts: {:.0} %", best.0 * 100.0);
    assert!(best.1, "the order is wrong: {:?}", best.2);
    Ok(())
}

fn the_advice_fits_the_shape() -> Result<(), Failed> {
    let model = CostModel::calibrate()?;
    let advise = |index: usize| -> Result<_, Failed> {
        let shape = Shape::start(index)?;
        Ok(advise::process(shape.child.id() as i32, &model, None, &Silent)?)
    };
    let small = advise(0)?;
    assert_eq!(small.recommendation.engine, Engine::Now, "{}", small.text());
    let large = advise(2)?;
    assert_ne!(large.recommendation.engine, Engine::Now, "{}", large.text());
    assert!(large.survey.sealable_bytes >= 250 << 20 && large.survey.refused.is_none(), "{:?}", large.survey);
    for part in ["as it is", "sealed", "Written between two forks", "assumed", "1 thread"] {
        assert!(large.text().contains(part), "'{part}' is missing in\n{}", large.text());
    }
    Ok(())
}

fn writes_are_counted_when_asked_for_and_the_target_goes_on() -> Result<(), Failed> {
    let model = CostModel::calibrate()?;
    let mut shape = Shape::start(1)?;
    let advice = advise::process(shape.child.id() as i32, &model, Some(Duration::from_millis(100)), &Silent)?;
    assert!(
        advice.forecast.dirtied.measured && advice.forecast.dirtied.pages < 100,
        "it sleeps: {:?}",
        advice.forecast
    );
    assert!(shape.forks()? > 0.0, "it still answers");
    Ok(())
}

fn a_command_is_started_and_ended() -> Result<(), Failed> {
    let model = CostModel::calibrate()?;
    let command = ["sleep", "1000"].map(OsString::from);
    let advice = advise::command(&command, &model, Duration::from_millis(200), None, &Silent)?;
    assert_eq!(advice.survey.name, "sleep");
    assert!(!std::path::Path::new(&format!("/proc/{}", advice.survey.pid)).exists(), "it was left running");
    let gone = advise::process(advice.survey.pid, &model, None, &Silent).unwrap_err();
    assert!(gone.to_string().starts_with("there is no process"), "{gone}");
    Ok(())
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    if args.get(1).is_some_and(|arg| arg == "be-a-shape") {
        return args.get(2).and_then(|index| index.parse().ok()).map_or(ExitCode::FAILURE, be_a_shape);
    }
    type Test = fn() -> Result<(), Failed>;
    let tests: [(&str, Test); 4] = [
        ("forecasts_are_in_the_right_order", forecasts_are_in_the_right_order),
        ("the_advice_fits_the_shape", the_advice_fits_the_shape),
        ("writes_are_counted_when_asked_for", writes_are_counted_when_asked_for_and_the_target_goes_on),
        ("a_command_is_started_and_ended", a_command_is_started_and_ended),
    ];
    // One at a time: they measure.
    let arguments = Arguments { test_threads: Some(1), ..Arguments::from_args() };
    let trials = tests.map(|(name, test)| Trial::test(name, test)).into_iter().collect();
    libtest_mimic::run(&arguments, trials).exit_code()
}
