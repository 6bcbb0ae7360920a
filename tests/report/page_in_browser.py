#!/usr/bin/env python3
"""Uses pages as a reader does, in a headless Chromium: of runs with scripts, without them and without dygraphs, and of
`bench ep`.

page_in_browser.py MOELOOM: the program, which writes the pages. Exit code 77: there is no browser, or no dygraphs.
"""
import json
import math
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

LIBRARY = pathlib.Path("/usr/share/javascript/dygraphs/dygraph.min.js")
SKIPPED = 77
STEPS = (6000, 40)  # of the first run more than a line has points

# What a reader does; each answer is what stands on the page then.
FRAME = """
const errors = [];
addEventListener('error', event => errors.push(String(event.message)));
console.error = error => errors.push(String(error));
addEventListener('load', () => {
  const all = selector => [...document.querySelectorAll(selector)];
  const texts = selector => all(selector).map(element => element.textContent);
  const answers = {titles: texts('h2'), errors};
  %s
  document.body.replaceChildren(Object.assign(document.createElement('pre'), {textContent: JSON.stringify(answers)}));
});
"""
READER_OF_RUNS = """
  const control = selector => document.querySelector('#controls ' + selector);
  const change = (selector, key, value, event) => {
    control(selector)[key] = value;
    control(selector).dispatchEvent(new Event(event));
  };
  const mouse = (target, type, box, x, y) => target.dispatchEvent(new MouseEvent(type, {
    bubbles: true, cancelable: true, view: window, detail: 1,
    clientX: box.left + x * box.width, clientY: box.top + y * box.height}));
  const chart = all('.lines')[0];
  const at = (type, x, y = 0.5) => chart.querySelectorAll('canvas').forEach(
    canvas => mouse(canvas, type, chart.getBoundingClientRect(), x, y));
  const labels = i => [...all('.lines')[i].querySelectorAll('.dygraph-axis-label-x')].map(one => one.textContent);
  answers.charts = all('.lines').length;
  answers.painted = all('.lines canvas').filter(canvas =>
    canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data.some(byte => byte > 0)).length;
  answers.runs = texts('#controls button');
  answers.last = texts('.keys');
  at('mousemove', 0.5);
  answers.hovered = texts('.keys');
  at('mouseout', 0.5);
  answers.scale = [...chart.querySelectorAll('.dygraph-axis-label-y')].map(one => one.textContent);
  change('input[type=checkbox]', 'checked', true, 'change');
  answers.log_scale = [...chart.querySelectorAll('.dygraph-axis-label-y')].map(one => one.textContent);
  change('input[type=checkbox]', 'checked', false, 'change');
  change('input[type=range]', 'value', '0.9', 'input');
  answers.smoothed = texts('.keys');
  change('input[type=range]', 'value', '0', 'input');
  answers.whole = [labels(0), labels(1)];
  at('mousedown', 0.3);
  at('mousemove', 0.5);
  at('mouseup', 0.5);
  answers.zoomed = [labels(0), labels(1)];
  all('#controls button')[0].click();
  answers.back = [labels(0), labels(1)];
  change('select', 'value', 'tokens', 'change');
  answers.over_tokens = labels(0);
  all('#controls button')[2].click();
  answers.hidden = texts('.keys');
  const map = document.querySelector('canvas.map');
  const box = map.getBoundingClientRect();
  map.dispatchEvent(new PointerEvent('pointermove', {clientX: box.right - 2, clientY: box.top + 3}));
  answers.tip = document.getElementById('tip').textContent;
  answers.bars = texts('.bars .label');
"""
READER_OF_SWEEP = """
  answers.labels = texts('.bars .label');
  answers.values = texts('.bars .stack');
  answers.widths = all('.bars .stack').map(stack => stack.firstChild.getBoundingClientRect().width);
"""


def write_run(folder, steps, loss):
    folder.mkdir(parents=True)
    with open(folder / "metrics.jsonl", "w") as file:
        for step in range(steps):
            line = {"step": step, "loss": loss(step), "aux_loss": 0, "z_loss": 0, "grad_norm": 1, "learning_rate": 1e-3,
                    "tokens_per_s": 100, "seconds": 1, "tokens_seen": 100 * (step + 1), "message_bytes": 0,
                    "network_bytes": 0, "row_bytes": 0, "rss_bytes": 1, "packings": 0, "packed_bytes": 0,
                    "phases": {"experts": 0.75, "attention": 0.25}, "expert_load": [0, 1 + step % 7]}
            if step % 10 == 9:
                line["val_loss"] = loss(step) + 1
            file.write(json.dumps(line) + "\n")
    (folder / "train.conf").write_text(f"steps = {steps}\n")


def short_loss(step):
    return 4 / (1 + step) + 0.01 * (step % 3)


def seen_in(browser, page):
    """The page's elements after its scripts."""
    dumped = subprocess.run([browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1300,900",
                             "--virtual-time-budget=3000", "--dump-dom", page.as_uri()],
                            capture_output=True, text=True, timeout=120)
    return dumped.stdout


def answers_of(browser, page, reader, folder):
    html = page.read_text()
    used = folder / "used.html"
    used.write_text(html.replace("<title>", f"<script>{FRAME % reader}</script><title>", 1))
    dumped = seen_in(browser, used)
    found = re.search(r"<body><pre>(.*)</pre></body>", dumped, re.DOTALL)
    assert found, "the reader came to no end: " + dumped[-2000:]
    text = found[1]
    for entity, char in (("&lt;", "<"), ("&gt;", ">"), ("&nbsp;", " "), ("&amp;", "&")):
        text = text.replace(entity, char)
    return json.loads(text)


def smoothed(values, weight):
    """As TensorBoard's slider."""
    mean = total = 0
    for value in values:
        mean = weight * mean + (1 - weight) * value
        total = weight * total + (1 - weight)
    return mean / total


def check_uses(answers, short_run):
    assert answers["errors"] == [], answers["errors"]
    assert answers["charts"] == 5 and answers["painted"] >= 5, answers
    names = ["a</script><b>", "b</script><b>"]
    for title in ("Training loss", "Validation loss", "Speed", "Gradient norm", "Learning rate",
                  "Expert load: " + names[0], "Expert load: " + names[1], "Time by phase", "Steps", "Runs", "Options that differ"):
        assert answers["titles"].count(title) == 1, title + " is not once in " + str(answers["titles"])
    assert answers["runs"][1:] == names, answers["runs"]
    assert answers["last"][0].startswith("last" + names[0]), answers["last"]
    assert f"{short_run[-1]:.4g}" in answers["last"][0], answers["last"]
    step = re.match(r"step ([\d,]+)", answers["hovered"][0])
    assert step and 2500 < int(step[1].replace(",", "")) < 3100, answers["hovered"]
    assert " to " in answers["hovered"][0], "of a stretch its least and its largest: " + answers["hovered"][0]
    assert answers["hovered"][0].endswith(names[1] + " nats"), "the other has ended before: " + answers["hovered"][0]
    assert answers["hovered"][1].startswith("step"), "all charts are pointed at together"
    assert answers["scale"] != answers["log_scale"], answers["scale"]
    assert f"{smoothed(short_run, 0.9):.4g} ({short_run[-1]:.4g})" in answers["smoothed"][0], answers["smoothed"]
    for before, after in zip(answers["whole"], answers["zoomed"]):
        assert before != after, answers["zoomed"]
    assert answers["back"] == answers["whole"], answers["back"]
    assert "K" in answers["over_tokens"][-1], answers["over_tokens"]
    assert names[0] in answers["hidden"][0] and names[1] not in answers["hidden"][0], answers["hidden"]
    assert re.fullmatch(r"layer 0, step .*|", answers["tip"]), answers["tip"]
    assert answers["bars"] == names, answers["bars"]


def check_sweep(answers, rows):
    """rows: of points.jsonl."""
    assert answers["errors"] == [], answers["errors"]
    titles = [title for title in answers["titles"] if ": MoE layer, balanced, strong scaling, 1 rank" in title]
    assert [title.split(":")[0] for title in titles] == [
        "Tokens per second", "Time", "Time by phase", "Memory of a rank", "Bytes of a step", "Imbalance"], titles
    labels = [f"ep 1, gmm {row['gmm']}" for row in rows]
    assert answers["labels"][:len(rows)] == labels, answers["labels"]
    speeds, widths = [row["tokens_per_s"] for row in rows], answers["widths"][:len(rows)]
    for width, speed in zip(widths, speeds):
        assert abs(width / max(widths) - speed / max(speeds)) < 0.02, (widths, speeds)
    assert float(answers["values"][0].replace(",", "")) == float(f"{speeds[0]:.4g}"), answers["values"]


def main():
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if browser is None or not LIBRARY.exists():
        print("skipped: there is no " + ("Chromium; install chromium" if browser is None
                                         else f"{LIBRARY}; install libjs-dygraphs"))
        return SKIPPED
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        runs = [folder / "a<" / "script><b>", folder / "b<" / "script><b>"]
        write_run(runs[0], STEPS[0], lambda step: 3 + math.sin(step) / 9)
        write_run(runs[1], STEPS[1], short_loss)
        page = folder / "runs.html"
        subprocess.run([sys.argv[1], "report", *runs, "--out", page], check=True)
        check_uses(answers_of(browser, page, READER_OF_RUNS, folder), [short_loss(step) for step in range(STEPS[1])])
        print("used with scripts")
        html = page.read_text()
        changed = folder / "changed.html"
        changed.write_text(html.replace("script-src 'unsafe-inline'", "script-src 'none'", 1))
        plain = seen_in(browser, changed)
        assert '<div id="lines"></div>' in plain, plain[:2000]
        assert "<td>training loss, a&lt;/script&gt;&lt;b&gt;</td>" in plain, plain[:2000]
        print("read without scripts")
        changed.write_text(html.replace(LIBRARY.read_text(), ""))
        bare = seen_in(browser, changed)
        assert 'data-drawn="0"' in bare and "<canvas" in bare and '<div id="lines"></div>' in bare, bare[:2000]
        print("read without dygraphs")
        subprocess.run([sys.argv[1], "bench", "ep", "--out", folder / "sweep", "--mode", "layer", "--scaling", "strong",
                        "--gmm", "0,force", "--tokens", "64", "--hidden", "16", "--samples", "1", "--threads", "1"],
                       check=True, stdout=subprocess.DEVNULL)
        rows = [json.loads(line) for line in open(folder / "sweep" / "points.jsonl")]
        check_sweep(answers_of(browser, folder / "sweep" / "report.html", READER_OF_SWEEP, folder), rows)
        print("used the page of bench ep")
    return 0


if __name__ == "__main__":
    sys.exit(main())
